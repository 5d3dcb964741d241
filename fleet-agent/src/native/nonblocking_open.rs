//! Files that others name, opened so that none of them keeps anybody waiting.
//!
//! A pipe that nobody has open at its other end is waited for, a device may be, and what has no end
//! is read for ever: in a unit file such a name is to harm its unit alone.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Opens a file so, for somebody who then waits for it as usual.
///
/// # Errors
///
/// As of any open; that nobody reads from a pipe that is to be written to is one, too.
pub(crate) fn open_nonblocking(mut how: OpenOptions, path: &Path) -> io::Result<File> {
    let file = how.custom_flags(flags()).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a file so, to write to it, or makes it with those permissions where there is none,
/// whatever our own mask takes away.
///
/// # Errors
///
/// As of any open.
pub(crate) fn open_or_create(mut how: OpenOptions, path: &Path, mode: u32) -> io::Result<File> {
    let mut anew = how.clone();
    match open_nonblocking(anew.create_new(true).mode(mode).clone(), path) {
        // A link to where nothing is yet is there, too, and what it names is made.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_nonblocking(how.create(true).mode(mode).clone(), path)
        }
        made => {
            let made = made?;
            if made.metadata()?.permissions().mode() & 0o777 != mode {
                // File systems without permissions refuse it.
                drop(made.set_permissions(Permissions::from_mode(mode)));
            }
            Ok(made)
        }
    }
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
        open_nonblocking(how(), &path).expect_err("nobody reads from it");
        let mut reader = OpenOptions::new();
        let mut reader = reader.read(true).custom_flags(flags()).open(&path).expect("at once");
        let mut writer = open_nonblocking(how(), &path).expect("somebody reads");
        assert!(!fcntl_getfl(&writer).expect("it has flags").contains(OFlags::NONBLOCK));
        writer.write_all(b"said").expect("it can be written to");
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("it can be read");
        assert_eq!(said, "said");
    }

    #[test]
    fn a_file_is_made_with_its_permissions_whatever_the_mask_of_who_makes_it() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| home.path().join(name);
        let how = || OpenOptions::new().append(true).clone();
        let mode = |file: File| file.metadata().expect("it is open").permissions().mode() & 0o777;
        for made in [0o666, 0o600, 0o640] {
            let name = path(&made.to_string());
            assert_eq!(mode(open_or_create(how(), &name, made).expect("it is made")), made);
            // It has them from then on, whoever writes to it.
            assert_eq!(mode(open_or_create(how(), &name, 0o622).expect("it is there")), made);
        }
        std::os::unix::fs::symlink(path("new"), path("link")).expect("it can be made");
        open_or_create(how(), &path("link"), 0o600).expect("what it names is made");
        assert_eq!(mode(File::open(path("new")).expect("it is there")), 0o600);
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
