//! The base offset of a log, which is the log offset at which its file begins. Before each cut, the
//! new base offset is stored in a second file, so that log offsets keep their meaning.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::atomic_file::write_atomic;

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
        let new = Self { base: 0 };
        let written = std::fs::read_to_string(offset_file(path));
        written.and_then(|text| text.trim_end().parse()).unwrap_or_else(|error| {
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
            new
        })
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
}

impl BaseOffset {
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

impl FromStr for BaseOffset {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        Ok(Self { base: text.parse().map_err(io::Error::other)? })
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
    use super::*;

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
