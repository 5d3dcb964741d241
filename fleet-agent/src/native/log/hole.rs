//! Holes in log files, and the base offset of a log: the log offset at which its file begins.
//!
//! Before each cut, the new base offset is stored in a second file, so that log offsets keep their
//! meaning.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::files::write_atomic;

/// Limit on the size of a single read.
pub(super) const BLOCK: u64 = 64 * 1024;

/// Largest block size of file systems.
pub(super) const LARGEST_BLOCK: u64 = 16 << 20;

/// Turns everything before the offset `before` into a hole. Returns `false` if the file system does
/// not support holes.
///
/// Processes that append to the file are not affected, because no content moves and the file keeps
/// its length.
pub(super) fn punch_hole(file: &File, before: u64) -> io::Result<bool> {
    // From the start: a block that an earlier hole covered partly is freed too.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, 0, before) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        given => Ok(given.map(|()| true)?),
    }
}

/// Returns the end of the hole at the start of a file.
pub(super) fn data_start(file: &mut File) -> io::Result<u64> {
    let start = match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(0)) {
        // The file is one hole, or empty.
        Err(Errno::NXIO) => return Ok(file.metadata()?.len()),
        // Without support for seeking holes there are none.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(0),
        start => start?,
    };
    // A hole that ends within a block continues as zeros.
    file.seek(SeekFrom::Start(start))?;
    let (mut zeros, mut block) = (0, Vec::new());
    while zeros < LARGEST_BLOCK {
        block.clear();
        let read = file.take(BLOCK).read_to_end(&mut block)?;
        if let Some(first) = block.iter().position(|&byte| byte != 0) {
            return Ok(start + zeros + first as u64);
        }
        zeros += read as u64;
        if read == 0 {
            break;
        }
    }
    Ok(start + zeros)
}

/// Returns the start of the first line after `offset`. If no line ends in the [`BLOCK`] bytes after
/// `offset`, returns `offset` itself.
pub(super) fn next_line(file: &mut File, offset: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    let mut block = Vec::new();
    file.take(BLOCK).read_to_end(&mut block)?;
    let newline = block.iter().position(|&byte| byte == b'\n');
    Ok(offset + newline.map_or(0, |newline| newline as u64 + 1))
}

/// Returns the start of the line that contains `offset`. If that line starts more than [`BLOCK`]
/// bytes before `offset`, returns a position within the line.
pub(super) fn start_of_line(file: &mut File, offset: u64) -> io::Result<u64> {
    let start = offset.saturating_sub(BLOCK);
    file.seek(SeekFrom::Start(start))?;
    let mut block = Vec::new();
    file.take(offset - start).read_to_end(&mut block)?;
    let newline = block.iter().rposition(|&byte| byte == b'\n');
    Ok(start + newline.map_or(0, |newline| newline as u64 + 1))
}

/// Base offset of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BaseOffset {
    /// Log offset at which the file begins.
    pub(super) base: u64,
}

impl BaseOffset {
    /// Reads the base offset of the log in this file. Returns 0 if none is stored, or if it cannot
    /// be read.
    pub(super) fn of(path: &Path) -> Self {
        let written = std::fs::read_to_string(offset_file(path));
        let base = written.and_then(|text| text.trim_end().parse().map_err(io::Error::other));
        let base = base.unwrap_or_else(|error| {
            if !is_missing(&error) {
                // The unit is worth more than the offsets of its lines.
                let file = offset_file(path);
                tracing::warn!(
                    %error,
                    file = %file.display(),
                    "cannot read how much of a log was discarded: clients that resume reading \
                     might get lines twice"
                );
            }
            0
        });
        Self { base }
    }

    /// Returns the base offset after a cut of `cut` bytes. The new offset is already stored when
    /// this returns, so the caller may cut the file next.
    ///
    /// There is one exception: if the name of the log is too long for a second file, the offset is
    /// not stored. The next daemon then counts log offsets from zero.
    pub(super) fn advance(self, path: &Path, cut: u64) -> io::Result<Self> {
        let renewed = Self { base: self.base + cut };
        match write_atomic(&offset_file(path), format!("{}\n", renewed.base).as_bytes(), false) {
            // The file name may be too long; the next daemon counts from zero then.
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(renewed),
            written => written.map(|()| renewed),
        }
    }

    /// Returns the base offset after another program has truncated or replaced the file. The new
    /// content begins at `end`, the last known end offset.
    pub(super) fn continue_at(self, path: &Path, end: u64) -> Self {
        let next = Self { base: end.max(self.base) };
        match self.advance(path, next.base - self.base) {
            Ok(renewed) => renewed,
            Err(error) => {
                let file = offset_file(path);
                tracing::warn!(
                    %error,
                    file = %file.display(),
                    "cannot save how much of a log was discarded: after this program restarts, \
                     clients that resume reading might get lines twice"
                );
                next
            }
        }
    }
}

/// Whether a file does not exist, or cannot exist with its name.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename)
}

/// Returns the path of the stored offset. No log has such a name.
pub(super) fn offset_file(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".cut");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn data_starts_at_end_of_hole() {
        let mut file = tempfile::tempfile().expect("it can be created");
        assert_eq!(data_start(&mut file).expect("it can be read"), 0);
        file.write_all(&b"0123456\n".repeat(2000)).expect("it can be written");
        assert_eq!(data_start(&mut file).expect("it can be read"), 0);
        for offset in [8, 4096, 8000, 8000, 12_296, 16_000] {
            if !punch_hole(&file, offset).expect("it can be done") {
                return;
            }
            assert_eq!(data_start(&mut file).expect("it can be read"), offset);
            assert_eq!(file.metadata().expect("it is there").len(), 16_000);
        }
    }

    #[test]
    fn zeros_after_hole_are_skipped() {
        let mut file = tempfile::tempfile().expect("it can be created");
        for (zeros, offset) in [(128 << 10, 128 << 10), (0, 128 << 10)] {
            file.write_all(&vec![0; zeros]).and_then(|()| file.write_all(b"one\n")).expect("room");
            assert_eq!(data_start(&mut file).expect("it can be read"), offset);
        }
        let mut zeros = tempfile::tempfile().expect("it can be created");
        zeros.write_all(&[0; 100]).expect("there is room");
        assert_eq!(data_start(&mut zeros).expect("it can be read"), 100);
    }

    #[test]
    fn line_boundaries_around_an_offset() {
        let mut file = tempfile::tempfile().expect("it can be created");
        file.write_all(b"one\ntwo\nthree").expect("it can be written");
        for (offset, start, next) in [(0, 0, 4), (3, 0, 4), (4, 4, 8), (6, 4, 8), (9, 8, 9)] {
            assert_eq!(start_of_line(&mut file, offset).expect("it is read"), start, "{offset}");
            assert_eq!(next_line(&mut file, offset).expect("it is read"), next, "{offset}");
        }
    }

    #[test]
    fn base_offset_is_stored() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("log");
        std::fs::write(&path, "content").expect("it is created");
        let first = BaseOffset::of(&path);
        let second = first.advance(&path, 5).and_then(|it| it.advance(&path, 7)).expect("written");
        assert_eq!(second.base, 12);
        assert_eq!(BaseOffset::of(&path), second);
        for bad in [&b""[..], b"x\n", b"-1\n", b"\xff\n"] {
            std::fs::write(offset_file(&path), bad).expect("it is written");
            assert_eq!(BaseOffset::of(&path), first, "{bad:?} is ignored");
        }
    }
}
