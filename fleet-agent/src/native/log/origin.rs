//! Which log it is, so that a place in one is not taken for a place in another.
//!
//! A log is the file that it was made as: the number that the file system knows it by, together
//! with the moment at which it was made, for such numbers are given again, though hardly within one
//! tick of its clock. A log that was cut is another one; which, and how much was cut off, is
//! written down beside it before.

use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use crate::whole::write_whole;

/// What tells one log from all others of the machine, and of those that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogId(u128);

/// Where a log comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) id: LogId,
    /// The place of the log at which its file begins.
    pub(super) base: u64,
}

impl Origin {
    /// That of the log in the file of that path.
    pub(super) fn of(path: &Path, file: &Metadata) -> io::Result<Self> {
        let new = Self { id: LogId::of(file), base: 0 };
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
        let renewed = Self { id: LogId::random(), base: self.base + cut };
        write_whole(&beside(path), format!("{} {}\n", renewed.id, renewed.base).as_bytes(), false)?;
        Ok(renewed)
    }
}

impl FromStr for Origin {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let (id, base) = text.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { id: id.parse()?, base: base.parse().map_err(io::Error::other)? })
    }
}

impl LogId {
    fn of(file: &Metadata) -> Self {
        let born = file.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        // Where nobody knows, not even the next daemon must take it for the same one.
        let Some(born) = born else { return Self::random() };
        Self(u128::from(file.ino()) << 64 | born.as_nanos() & u128::from(u64::MAX))
    }

    fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes to every process");
        Self(u128::from_ne_bytes(bytes))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

impl FromStr for LogId {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        u128::from_str_radix(text, 16).map(Self).map_err(io::Error::other)
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
    use std::fs::File;

    use super::*;

    #[test]
    fn another_file_of_the_same_name_is_another_log() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("log");
        let make = || File::create(&path)?.metadata().and_then(|file| Origin::of(&path, &file));
        let first = make().expect("it is made");
        assert_eq!(make().expect("it is there"), first);
        std::fs::rename(&path, directory.path().join("aside")).expect("it is there");
        assert_ne!(make().expect("it is made"), first);
    }

    #[test]
    fn what_was_cut_off_is_remembered() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("log");
        std::fs::write(&path, "what is left").expect("it is made");
        let file = std::fs::metadata(&path).expect("it is there");
        let first = Origin::of(&path, &file).expect("it is there");
        let second = first.renew(&path, 5).and_then(|it| it.renew(&path, 7)).expect("written");
        assert!(second.id != first.id && second.base == 12);
        assert_eq!(Origin::of(&path, &file).expect("it is there"), second);
        let id: LogId = second.id.to_string().parse().expect("it can be read");
        assert_eq!(id, second.id);
    }
}
