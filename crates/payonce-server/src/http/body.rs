//! Reading a body within its bounds.
//!
//! Here: the limits on size and time. Not here: what is answered when one is passed.

use std::{fmt, time::Duration};

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Body;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// More bytes than allowed.
    TooLarge,
    /// Not here in time.
    Slow,
    /// The connection ended, or the framing is wrong.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is too large",
            Self::Slow => "the body did not arrive in time",
            Self::Broken => "the body broke off",
        })
    }
}

/// Of a body that is too large so much is read and thrown away, so that the sender gets to reading the
/// answer instead of meeting a reset connection.
const DISCARD_BYTES: u64 = 16 * 1024 * 1024;

/// Reads a whole body. Memory never holds more than `limit` and one piece.
pub(crate) async fn read<B>(mut body: B, limit: usize, within: Duration) -> Result<Vec<u8>, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let declared = body.size_hint();
        if declared.lower() > DISCARD_BYTES {
            return Err(BodyError::TooLarge);
        }
        let mut seen: u64 = 0;
        let mut bytes = Vec::with_capacity(usize::try_from(declared.lower()).unwrap_or(0).min(limit));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyError::Broken)?;
            // Trailers are no part of any platform's message.
            let Ok(data) = frame.into_data() else { continue };
            seen += data.remaining() as u64;
            if seen > DISCARD_BYTES {
                return Err(BodyError::TooLarge);
            }
            if seen <= limit as u64 {
                bytes.extend_from_slice(&data);
            }
        }
        if seen > limit as u64 { Err(BodyError::TooLarge) } else { Ok(bytes) }
    };
    tokio::time::timeout(within, reading).await.unwrap_or(Err(BodyError::Slow))
}
