//! Reads a response as it arrives: line by line, or the bytes of an export.

use bytes::Bytes;
use fleet_core::Strictness;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;

use super::{ClientError, Endpoint};
use crate::wire::STRICTNESS;

/// Line stream of a response.
#[derive(Debug)]
pub(super) struct BodyLines {
    endpoint: Endpoint,
    body: Incoming,
    buffer: LineBuffer,
    ended: bool,
}

impl BodyLines {
    pub(super) fn new(endpoint: Endpoint, response: Response<Incoming>) -> Self {
        Self { endpoint, body: response.into_body(), buffer: LineBuffer::default(), ended: false }
    }

    /// Returns the next line without its newline, or `None` at the end. Invalid UTF-8 is replaced.
    /// A line of more than one mebibyte is split into parts of that size.
    pub(super) async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(line) = self.buffer.next(self.ended) {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                None => self.ended = true,
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.buffer.bytes.extend_from_slice(bytes);
                    }
                }
                Some(Err(cause)) => {
                    let endpoint = self.endpoint.clone();
                    return Err(ClientError::Broken { endpoint, cause: cause.into() });
                }
            }
        }
    }
}

/// Received bytes that were not yet returned as lines.
#[derive(Debug, Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// Number of bytes already returned.
    consumed: usize,
    /// Number of bytes known to contain no newline.
    searched: usize,
}

impl LineBuffer {
    const MAX_LINE: usize = 1 << 20;

    fn next(&mut self, ended: bool) -> Option<String> {
        let end = self.bytes[self.searched..].iter().position(|&b| b == b'\n');
        if let Some(end) = end.map(|end| self.searched + end) {
            return Some(self.take(end, end + 1));
        }
        self.searched = self.bytes.len();
        let waiting = self.bytes.len() - self.consumed;
        if waiting > Self::MAX_LINE || (ended && waiting > 0) {
            let end = self.consumed + waiting.min(Self::MAX_LINE);
            return Some(self.take(end, end));
        }
        self.bytes.drain(..self.consumed);
        (self.consumed, self.searched) = (0, self.bytes.len());
        None
    }

    fn take(&mut self, end: usize, next: usize) -> String {
        let line = String::from_utf8_lossy(&self.bytes[self.consumed..end]).into_owned();
        self.consumed = next;
        self.searched = self.searched.max(next);
        line
    }
}

/// Byte stream of an export.
#[derive(Debug)]
pub struct ExportBytes {
    endpoint: Endpoint,
    strictness: Strictness,
    body: Incoming,
}

impl ExportBytes {
    pub(super) fn new(endpoint: Endpoint, response: Response<Incoming>) -> Self {
        let warns = response.headers().get(STRICTNESS).is_some_and(|value| value == "warn");
        let strictness = if warns { Strictness::Warn } else { Strictness::Refuse };
        Self { endpoint, strictness, body: response.into_body() }
    }

    /// Returns the server's handling of unit files that fleet v1 silently accepted.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// Returns the next bytes of the export, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Broken`] if the export was interrupted.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(cause)) => {
                    let endpoint = self.endpoint.clone();
                    return Err(ClientError::Broken { endpoint, cause: cause.into() });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut read) = (LineBuffer::default(), Vec::new());
        for piece in pieces {
            lines.bytes.extend_from_slice(piece);
            read.extend(std::iter::from_fn(|| lines.next(false)));
        }
        read.extend(std::iter::from_fn(|| lines.next(true)));
        read
    }

    #[test]
    fn lines_are_reassembled_from_any_chunks() {
        let text = b"one\n\ntwo and more\nlast";
        let expected = ["one", "", "two and more", "last"];
        for size in 1..=text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(read(&pieces), expected, "in pieces of {size}");
        }
        assert_eq!(read(&[b"one\n"]), ["one"]);
        assert!(read(&[]).is_empty());
        assert_eq!(read(&[b"\xff\n"]), ["\u{fffd}"]);
    }

    #[test]
    fn overlong_line_is_split() {
        let endless = vec![b'x'; 2 * LineBuffer::MAX_LINE + 7];
        let lengths: Vec<usize> = read(&[&endless, b"y\nz"]).iter().map(String::len).collect();
        assert_eq!(lengths, [LineBuffer::MAX_LINE, LineBuffer::MAX_LINE, 8, 1]);
    }
}
