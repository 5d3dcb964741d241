//! The log of one unit: a file that its processes append to themselves, kept within a limit.
//!
//! A log that has grown past its limit is cut to its newer half, at the start of a line: the half
//! is read, the file is emptied, and the half is written back. The unit goes on writing meanwhile,
//! because it always appends; what it writes in the instant between reading and emptying is lost.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::Timestamp;
use tokio::sync::watch;

use super::moments::Moments;
use super::process::append;
use crate::clock::{as_wall_time, wall_time};

/// The most that is read at once.
const BLOCK: u64 = 64 * 1024;

/// The log of one unit.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limit: u64,
    /// Held while the file is cut or read.
    kept: Mutex<Kept>,
    /// Ends with the log, so that those who follow it end too.
    alive: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Kept {
    /// How many bytes were cut off so far.
    cut: u64,
    moments: Moments,
}

impl Kept {
    fn on_look(&mut self, file: &Metadata) -> io::Result<()> {
        let written = as_wall_time(file.modified()?);
        self.moments.on_look(self.cut + file.len(), written, wall_time());
        Ok(())
    }
}

impl Log {
    /// The log in that file, which is made if it is missing, with its directory.
    pub(crate) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        if let Err(error) = append(&path) {
            let directory = path.parent().filter(|_| error.kind() == io::ErrorKind::NotFound);
            std::fs::create_dir_all(directory.ok_or(error)?)?;
            append(&path)?;
        }
        let log = Self { path, limit, kept: Mutex::default(), alive: watch::channel(()).0 };
        log.look()?;
        Ok(log)
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

    /// The place at which it ends now; a later one of what is written from now on.
    pub(crate) fn end(&self) -> io::Result<u64> {
        let kept = self.lock();
        Ok(kept.cut + std::fs::metadata(&self.path)?.len())
    }

    /// Notes by when what there is was written, and returns how much that is. What is written later
    /// can be told from it.
    pub(crate) fn look(&self) -> io::Result<u64> {
        let mut kept = self.lock();
        let file = std::fs::metadata(&self.path)?;
        kept.on_look(&file)?;
        Ok(file.len())
    }

    /// Looks at the log, and cuts it to its newer half if it has grown past its limit.
    pub(crate) fn trim(&self) -> io::Result<()> {
        if self.look()? <= self.limit {
            return Ok(());
        }
        let mut kept = self.lock();
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
        kept.cut += from + whole as u64;
        Ok(())
    }

    /// The last lines, and the place that they end at; all that is kept where `lines` is `None`.
    /// What was certainly written before `since` is not among them.
    pub(crate) fn tail(
        &self,
        lines: Option<usize>,
        since: Option<Timestamp>,
    ) -> io::Result<(Vec<u8>, u64)> {
        let mut kept = self.lock();
        let mut file = File::open(&self.path)?;
        let metadata = file.metadata()?;
        kept.on_look(&metadata)?;
        let end = metadata.len();
        let mut floor = end.saturating_sub(self.limit.saturating_mul(2));
        if let Some(since) = since {
            let place = kept.moments.place_of(since).saturating_sub(kept.cut);
            floor = floor.max(start_of_line(&mut file, place.min(end))?);
        }
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
        Ok((text.split_off(first), kept.cut + end))
    }

    /// What was written from a place on, at most one block of it, and the place that it ends at.
    pub(crate) fn read_from(&self, place: u64) -> io::Result<(Vec<u8>, u64)> {
        let kept = self.lock();
        let mut file = File::open(&self.path)?;
        // What was cut off before it was read is skipped.
        let start = place.max(kept.cut);
        file.seek(SeekFrom::Start(start - kept.cut))?;
        let mut text = Vec::new();
        file.take(BLOCK).read_to_end(&mut text)?;
        let end = start + text.len() as u64;
        Ok((text, end))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the line begins that goes on at a place; a place within it, if it is longer than a block.
fn start_of_line(file: &mut File, place: u64) -> io::Result<u64> {
    let start = place.saturating_sub(BLOCK);
    file.seek(SeekFrom::Start(start))?;
    let mut block = Vec::new();
    file.take(place - start).read_to_end(&mut block)?;
    let newline = block.iter().rposition(|&byte| byte == b'\n');
    Ok(start + newline.map_or(0, |newline| newline as u64 + 1))
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
            let (text, end) = log.tail(lines, None).expect("it can be read");
            assert_eq!((String::from_utf8_lossy(&text).as_ref(), end), (expected, 13), "{lines:?}");
        }
    }

    /// Has what the log holds by now as if it had been written at that moment.
    fn date(log: &Log, millis: u64) {
        let file = append(log.path()).expect("it can be opened");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
        file.set_modified(at).and_then(|()| log.look()).expect("it can be dated");
    }

    #[test]
    fn the_lines_since_a_moment() {
        let (_directory, log) = log(1 << 20, b"one\ntwo\nthr");
        date(&log, 1000);
        append(log.path()).and_then(|mut file| file.write_all(b"ee\nfour\n")).expect("written");
        date(&log, 2000);
        for (lines, since, expected) in [
            (None, 1000, "one\ntwo\nthree\nfour\n"),
            (None, 1500, "three\nfour\n"),
            (None, 2000, "three\nfour\n"),
            (Some(1), 1500, "four\n"),
            (Some(9), 1500, "three\nfour\n"),
            (None, 2500, ""),
            (Some(9), 2500, ""),
            (None, u64::MAX, ""),
        ] {
            let since = Timestamp::from_millis(since);
            let (text, end) = log.tail(lines, Some(since)).expect("it can be read");
            let text = String::from_utf8_lossy(&text).into_owned();
            assert_eq!((text.as_str(), end), (expected, 19), "{lines:?} since {since:?}");
        }
    }

    #[test]
    fn a_cut_keeps_the_moments_of_lines() {
        let early: String = (0..90).map(|number| format!("line {number:02}\n")).collect();
        let (_directory, log) = log(400, early.as_bytes());
        date(&log, 1000);
        log.note("late").expect("it can be written");
        date(&log, 2000);
        log.trim().expect("it can be cut");
        let tail =
            |since| log.tail(None, Some(Timestamp::from_millis(since))).expect("it is read").0;
        assert_eq!(tail(1500), b"fleet: late\n");
        assert_eq!(tail(2500), b"");
        assert!(tail(1000).len() > 100);
    }

    #[test]
    fn lines_longer_than_a_block_are_whole() {
        let long = "x".repeat(3 * usize::try_from(BLOCK).expect("it is small"));
        let (_directory, log) = log(1 << 20, format!("first\n{long}\nlast\n").as_bytes());
        let (text, _) = log.tail(Some(2), None).expect("it can be read");
        assert_eq!(text, format!("{long}\nlast\n").as_bytes());
    }

    #[test]
    fn a_cut_keeps_the_newer_half_and_the_places_of_readers() {
        let lines: String = (0..100).map(|number| format!("line {number:02}\n")).collect();
        let (_directory, log) = log(400, lines.as_bytes());
        let (_, end) = log.tail(None, None).expect("it can be read");
        log.trim().expect("it can be cut");
        let (kept, _) = log.tail(None, None).expect("it can be read");
        let kept = String::from_utf8(kept).expect("it was text");
        assert!(kept.len() <= 200 && lines.ends_with(&kept) && kept.starts_with("line "), "{kept}");
        log.note("more").expect("it can be written");
        assert_eq!(log.read_from(end).expect("it can be read").0, b"fleet: more\n");
        assert_eq!(log.read_from(0).expect("it can be read").0.len(), kept.len() + 12);
    }
}
