//! The log of one unit: a file that its processes append to themselves, kept within a limit.
//!
//! ```text
//! place  0              floor                 end
//!        |    a hole      | lines that are kept |
//! ```
//!
//! A log that has grown past its limit rotates within its file: all but the newer half is given
//! back to the file system, up to the start of a line. Nothing moves, so that nothing is lost of
//! what the unit writes meanwhile, and a *place* means the same for as long as there is the log,
//! to the next daemon, too. Where the file system knows no holes, and where the file would become
//! longer than it may, the log is cut instead: the newer half is read, written over the beginning,
//! and the file is shortened to it. What the unit writes in the instant between is lost.
//!
//! Somebody else may empty the file, or move it so that there is a new one. What is in it then
//! comes after all that was seen before, so that no place means anything else than it did.

mod base_offset;
mod hole;
mod poll_interval;
mod read_lock;
mod rotation_task;
#[cfg(test)]
mod tests;

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use fleet_core::Timestamp;
use tokio::sync::watch;

use self::base_offset::{BaseOffset, is_missing, offset_file};
use self::hole::{BLOCK, LARGEST_BLOCK, data_start, next_line, punch_hole, start_of_line};
pub(crate) use self::read_lock::ReadLock;
use self::read_lock::ReadOffset;
pub(crate) use self::rotation_task::RotationTask;
use super::process::append;
use super::time_index::TimeIndex;
use crate::clock::{as_wall_time, wall_time};

/// How long a file may become, holes and all. File systems have a limit.
const LONGEST: u64 = 1 << 40;

/// The log of one unit.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limit: u64,
    /// Held while the file is cut or read.
    kept: Mutex<LogState>,
    /// Ends with the log, so that those who follow it end too.
    alive: watch::Sender<()>,
}

#[derive(Debug)]
struct LogState {
    origin: BaseOffset,
    /// The first place that is kept.
    floor: u64,
    /// How long the file may become.
    longest: u64,
    time_index: TimeIndex,
    /// Tells the file from one that comes after it.
    inode: u64,
    /// How much room the file took.
    taken: u64,
    /// Whether somebody else has emptied it before.
    was_emptied: bool,
    /// What somebody has to read before it is given up.
    read_offset: Weak<ReadOffset>,
}

impl LogState {
    /// How much may be kept: a short file has no room for as much as the limit says.
    fn room(&self, limit: u64) -> u64 {
        limit.min(self.longest)
    }

    /// Whether more is kept than that.
    fn has_grown(&self, limit: u64) -> bool {
        let end = self.time_index.end();
        end.saturating_sub(self.floor) > limit || end - self.origin.base.min(end) > self.longest
    }

    /// Whether the file takes more room than what is kept: who does not append can write to what
    /// was given up. A block that the hole ends in is kept as a whole.
    fn is_filled(&self, limit: u64) -> bool {
        self.floor > self.origin.base && self.taken > limit.saturating_add(LARGEST_BLOCK)
    }

    /// Remembers what a look at the file tells, and returns the place at which it ends.
    fn on_look(&mut self, path: &Path, file: &Metadata) -> io::Result<u64> {
        let written = as_wall_time(file.modified()?);
        let is_the_same = std::mem::replace(&mut self.inode, file.ino()) == file.ino();
        let known = self.time_index.end();
        let is_shorter = self.origin.base + file.len() < known;
        if !is_the_same || is_shorter {
            self.origin = self.origin.go_on(path, known);
            self.floor = self.origin.base;
        }
        if is_the_same && is_shorter {
            self.warn_emptied(path);
        }
        self.taken = file.blocks().saturating_mul(512);
        let end = self.origin.base + file.len();
        self.time_index.record_look(end, written, wall_time());
        Ok(end)
    }

    /// Tells of it in the log of this program, and once: a unit may do it again and again. It may
    /// not append either, so that what is added to its file would be in the way of what it writes.
    fn warn_emptied(&mut self, path: &Path) {
        if !std::mem::replace(&mut self.was_emptied, true) {
            tracing::warn!(log = %path.display(), "a log was emptied by others, and goes on");
        }
    }

    /// Where in the file begins what has to be kept, where that should be at `from`: not after the
    /// line that somebody has yet to read.
    fn keep_unread(&self, file: &mut File, from: u64) -> io::Result<u64> {
        let read_offset = self.read_offset.upgrade().map(|read_offset| read_offset.place());
        match read_offset.map(|place| place.saturating_sub(self.origin.base)) {
            Some(place) if place < from => start_of_line(file, place),
            _ => Ok(from),
        }
    }

    /// The file is not there: what comes to be in its place is another one, whatever its number.
    fn on_unit_missing(&mut self) {
        self.inode = 0;
    }
}

impl Log {
    /// The log in that file, which is made if it is missing, with its directory.
    pub(crate) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        let written = match append(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(path.parent().ok_or(error)?)?;
                append(&path)?
            }
            written => written?,
        };
        let metadata = written.metadata()?;
        let origin = BaseOffset::of(&path);
        let is_new = metadata.len() == 0;
        let left = if is_new { 0 } else { data_start(&mut File::open(&path)?)? };
        let floor = origin.base + left;
        let (time_index, inode) = (TimeIndex::default(), metadata.ino());
        let read_offset = Weak::new();
        let (longest, taken, was_emptied) = (LONGEST, 0, false);
        let mut kept =
            LogState { origin, floor, longest, time_index, inode, taken, was_emptied, read_offset };
        kept.on_look(&path, &metadata)?;
        Ok(Self { path, limit, kept: Mutex::new(kept), alive: watch::channel(()).0 })
    }

    /// Removes the log in that file, if there is one.
    pub(crate) fn remove(path: &Path) -> io::Result<()> {
        for file in [&offset_file(path), path] {
            std::fs::remove_file(file)
                .or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) })?;
        }
        Ok(())
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
        note(&self.path, words)
    }

    /// From now on its file is kept to half of that, as the kernel kills a process that makes a
    /// file longer than it may: the other half is for what is written until somebody looks. One
    /// that is longer already is cut at once. Nothing is whatever the file system allows.
    pub(crate) fn keep_below(&self, longest: Option<u64>) -> io::Result<()> {
        self.lock().longest = longest.map_or(LONGEST, |longest| (longest / 2).min(LONGEST));
        if longest.is_some() { self.trim() } else { Ok(()) }
    }

    /// How much of it may be there before half of that is given up.
    fn room(&self) -> u64 {
        self.lock().room(self.limit)
    }

    /// The place at which it ends now; a later one of what is written from now on.
    pub(crate) fn end(&self) -> io::Result<u64> {
        let kept = self.lock();
        Ok(kept.origin.base + std::fs::metadata(&self.path)?.len())
    }

    /// The first place of what is kept.
    #[cfg(test)]
    pub(crate) fn floor(&self) -> u64 {
        self.lock().floor
    }

    /// Notes by when what there is was written, and returns the place at which it ends. What is
    /// written later can be told from it.
    pub(crate) fn look(&self) -> io::Result<u64> {
        let mut kept = self.lock();
        let file = std::fs::metadata(&self.path).inspect_err(|_| kept.on_unit_missing())?;
        kept.on_look(&self.path, &file)
    }

    /// Whether it has grown past its limit, as the last look tells.
    pub(crate) fn is_over(&self) -> bool {
        let kept = self.lock();
        kept.has_grown(self.limit) || kept.is_filled(self.limit)
    }

    /// Begins to read all that is written from a place on: until this is dropped, nothing of it is
    /// given up that was not read. One reader at a time may ask for that.
    pub(crate) fn reading(&self, place: u64) -> ReadLock {
        let reading = ReadLock::from(place);
        self.lock().read_offset = reading.read_offset();
        reading
    }

    /// Whether it has grown past its limit, and somebody has yet to read what is to be given up.
    pub(crate) fn is_held(&self) -> bool {
        let kept = self.lock();
        kept.has_grown(self.limit) && kept.read_offset.strong_count() > 0
    }

    /// Looks at the log, and keeps its newer half alone if it has grown past its limit; with what
    /// somebody has yet to read of the older one.
    pub(crate) fn trim(&self) -> io::Result<()> {
        let mut kept = self.lock();
        let metadata = std::fs::metadata(&self.path)?;
        let (end, length) = (kept.on_look(&self.path, &metadata)?, metadata.len());
        let (is_too_long, floor) = (length > kept.longest, kept.floor - kept.origin.base);
        if kept.is_filled(self.limit) {
            punch_hole(&append(&self.path)?, floor)?;
        }
        if end - kept.floor <= self.limit && !is_too_long {
            return Ok(());
        }
        let mut reader = File::open(&self.path)?;
        let room = kept.room(self.limit);
        let from = next_line(&mut reader, length.saturating_sub(room / 2))?;
        let from = kept.keep_unread(&mut reader, from)?.max(floor);
        if from == floor && !is_too_long {
            return Ok(());
        }
        let file = append(&self.path)?;
        if is_too_long || !punch_hole(&file, from)? {
            if length - from > room {
                // There is more to be read than can be moved. Who reads it comes back for the rest.
                return Ok(());
            }
            reader.seek(SeekFrom::Start(from))?;
            // Bounded, for a unit may write faster than this reads.
            let mut half = Vec::new();
            reader.take(room).read_to_end(&mut half)?;
            kept.origin = kept.origin.renew(&self.path, from)?;
            // What is appended meanwhile comes behind all this, and never before what is older.
            File::options().write(true).open(&self.path)?.write_all_at(&half, 0)?;
            file.set_len(half.len() as u64)?;
        }
        kept.floor = end - length + from;
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
        kept.on_look(&self.path, &metadata)?;
        let (base, end) = (kept.origin.base, metadata.len());
        let (mut floor, bound) = (kept.floor - base, self.limit.saturating_mul(2));
        if end - floor > bound {
            // It has grown much since somebody last looked.
            floor = next_line(&mut file, end - bound)?;
        }
        if let Some(since) = since {
            let place = kept.time_index.offset_before(since).saturating_sub(base);
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
        Ok((text.split_off(first), base + end))
    }

    /// What was written from a place on, at most one block of it, and the place that it ends at.
    pub(crate) fn read_from(&self, place: u64) -> io::Result<(Vec<u8>, u64)> {
        let mut kept = self.lock();
        let mut file = File::open(&self.path)?;
        let end = kept.on_look(&self.path, &file.metadata()?)?;
        // What was given back before it was read is skipped: see [`Self::reading`].
        let start = place.max(kept.floor);
        file.seek(SeekFrom::Start(start - kept.origin.base))?;
        let mut text = Vec::new();
        file.take(BLOCK.min(end.saturating_sub(start))).read_to_end(&mut text)?;
        let end = start + text.len() as u64;
        Ok((text, end))
    }

    /// By when which part of it was written.
    pub(crate) fn time_index(&self) -> TimeIndex {
        self.lock().time_index.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a line of the supervisor's own to the log in that file.
fn note(path: &Path, words: &str) -> io::Result<()> {
    append(path)?.write_all(format!("fleet: {words}\n").as_bytes())
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
