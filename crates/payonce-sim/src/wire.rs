//! HTTP/1.1 as bytes on a plain TCP connection: writing requests, reading answers.
//!
//! Here: by hand and not with a client library, because the courier must hold back a request's last byte, stop in the
//! middle, repeat a header or lie about a length, which a good client refuses to do. Not here: TLS; only `http://`.

use crate::message::{Headers, Request, Response};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// An answer's head and body may each be this long; a receiver that sends more is broken.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Where a URL points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// `host` as it stands in the URL, for the `Host` header.
    pub(crate) host: String,
    /// `host:port`, to connect to.
    pub(crate) authority: String,
    /// Path and query, never empty.
    pub(crate) path: String,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url}: only http:// is supported"))?;
        let (host, path) = match rest.find(['/', '?']) {
            Some(at) if rest[at..].starts_with('/') => (&rest[..at], rest[at..].to_owned()),
            Some(at) => (&rest[..at], format!("/{}", &rest[at..])),
            None => (rest, "/".to_owned()),
        };
        if host.is_empty() || url.bytes().any(|byte| byte <= b' ') {
            return Err(format!("{url}: no host, or a blank inside"));
        }
        // A colon inside the brackets of an IPv6 address is not a port's.
        let has_port = host.rfind(':').is_some_and(|at| host.rfind(']').is_none_or(|bracket| bracket < at));
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Self { host: host.to_owned(), authority, path })
    }
}

/// The whole request. A `Host` or `Content-Length` that the request brings itself is left as it is.
pub(crate) fn request_bytes(target: &Target, request: &Request) -> Vec<u8> {
    let mut head = format!("POST {} HTTP/1.1\r\n", target.path);
    if request.header("host").is_none() {
        head.push_str(&format!("Host: {}\r\n", target.host));
    }
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if request.header("content-length").is_none() {
        head.push_str(&format!("Content-Length: {}\r\n", request.body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&request.body);
    bytes
}

/// Reads one answer. `buffer` keeps what was read beyond it. The flag says whether the connection may be used again.
pub(crate) async fn read_response(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<(Response, bool)> {
    loop {
        let end = loop {
            match find(buffer, b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => more(stream, buffer, "the head").await?,
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.drain(..end);
        let (version, status, headers) = parse_head(&head)?;
        // Interim answers such as 100 Continue come before the real one.
        if (100..200).contains(&status) {
            continue;
        }
        let mut response = Response { status, headers, body: Vec::new() };
        let framed = read_body(stream, buffer, &mut response).await?;
        let connection = response.header("connection").unwrap_or_default().to_ascii_lowercase();
        let reuse = framed && version == "HTTP/1.1" && connection != "close";
        return Ok((response, reuse));
    }
}

/// Fills the body; false when it ended with the connection.
async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    response: &mut Response,
) -> io::Result<bool> {
    if matches!(response.status, 204 | 304) {
        return Ok(true);
    }
    let coding = response.header("transfer-encoding").unwrap_or_default().to_ascii_lowercase();
    if coding.ends_with("chunked") {
        response.body = read_chunks(stream, buffer).await?;
        return Ok(true);
    }
    if let Some(length) = response.header("content-length") {
        let length: usize = length.trim().parse().map_err(|_| bad("Content-Length is not a number"))?;
        response.body = take(stream, buffer, length).await?;
        return Ok(true);
    }
    while stream.read_buf(buffer).await? > 0 {
        within_limit(buffer.len())?;
    }
    response.body = std::mem::take(buffer);
    Ok(false)
}

async fn read_chunks(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = take_line(stream, buffer).await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| bad("a chunk's size is not a number"))?;
        if size == 0 {
            while !take_line(stream, buffer).await?.is_empty() {}
            return Ok(body);
        }
        within_limit(body.len() + size)?;
        body.extend(take(stream, buffer, size).await?);
        take_line(stream, buffer).await?;
    }
}

async fn take_line(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> io::Result<String> {
    let end = loop {
        match find(buffer, b"\r\n") {
            Some(at) => break at,
            None => more(stream, buffer, "a chunk").await?,
        }
    };
    let line = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 2);
    Ok(line)
}

async fn take(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>, length: usize) -> io::Result<Vec<u8>> {
    within_limit(length)?;
    while buffer.len() < length {
        more(stream, buffer, "the body").await?;
    }
    Ok(buffer.drain(..length).collect())
}

async fn more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>, within: &str) -> io::Result<()> {
    within_limit(buffer.len())?;
    if stream.read_buf(buffer).await? == 0 {
        let kind = io::ErrorKind::UnexpectedEof;
        let what = if buffer.is_empty() && within == "the head" {
            "before any answer".into()
        } else {
            format!("within {within}")
        };
        return Err(io::Error::new(kind, format!("the connection was closed {what}")));
    }
    Ok(())
}

fn parse_head(head: &str) -> io::Result<(&str, u16, Headers)> {
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let mut words = line.splitn(3, ' ');
    let version = words.next().filter(|word| word.starts_with("HTTP/1.")).ok_or_else(|| bad("not an HTTP/1 answer"))?;
    let status = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| bad("no status in the answer"))?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    Ok((version, status, headers))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn within_limit(length: usize) -> io::Result<()> {
    if length > ANSWER_BYTES_MAX { Err(bad("the answer is too long")) } else { Ok(()) }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> io::Result<(Response, bool)> {
        read_response(&mut text.as_bytes(), &mut Vec::new()).await
    }

    #[test]
    fn urls() {
        let target = Target::parse("http://127.0.0.1:8080/notify/wx").unwrap();
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("127.0.0.1:8080", "/notify/wx"));
        assert_eq!(Target::parse("http://shop.example").unwrap().authority, "shop.example:80");
        assert_eq!(Target::parse("http://shop.example?a=b").unwrap().path, "/?a=b");
        assert_eq!(Target::parse("http://[::1]").unwrap().authority, "[::1]:80");
        assert_eq!(Target::parse("http://[::1]:9/").unwrap().authority, "[::1]:9");
        for wrong in ["https://shop.example/", "http:///x", "http://a b/"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn answers_in_every_framing() {
        let (answer, reuse) = read("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsuccess").await.unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), reuse), (200, b"success".as_slice(), true));
        let chunked = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nfa\r\n2\r\nil\r\n0\r\nTrailer: 1\r\n\r\n";
        let (answer, reuse) = read(chunked).await.unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), reuse), (500, b"fail".as_slice(), true));
        let (answer, reuse) = read("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
        assert_eq!((answer.status, answer.body.is_empty(), reuse), (204, true, false));
        let (answer, reuse) = read("HTTP/1.0 200 OK\r\n\r\nsuccess").await.unwrap();
        assert_eq!((answer.body.as_slice(), reuse), (b"success".as_slice(), false));
        for broken in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "SSH-2.0\r\n\r\n"] {
            assert!(read(broken).await.is_err(), "{broken}");
        }
    }
}
