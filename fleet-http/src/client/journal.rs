//! Reading a journal line by line.

use fleet_unitfile::Timespan;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;

use super::query::Query;
use super::{ClientError, Endpoint};
use crate::{JournalLine, MOMENTS};

/// Which lines of a journal are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalOptions {
    /// How many of the lines that are already there; `None` leaves it to the server, which sends
    /// all with `since` and a few without.
    pub lines: Option<u32>,
    /// How long ago the first of these lines was written at most, by the clock of the unit's
    /// machine; `None` leaves none out.
    pub since: Option<Timespan>,
    /// Whether lines to come are wanted too.
    pub follow: bool,
    /// The machine whose lines are wanted; `None` is the one that the unit is placed on, or all on
    /// which a global unit is, each line then with the ID of its machine and a colon before it.
    pub machine: Option<String>,
}

impl JournalOptions {
    pub(super) fn query(&self) -> Query {
        let lines = self.lines.map(|lines| lines.to_string());
        let since = self.since.map(|since| since.to_string());
        Query::new()
            .with("follow", self.follow.then_some("1"))
            .with("lines", lines.as_deref())
            .with("machine", self.machine.as_deref())
            .with("since", since.as_deref())
    }

    /// The same, asking when each line was written.
    pub(super) fn dated_query(&self) -> Query {
        self.query().with("moments", Some("1"))
    }
}

/// The lines of a journal as they come.
#[derive(Debug)]
pub struct JournalLines {
    endpoint: Endpoint,
    body: Incoming,
    buffer: Lines,
    ended: bool,
    /// Whether each line begins with when it was written.
    is_dated: bool,
}

impl JournalLines {
    pub(super) fn new(endpoint: Endpoint, answer: Response<Incoming>) -> Self {
        let is_dated = answer.headers().contains_key(MOMENTS);
        let body = answer.into_body();
        Self { endpoint, body, buffer: Lines::default(), ended: false, is_dated }
    }

    /// The next line with when it was written, as far as the server told so.
    pub(crate) async fn next_dated(&mut self) -> Result<Option<JournalLine>, ClientError> {
        let line = self.next_line().await?;
        let read =
            |line: String| if self.is_dated { JournalLine::read(&line) } else { line.into() };
        Ok(line.map(read))
    }

    /// The next line without its end; `None` after the last one. Bytes that are not UTF-8 are
    /// replaced, and what goes on for more than a mebibyte comes in pieces of that size.
    ///
    /// # Errors
    ///
    /// [`ClientError::Broken`] when the journal was cut off.
    pub async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
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
