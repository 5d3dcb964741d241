//! Files of the daemon: atomic replacement, and modes that do not depend on the umask.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

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

/// Mode of a file that only its owner can access.
///
/// Unit files, logs and states may contain secrets, and a token proves a machine's identity.
/// Therefore, only the owner can access them. A umask can restrict these modes further.
pub(crate) const FILE_MODE: u32 = 0o600;

/// Mode of a directory that only its owner can access.
const DIRECTORY_MODE: u32 = 0o700;

/// Mode of the directories above a private one.
const PARENT_MODE: u32 = 0o755;

/// Returns options to open a file. If the file is created, only its owner can access it.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates a directory that only its owner can access. Creates missing parents with mode 0755. The
/// directory may exist; its mode then stays as it is.
///
/// # Errors
///
/// The directory cannot be created.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    create_dir_with_mode(path, DIRECTORY_MODE)
}

/// Creates a directory with a mode, from which the umask can only remove bits. Creates missing
/// parents with mode 0755. The directory may exist; its mode then stays as it is.
///
/// # Errors
///
/// The directory cannot be created.
pub fn create_dir_with_mode(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(PARENT_MODE).create(parent)?;
    }
    // A recursive builder accepts an existing directory, but no other existing file.
    DirBuilder::new().recursive(true).mode(mode).create(path)
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

    #[test]
    fn new_directory_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (parent, path) = (directory.path().join("a"), directory.path().join("a/b"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_private_dir(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&parent) & 0o022, 0, "other users cannot replace it");
        create_dir_with_mode(&path, 0o750).unwrap();
        assert_eq!(mode(&path), 0o700, "an existing directory keeps its mode");
        std::fs::write(directory.path().join("file"), "").unwrap();
        assert!(create_private_dir(&directory.path().join("file")).is_err());
    }
}
