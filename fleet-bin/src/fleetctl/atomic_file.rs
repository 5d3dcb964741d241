//! Atomic replacement of files.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A temporary file that gets its final name once it is complete and synced. Until then, an
/// existing file of that name is unchanged. Only the owner can read the new file.
pub(crate) struct AtomicFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl AtomicFile {
    /// Creates a temporary file next to `path`.
    ///
    /// # Errors
    ///
    /// `path` is a directory or a device, or its parent directory is missing or not writable.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        // A symbolic link stays; its target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Ok(existing) = path.metadata()
            && !existing.is_file()
        {
            let text = match existing.is_dir() {
                true => "it is a directory: give a file in it",
                false => "not a regular file: redirect standard output to it instead",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A missing folder is reported without the name of the temporary file.
        folder(&path).metadata()?;
        let file = tempfile::Builder::new().prefix(".fleet-export-").tempfile_in(folder(&path))?;
        Ok(Self { path, file })
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Syncs the file, and moves it to its final name.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path)?;
        File::open(folder(&self.path))?.sync_all()
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_file_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export");
        std::fs::write(&path, "before").unwrap();
        let mut file = AtomicFile::begin(&path).unwrap();
        file.write(b"ha").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        let mut file = AtomicFile::begin(&path).unwrap();
        file.write(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "something was left behind");
    }

    #[test]
    fn missing_folder_error_hides_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = AtomicFile::begin(&folder.path().join("none/export")).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    }

    #[test]
    fn folders_and_devices_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(AtomicFile::begin(folder.path()).is_err());
        assert!(AtomicFile::begin(Path::new("/dev/null")).is_err());
    }
}
