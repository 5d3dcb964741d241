//! The log of one unit: a file to which its processes append, kept within a limit.
//!
//! ```text
//! offset  0              floor                 end
//!         |    a hole      | stored lines      |
//! ```
//!
//! A log that exceeds its limit is *rotated* within its file. Everything except the newer half
//! becomes a hole, which ends at the start of a line. Nothing moves, so no concurrent write is
//! lost. A log *offset* keeps its meaning for the lifetime of the log, even if the daemon restarts.
//!
//! The log is *cut* instead if the file system does not support holes, or if the file would exceed
//! its maximum length. A cut copies the newer half to the beginning of the file, and then truncates
//! the file to that half. A write during the cut may be lost.
//!
//! Other programs may truncate the file, or move it so that a new file is created. In both cases
//! the offsets of the new content continue from the last known offset. So no offset changes its
//! meaning.
//!
//! | module | topic |
//! |---|---|
//! | `hole` | holes, and the offset at which a file begins |
//! | `rotation_task` | notices writes, and rotates the logs that exceed their limits |
//! | `journal`, `time_index` | the lines for a client, with cursors; when they were written |
//! | `rate_limit` | the daemon's own messages about recurring errors |
//!
//! Each supervisor has one `rotation_task` for all its logs, beside its event loop. The frontends
//! read a `journal` directly from the log, without the supervisor. A run that waits for a readiness
//! line also reads its log, and rotates it meanwhile.

pub(super) mod journal;
pub(super) mod rate_limit;
pub(super) mod time_index;

mod hole;
mod rotation_task;
#[cfg(test)]
mod tests;

use std::fs::{File, Metadata};
use std::io;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fleet_core::Timestamp;
use tokio::sync::watch;

use crate::clock::{as_wall_time, wall_time};
use crate::files::{create_private_dir, private_file};
use hole::{
    BLOCK, BaseOffset, LARGEST_BLOCK, data_start, is_missing, next_line, offset_file, punch_hole,
    start_of_line,
};
use time_index::TimeIndex;

pub(crate) use self::rotation_task::RotationTask;

/// Maximum length of a log file, including its hole. File systems have such limits too.
const LONGEST: u64 = 1 << 40;

/// The log of one unit.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limit: u64,
    /// Locked while the file is cut or read.
    state: Mutex<LogState>,
    /// Closed when the log is dropped, which ends the journals that follow the log.
    alive: watch::Sender<()>,
}

#[derive(Debug)]
struct LogState {
    base_offset: BaseOffset,
    /// First stored offset.
    floor: u64,
    /// Limit on the length of the file.
    longest: u64,
    time_index: TimeIndex,
    /// Identifies the file.
    inode: u64,
    /// Allocated size of the file.
    allocated: u64,
    /// Whether another program has truncated the file before.
    was_emptied: bool,
    /// Offset of a reader whose unread lines must be kept.
    read_offset: Weak<AtomicU64>,
}

/// Lock on the unread part of a log: nothing after its offset is removed. It has no effect any more
/// once it is dropped.
#[derive(Debug)]
pub(crate) struct ReadLock(Arc<AtomicU64>);

impl ReadLock {
    /// Returns the offset up to which the log has been read.
    pub(crate) fn offset(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Records that everything before this offset has been read.
    pub(crate) fn advance(&self, offset: u64) {
        self.0.store(offset, Ordering::SeqCst);
    }
}

impl LogState {
    /// Whether the log stores more than `limit`, or its file is too long.
    fn has_grown(&self, limit: u64) -> bool {
        let end = self.time_index.end();
        end.saturating_sub(self.floor) > limit
            || end - self.base_offset.base.min(end) > self.longest
    }

    /// Whether the file takes more disk space than its stored part should. This happens if a
    /// process writes into the hole because it does not append. One block more is tolerated,
    /// because the block in which the hole ends stays allocated as a whole.
    fn hole_is_filled(&self, limit: u64) -> bool {
        self.floor > self.base_offset.base && self.allocated > limit.saturating_add(LARGEST_BLOCK)
    }

    /// Records the file's metadata. Returns the end offset.
    fn update(&mut self, path: &Path, file: &Metadata) -> io::Result<u64> {
        let written = as_wall_time(file.modified()?);
        let is_the_same = std::mem::replace(&mut self.inode, file.ino()) == file.ino();
        let known = self.time_index.end();
        let is_shorter = self.base_offset.base + file.len() < known;
        if !is_the_same || is_shorter {
            self.base_offset = self.base_offset.continue_at(path, known);
            self.floor = self.base_offset.base;
        }
        if is_the_same && is_shorter {
            self.warn_emptied(path);
        }
        self.allocated = file.blocks().saturating_mul(512);
        let end = self.base_offset.base + file.len();
        self.time_index.record_check(end, written, wall_time());
        Ok(end)
    }

    /// Warns that another program has truncated the log. Warns only once, because a unit may
    /// truncate its log repeatedly.
    ///
    /// The warning goes to the daemon's own log. If the unit does not append to its log, a warning
    /// there would interfere with the unit's writes.
    fn warn_emptied(&mut self, path: &Path) {
        if !std::mem::replace(&mut self.was_emptied, true) {
            let log = path.display();
            tracing::warn!(%log, "another program has truncated a log: its earlier lines are lost");
        }
    }

    /// Returns the offset in the file from which the content is kept. This is `from`, or the start
    /// of the line that the reader reads next, if that line comes first.
    fn keep_unread(&self, file: &mut File, from: u64) -> io::Result<u64> {
        let read = self.read_offset.upgrade().map(|offset| offset.load(Ordering::SeqCst));
        match read.map(|offset| offset.saturating_sub(self.base_offset.base)) {
            Some(offset) if offset < from => start_of_line(file, offset),
            _ => Ok(from),
        }
    }

    /// Records that the file is missing. The next file at the path counts as a different one, even
    /// if it has the same inode number.
    fn on_file_missing(&mut self) {
        self.inode = 0;
    }
}

impl Log {
    /// Opens the log in this file. Creates the file and its directory if they are missing.
    pub(crate) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        let written = match append(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_private_dir(path.parent().ok_or(error)?)?;
                append(&path)?
            }
            written => written?,
        };
        let metadata = written.metadata()?;
        let base_offset = BaseOffset::of(&path);
        let is_new = metadata.len() == 0;
        let left = if is_new { 0 } else { data_start(&mut File::open(&path)?)? };
        let floor = base_offset.base + left;
        let mut state = LogState {
            base_offset,
            floor,
            longest: LONGEST,
            time_index: TimeIndex::default(),
            inode: metadata.ino(),
            allocated: 0,
            was_emptied: false,
            read_offset: Weak::new(),
        };
        state.update(&path, &metadata)?;
        Ok(Self { path, limit, state: Mutex::new(state), alive: watch::channel(()).0 })
    }

    /// Removes the log in this file, if there is one.
    pub(crate) fn remove(path: &Path) -> io::Result<()> {
        for file in [&offset_file(path), path] {
            std::fs::remove_file(file)
                .or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns a receiver that is closed with the log.
    pub(crate) fn alive(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    /// Appends a message of the supervisor as a line.
    pub(crate) fn note(&self, words: &str) -> io::Result<()> {
        note(&self.path, words)
    }

    /// Ends the last line if it has no newline yet, so that the next output begins a line.
    pub(crate) fn end_line(&self) -> io::Result<()> {
        end_line(&self.path).map(drop)
    }

    /// Keeps the file shorter than half of `longest` from now on. The caller passes the file size
    /// limit of the unit's processes, because the kernel kills a process whose write would exceed
    /// that limit. The other half leaves space for writes until the next check of the file.
    ///
    /// A file that is already too long is cut at once. With `None`, only the limit of the file
    /// system applies.
    pub(crate) fn limit_length(&self, longest: Option<u64>) -> io::Result<()> {
        self.lock().longest = longest.map_or(LONGEST, |longest| (longest / 2).min(LONGEST));
        if longest.is_some() { self.trim() } else { Ok(()) }
    }

    /// Returns the current end offset; later writes have higher ones.
    pub(crate) fn end(&self) -> io::Result<u64> {
        let state = self.lock();
        Ok(state.base_offset.base + std::fs::metadata(&self.path)?.len())
    }

    /// Returns the first stored offset.
    #[cfg(test)]
    pub(crate) fn floor(&self) -> u64 {
        self.lock().floor
    }

    /// Records the current end offset and the time of the last write. Returns the offset. Later
    /// writes have higher offsets.
    pub(crate) fn check(&self) -> io::Result<u64> {
        let mut state = self.lock();
        let file = std::fs::metadata(&self.path).inspect_err(|_| state.on_file_missing())?;
        state.update(&self.path, &file)
    }

    /// Whether the log has grown past its limit, or its hole is filled, as of the last check.
    pub(crate) fn exceeds_limit(&self) -> bool {
        let state = self.lock();
        state.has_grown(self.limit) || state.hole_is_filled(self.limit)
    }

    /// Returns a lock that keeps everything from `offset` on, until it is read or the lock is
    /// dropped. Only one such lock may exist at a time.
    pub(crate) fn read_lock(&self, offset: u64) -> ReadLock {
        let offset = Arc::new(AtomicU64::new(offset));
        self.lock().read_offset = Arc::downgrade(&offset);
        ReadLock(offset)
    }

    /// Returns whether a read lock may keep the log from being rotated. This is so if the log has
    /// grown past its limit, and a reader holds a lock on unread lines.
    pub(crate) fn is_held(&self) -> bool {
        let state = self.lock();
        state.has_grown(self.limit) && state.read_offset.strong_count() > 0
    }

    /// Checks the size of the log. If the log has grown past its limit, drops everything except the
    /// newer half and the part that the reader has not read yet. If its hole is filled, frees it
    /// again.
    pub(crate) fn trim(&self) -> io::Result<()> {
        let mut state = self.lock();
        let metadata = std::fs::metadata(&self.path)?;
        let (end, length) = (state.update(&self.path, &metadata)?, metadata.len());
        let (is_too_long, floor) = (length > state.longest, state.floor - state.base_offset.base);
        if state.hole_is_filled(self.limit) {
            punch_hole(&append(&self.path)?, floor)?;
        }
        if end - state.floor <= self.limit && !is_too_long {
            return Ok(());
        }
        let mut reader = File::open(&self.path)?;
        let capacity = self.limit.min(state.longest);
        let from = next_line(&mut reader, length.saturating_sub(capacity / 2))?;
        let from = state.keep_unread(&mut reader, from)?.max(floor);
        if from == floor && !is_too_long {
            return Ok(());
        }
        let file = append(&self.path)?;
        if is_too_long || !punch_hole(&file, from)? {
            if length - from > capacity {
                // More has to be kept than can be moved. The reader of the rest calls again.
                return Ok(());
            }
            reader.seek(SeekFrom::Start(from))?;
            // Bounded, since a unit may write faster than this reads.
            let mut half = Vec::new();
            reader.take(capacity).read_to_end(&mut half)?;
            state.base_offset = state.base_offset.advance(&self.path, from)?;
            // Concurrent appends go behind all this, so the order of lines is kept.
            File::options().write(true).open(&self.path)?.write_all_at(&half, 0)?;
            file.set_len(half.len() as u64)?;
        }
        state.floor = end - length + from;
        Ok(())
    }

    /// Returns the last `lines` lines and their end offset, or all stored lines if `lines` is
    /// `None`. Leaves out lines that were certainly written before `since`.
    pub(crate) fn tail(
        &self,
        lines: Option<usize>,
        since: Option<Timestamp>,
    ) -> io::Result<(Vec<u8>, u64)> {
        let mut state = self.lock();
        let mut file = File::open(&self.path)?;
        let metadata = file.metadata()?;
        state.update(&self.path, &metadata)?;
        let (base, end) = (state.base_offset.base, metadata.len());
        let (mut floor, bound) = (state.floor - base, self.limit.saturating_mul(2));
        if end - floor > bound {
            // It has grown much since the last check.
            floor = next_line(&mut file, end - bound)?;
        }
        if let Some(since) = since {
            let offset = state.time_index.offset_before(since).saturating_sub(base);
            floor = floor.max(start_of_line(&mut file, offset.min(end))?);
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

    /// Returns the text after `offset`, at most [`BLOCK`] bytes, and the end offset of that text.
    pub(crate) fn read_from(&self, offset: u64) -> io::Result<(Vec<u8>, u64)> {
        let mut state = self.lock();
        let mut file = File::open(&self.path)?;
        let end = state.update(&self.path, &file.metadata()?)?;
        // Skips what was dropped before it was read: see [`Self::read_lock`].
        let start = offset.max(state.floor);
        file.seek(SeekFrom::Start(start - state.base_offset.base))?;
        let mut text = Vec::new();
        file.take(BLOCK.min(end.saturating_sub(start))).read_to_end(&mut text)?;
        let end = start + text.len() as u64;
        Ok((text, end))
    }

    /// Returns whether another program has removed the lines before this offset, by truncating the
    /// file, since the log was opened.
    pub(crate) fn is_truncated_at(&self, offset: u64) -> bool {
        let state = self.lock();
        state.was_emptied && offset <= state.base_offset.base
    }

    /// Returns the index of write times.
    pub(crate) fn time_index(&self) -> TimeIndex {
        self.lock().time_index.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a log in append mode, so that every write goes to the end of the log at that time. If the
/// log is created, only its owner can access it.
pub(crate) fn append(log: &Path) -> io::Result<File> {
    private_file().create(true).append(true).open(log)
}

/// Appends a line of the supervisor to the log in this file.
fn note(path: &Path, words: &str) -> io::Result<()> {
    end_line(path)?.write_all(format!("fleet: {words}\n").as_bytes())
}

/// Opens the log in this file for appending. Appends a newline, unless the file is empty or ends
/// with one.
fn end_line(path: &Path) -> io::Result<File> {
    let mut file = private_file().create(true).read(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Counts the lines that certainly start in `text`. The beginning of `text` does not count, since
/// it may be in the middle of a line.
fn starts_of_lines(text: &[u8]) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    body.iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the index in `text` at which its last `lines` lines start.
fn start_of_last(text: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return text.len();
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = body.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'\n');
    newlines.map(|(at, _)| at + 1).nth(lines - 1).unwrap_or(0)
}
