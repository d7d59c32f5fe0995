//! The two messages that everything here hands around: a callback on its way out, and an answer.
//!
//! Here: plain values with the bytes as they are. Not here: how they are spelt on a socket (`wire`), and what makes a
//! platform content (`platform`).

/// Header names and values, in order.
pub type Headers = Vec<(String, String)>;

/// A callback as a platform would send it, without a destination: headers in order, and the body's exact bytes.
///
/// `Host` and `Content-Length` are added on the way out, unless they are already here (a fault may lie about the length).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Header names and values in the order they are sent.
    pub headers: Headers,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Request {
    /// The first value of a header, whatever the case of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Replaces the first header of that name, or appends one.
    pub fn set_header(&mut self, name: &str, value: impl Into<String>) {
        match self.headers.iter_mut().find(|(have, _)| have.eq_ignore_ascii_case(name)) {
            Some((_, old)) => *old = value.into(),
            None => self.headers.push((name.to_owned(), value.into())),
        }
    }

    /// The complete HTTP/1.1 request for `url`, as it goes over the socket.
    ///
    /// # Errors
    /// When the URL is not of the form `http://host[:port]/path`.
    pub fn to_http(&self, url: &str) -> Result<Vec<u8>, String> {
        Ok(crate::wire::request_bytes(&crate::wire::Target::parse(url)?, self))
    }
}

/// An HTTP answer: from a receiver to the courier, or from a simulated platform API to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header names and values in the order received or sent.
    pub headers: Headers,
    /// The body's bytes, without transfer coding.
    pub body: Vec<u8>,
}

impl Response {
    /// The first value of a header, whatever the case of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}
