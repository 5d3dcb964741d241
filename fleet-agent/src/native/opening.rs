//! Files that others name, opened so that none of them keeps anybody waiting.
//!
//! A pipe that nobody has open at its other end is waited for, a device may be, and what has no end
//! is read for ever: in a unit file such a name is to harm its unit alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Opens a file so, for somebody who then waits for it as usual.
///
/// # Errors
///
/// As of any open; that nobody reads from a pipe that is to be written to is one, too.
pub(crate) fn open_at_once(mut how: OpenOptions, path: &Path) -> io::Result<File> {
    let file = how.custom_flags(flags()).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Reads a text of at most so many bytes from a regular file.
///
/// # Errors
///
/// It is longer, or is none.
pub(crate) fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(flags()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    // What the kernel makes up is a regular file, too, and has no length before it is read.
    if file.take(longest + 1).read_to_string(&mut text)? as u64 > longest {
        return Err(io::Error::other(format!("it is longer than {longest} bytes")));
    }
    Ok(text)
}

fn flags() -> i32 {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    i32::try_from(flags.bits()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_keeps_nobody_waiting() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be made");
        read_text(&path, 100).expect_err("it is no file");
        let how = || OpenOptions::new().write(true).clone();
        open_at_once(how(), &path).expect_err("nobody reads from it");
        let mut reader = OpenOptions::new();
        let mut reader = reader.read(true).custom_flags(flags()).open(&path).expect("at once");
        let mut writer = open_at_once(how(), &path).expect("somebody reads");
        assert!(!fcntl_getfl(&writer).expect("it has flags").contains(OFlags::NONBLOCK));
        writer.write_all(b"said").expect("it can be written to");
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("it can be read");
        assert_eq!(said, "said");
    }

    #[test]
    fn what_has_no_end_is_not_read_for_ever() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("text");
        std::fs::write(&path, "four").expect("it can be written");
        assert_eq!(read_text(&path, 4).expect("it is as long as it may be"), "four");
        read_text(&path, 3).expect_err("it is longer");
        read_text(Path::new("/dev/zero"), 3).expect_err("it is no file");
    }
}
