//! Where a log begins, so that a place means the same after it was cut: how much was cut off is
//! written down beside it before.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::whole::write_whole;

/// Where a log comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// The place of the log at which its file begins.
    pub(super) base: u64,
}

impl Origin {
    /// That of the log in the file of that path.
    pub(super) fn of(path: &Path, file: &Metadata) -> io::Result<Self> {
        let new = Self { base: 0 };
        if file.len() == 0 {
            // Something is left of one that was cut.
            return Ok(new);
        }
        match std::fs::read_to_string(beside(path)) {
            Ok(text) => text.trim_end().parse(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(new),
            Err(error) => Err(error),
        }
    }

    /// What it is once so much of the file is cut off. It is written down, so the cut may follow.
    pub(super) fn renew(self, path: &Path, cut: u64) -> io::Result<Self> {
        let renewed = Self { base: self.base + cut };
        write_whole(&beside(path), format!("{}\n", renewed.base).as_bytes(), false)?;
        Ok(renewed)
    }
}

impl FromStr for Origin {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        Ok(Self { base: text.parse().map_err(io::Error::other)? })
    }
}

/// Where it is written down of a log that it was cut. No log has such a name.
pub(super) fn beside(path: &Path) -> PathBuf {
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
        let file = std::fs::metadata(&path).expect("it is there");
        let first = Origin::of(&path, &file).expect("it is there");
        let second = first.renew(&path, 5).and_then(|it| it.renew(&path, 7)).expect("written");
        assert_eq!(second.base, 12);
        assert_eq!(Origin::of(&path, &file).expect("it is there"), second);
    }
}
