//! Where a log begins, so that a place means the same after it was cut: how much was cut off is
//! written down beside it before.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::atomic_file::write_atomic;

/// Where a log comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BaseOffset {
    /// The place of the log at which its file begins.
    pub(super) base: u64,
}

impl BaseOffset {
    /// That of the log in the file of that path.
    pub(super) fn of(path: &Path) -> Self {
        let new = Self { base: 0 };
        let written = std::fs::read_to_string(offset_file(path));
        written.and_then(|text| text.trim_end().parse()).unwrap_or_else(|error| {
            if !is_missing(&error) {
                // The unit is worth more than the places of its lines.
                let log = path.display();
                tracing::warn!(%error, %log, "its places begin anew: its origin cannot be read");
            }
            new
        })
    }

    /// What it is once so much of the file is cut off. It is written down, so the cut may follow.
    pub(super) fn renew(self, path: &Path, cut: u64) -> io::Result<Self> {
        let renewed = Self { base: self.base + cut };
        match write_atomic(&offset_file(path), format!("{}\n", renewed.base).as_bytes(), false) {
            // A name that is too long beside another: the next daemon counts anew.
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(renewed),
            written => written.map(|()| renewed),
        }
    }
}

impl BaseOffset {
    /// What it is once the file has been emptied or replaced by somebody else, where that place was
    /// the last one that was seen.
    pub(super) fn go_on(self, path: &Path, end: u64) -> Self {
        let next = Self { base: end.max(self.base) };
        match self.renew(path, next.base - self.base) {
            Ok(renewed) => renewed,
            Err(error) => {
                let log = path.display();
                tracing::warn!(%error, %log, "the next daemon may count its places anew");
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

/// Whether nothing is, or can ever be, in a file: it is not there, or no file can have its name.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename)
}

/// Where it is written down of a log that it was cut. No log has such a name.
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
    fn what_was_cut_off_is_remembered() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("log");
        std::fs::write(&path, "what is left").expect("it is made");
        let first = BaseOffset::of(&path);
        let second = first.renew(&path, 5).and_then(|it| it.renew(&path, 7)).expect("written");
        assert_eq!(second.base, 12);
        assert_eq!(BaseOffset::of(&path), second);
        for bad in [&b""[..], b"x\n", b"-1\n", b"\xff\n"] {
            std::fs::write(offset_file(&path), bad).expect("it is written");
            assert_eq!(BaseOffset::of(&path), first, "{bad:?} is passed over");
        }
    }
}
