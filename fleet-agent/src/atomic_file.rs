//! Atomic replacement of files.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::private_file::{FILE_MODE, private_file};

/// Replaces or creates a file atomically: a process that crashes leaves either the old or the new
/// content. If `sync` is set, the same holds for a crash of the machine, and the new content is
/// durable once this returns. Only the owner can access the file.
///
/// # Errors
///
/// The file cannot be written. The previous content then stays.
pub fn write_atomic(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    write_atomic_with_mode(path, bytes, sync, FILE_MODE)
}

/// Like [`write_atomic`], but creates the file with this mode, from which the umask can only remove
/// bits.
pub(crate) fn write_atomic_with_mode(
    path: &Path,
    bytes: &[u8],
    sync: bool,
    mode: u32,
) -> io::Result<()> {
    // Appended to the full name: `a.service` and `a.timer` may be written at the same time.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let mut options = private_file();
    let mut file = options.mode(mode).write(true).create(true).truncate(true).open(&aside)?;
    file.write_all(bytes)?;
    if sync {
        file.sync_data()?;
    }
    drop(file);
    std::fs::rename(&aside, path)?;
    match path.parent() {
        Some(directory) if sync => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn new_file_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = directory.path().join("a");
        write_atomic(&path, b"1", false).unwrap();
        assert_eq!(mode(&path), 0o600);
        write_atomic_with_mode(&path, b"1", false, 0o644).unwrap();
        assert_eq!(mode(&path) & !0o044, 0o600, "the umask may remove bits");
    }

    #[test]
    fn names_with_equal_stem_do_not_collide() {
        let directory = tempfile::tempdir().unwrap();
        // If the extension were replaced instead, this would be the temporary file of the other
        // one.
        std::fs::create_dir(directory.path().join("a.new")).unwrap();
        for (name, bytes) in [("a.service", b"1"), ("a.service", b"2"), ("a.timer", b"3")] {
            write_atomic(&directory.path().join(name), bytes, name == "a.timer").unwrap();
            assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), bytes);
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 3, "nothing is left aside");
    }
}
