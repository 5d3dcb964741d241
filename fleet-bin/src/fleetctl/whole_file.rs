//! A file that is there as a whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file in the making. It gets its name when it is complete and on the disk; until then, what was
/// under that name stays. Only its owner may read it.
pub(crate) struct WholeFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl WholeFile {
    /// Begins a file for that path.
    ///
    /// # Errors
    ///
    /// What is there is no file that could be replaced, such as a directory or a device; or the
    /// folder cannot be written.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        // What a link leads to is replaced, and not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Ok(there) = path.metadata()
            && !there.is_file()
        {
            let text = match there.is_dir() {
                true => "it is a directory: name a file in it",
                false => "it is no ordinary file: redirect standard output to it instead",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A folder that is not there is told without the name of a temporary file in it.
        folder(&path).metadata()?;
        let file = tempfile::Builder::new().prefix(".fleet-export-").tempfile_in(folder(&path))?;
        Ok(Self { path, file })
    }

    /// Adds bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name.
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
    fn a_file_is_there_as_a_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export");
        std::fs::write(&path, "before").unwrap();
        let mut file = WholeFile::begin(&path).unwrap();
        file.write(b"ha").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        let mut file = WholeFile::begin(&path).unwrap();
        file.write(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "something was left behind");
    }

    #[test]
    fn an_error_does_not_name_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = WholeFile::begin(&folder.path().join("none/export")).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(WholeFile::begin(folder.path()).is_err());
        assert!(WholeFile::begin(Path::new("/dev/null")).is_err());
    }
}
