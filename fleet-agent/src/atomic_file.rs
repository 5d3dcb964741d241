//! Atomic replacement of files.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces or creates a file atomically: a process that crashes leaves either the old or the new
/// content. If `sync` is set, the same holds for a crash of the machine, and the new content is
/// durable once this returns.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    // Appended to the full name: `a.service` and `a.timer` may be written at the same time.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let mut file = File::create(&aside)?;
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
    use super::*;

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
