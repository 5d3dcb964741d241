//! An answer that is read line by line as it comes.

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;

use super::{ClientError, Endpoint};

/// The lines of an answer.
#[derive(Debug)]
pub(super) struct BodyLines {
    endpoint: Endpoint,
    body: Incoming,
    buffer: Lines,
    ended: bool,
}

impl BodyLines {
    pub(super) fn new(endpoint: Endpoint, answer: Response<Incoming>) -> Self {
        Self { endpoint, body: answer.into_body(), buffer: Lines::default(), ended: false }
    }

    /// The next line without its end; `None` after the last one. Bytes that are not UTF-8 are
    /// replaced, and what goes on for more than a mebibyte comes in pieces of that size.
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

/// Bytes that are waiting to become lines.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// How many of the bytes were given out.
    given: usize,
    /// How many are known to hold no end of a line.
    searched: usize,
}

impl Lines {
    const MOST: usize = 1 << 20;

    fn next(&mut self, ended: bool) -> Option<String> {
        let end = self.bytes[self.searched..].iter().position(|&b| b == b'\n');
        if let Some(end) = end.map(|end| self.searched + end) {
            return Some(self.give(end, end + 1));
        }
        self.searched = self.bytes.len();
        let waiting = self.bytes.len() - self.given;
        if waiting > Self::MOST || (ended && waiting > 0) {
            let end = self.given + waiting.min(Self::MOST);
            return Some(self.give(end, end));
        }
        self.bytes.drain(..self.given);
        (self.given, self.searched) = (0, self.bytes.len());
        None
    }

    fn give(&mut self, end: usize, next: usize) -> String {
        let line = String::from_utf8_lossy(&self.bytes[self.given..end]).into_owned();
        self.given = next;
        self.searched = self.searched.max(next);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut read) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.bytes.extend_from_slice(piece);
            read.extend(std::iter::from_fn(|| lines.next(false)));
        }
        read.extend(std::iter::from_fn(|| lines.next(true)));
        read
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
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
    fn an_endless_line_comes_in_pieces() {
        let endless = vec![b'x'; 2 * Lines::MOST + 7];
        let lengths: Vec<usize> = read(&[&endless, b"y\nz"]).iter().map(String::len).collect();
        assert_eq!(lengths, [Lines::MOST, Lines::MOST, 8, 1]);
    }
}
