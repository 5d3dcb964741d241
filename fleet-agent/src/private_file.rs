//! Files and directories of the daemon, with modes that do not depend on the umask.
//!
//! Unit files, logs and states may contain secrets, and a token proves a machine's identity.
//! Therefore, only the owner can access them. A umask can restrict these modes further.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Mode of a file that only its owner can access.
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
