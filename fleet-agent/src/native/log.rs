//! The log of one unit: a file that its processes append to themselves, kept within a limit.
//!
//! A log that has grown past its limit is cut to its newer half, at the start of a line: the half
//! is read, the file is emptied, and the half is written back. The unit goes on writing meanwhile,
//! because it always appends; what it writes in the instant between reading and emptying is lost.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::process::append;

/// The most that is read at once.
const BLOCK: u64 = 64 * 1024;

/// The log of one unit.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limit: u64,
    /// How many bytes were cut off so far; held while the file is cut or read.
    cut: Mutex<u64>,
    /// Ends with the log, so that those who follow it end too.
    alive: watch::Sender<()>,
}

impl Log {
    /// The log in that file, which is made if it is missing.
    pub(crate) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        append(&path)?;
        Ok(Self { path, limit, cut: Mutex::new(0), alive: watch::channel(()).0 })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Closes when the log is no more.
    pub(crate) fn alive(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    /// Adds a line of the supervisor's own.
    pub(crate) fn note(&self, words: &str) -> io::Result<()> {
        append(&self.path)?.write_all(format!("fleet: {words}\n").as_bytes())
    }

    /// Cuts the log to its newer half if it has grown past its limit.
    pub(crate) fn trim(&self) -> io::Result<()> {
        if std::fs::metadata(&self.path)?.len() <= self.limit {
            return Ok(());
        }
        let mut cut = self.lock();
        let mut file = append(&self.path)?;
        let mut reader = File::open(&self.path)?;
        let length = reader.metadata()?.len();
        let from = length - self.limit / 2;
        reader.seek(SeekFrom::Start(from))?;
        // Bounded, for a unit may write faster than this reads.
        let mut half = Vec::new();
        reader.take(self.limit).read_to_end(&mut half)?;
        file.set_len(0)?;
        let whole = half.iter().position(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        file.write_all(&half[whole..])?;
        *cut += from + whole as u64;
        Ok(())
    }

    /// The last lines, and the place that they end at; all that is kept where `lines` is `None`.
    pub(crate) fn tail(&self, lines: Option<usize>) -> io::Result<(Vec<u8>, u64)> {
        let cut = self.lock();
        let mut file = File::open(&self.path)?;
        let end = file.metadata()?.len();
        let floor = end.saturating_sub(self.limit.saturating_mul(2));
        let mut from = end;
        let mut text = Vec::new();
        while from > floor && lines.is_none_or(|lines| starts_of_lines(&text) <= lines) {
            let start = from.saturating_sub(BLOCK).max(floor);
            file.seek(SeekFrom::Start(start))?;
            let mut block = vec![0; usize::try_from(from - start).unwrap_or(0)];
            file.read_exact(&mut block)?;
            block.append(&mut text);
            text = block;
            from = start;
        }
        let first = lines.map_or(0, |lines| start_of_last(&text, lines));
        Ok((text.split_off(first), *cut + end))
    }

    /// What was written from a place on, at most one block of it, and the place that it ends at.
    pub(crate) fn read_from(&self, place: u64) -> io::Result<(Vec<u8>, u64)> {
        let cut = self.lock();
        let mut file = File::open(&self.path)?;
        // What was cut off before it was read is skipped.
        let start = place.max(*cut);
        file.seek(SeekFrom::Start(start - *cut))?;
        let mut text = Vec::new();
        file.take(BLOCK).read_to_end(&mut text)?;
        let end = start + text.len() as u64;
        Ok((text, end))
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many lines certainly start in a text that may begin in the middle of one.
fn starts_of_lines(text: &[u8]) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    body.iter().filter(|&&byte| byte == b'\n').count()
}

/// Where the last lines of a text begin.
fn start_of_last(text: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return text.len();
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = body.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'\n');
    newlines.map(|(at, _)| at + 1).nth(lines - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(limit: u64, text: &[u8]) -> (tempfile::TempDir, Log) {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let log = Log::open(directory.path().join("log"), limit).expect("a file can be made");
        append(log.path()).and_then(|mut file| file.write_all(text)).expect("it can be written");
        (directory, log)
    }

    #[test]
    fn the_last_lines() {
        let (_directory, log) = log(1 << 20, b"one\ntwo\nthree");
        for (lines, expected) in [
            (None, "one\ntwo\nthree"),
            (Some(0), ""),
            (Some(1), "three"),
            (Some(2), "two\nthree"),
            (Some(9), "one\ntwo\nthree"),
        ] {
            let (text, end) = log.tail(lines).expect("it can be read");
            assert_eq!((String::from_utf8_lossy(&text).as_ref(), end), (expected, 13), "{lines:?}");
        }
    }

    #[test]
    fn lines_longer_than_a_block_are_whole() {
        let long = "x".repeat(3 * usize::try_from(BLOCK).expect("it is small"));
        let (_directory, log) = log(1 << 20, format!("first\n{long}\nlast\n").as_bytes());
        let (text, _) = log.tail(Some(2)).expect("it can be read");
        assert_eq!(text, format!("{long}\nlast\n").as_bytes());
    }

    #[test]
    fn a_cut_keeps_the_newer_half_and_the_places_of_readers() {
        let lines: String = (0..100).map(|number| format!("line {number:02}\n")).collect();
        let (_directory, log) = log(400, lines.as_bytes());
        let (_, end) = log.tail(None).expect("it can be read");
        log.trim().expect("it can be cut");
        let (kept, _) = log.tail(None).expect("it can be read");
        let kept = String::from_utf8(kept).expect("it was text");
        assert!(kept.len() <= 200 && lines.ends_with(&kept) && kept.starts_with("line "), "{kept}");
        log.note("more").expect("it can be written");
        assert_eq!(log.read_from(end).expect("it can be read").0, b"fleet: more\n");
        assert_eq!(log.read_from(0).expect("it can be read").0.len(), kept.len() + 12);
    }
}
