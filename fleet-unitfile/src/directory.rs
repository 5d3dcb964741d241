//! Reading of unit directories.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::file::UnitFile;
use crate::tree::{UnitEntry, UnitTree, absolute};

/// Suffixes of the directories in a unit directory that systemd reads.
const COMPANIONS: [&str; 4] = [".d", ".wants", ".requires", ".upholds"];

impl UnitTree {
    /// Reads all files and links in the unit directories below `root`, which is `/` for those of this
    /// machine. Needs the feature `fs`.
    ///
    /// `directories` are the unit directories, in order of precedence; see
    /// [`UNIT_DIRECTORIES`](crate::UNIT_DIRECTORIES). Directories that do not exist, files that
    /// disappear meanwhile, and names that are not UTF-8 are skipped. Links are resolved below
    /// `root`. Invalid lines of files are skipped, like in
    /// [`parse_collecting`](UnitFile::parse_collecting).
    ///
    /// # Errors
    ///
    /// Returns an error with the path of the first file or directory that cannot be read.
    pub fn read(root: impl AsRef<Path>, directories: &[&str]) -> io::Result<Self> {
        let mut entries = Entries { root: root.as_ref(), found: BTreeMap::new() };
        for directory in directories {
            let directory = directory.trim_end_matches('/');
            for name in entries.add_all(directory)? {
                if COMPANIONS.iter().any(|suffix| name.ends_with(suffix)) {
                    entries.add_all(&format!("{directory}/{name}"))?;
                }
            }
        }
        entries.add_targets()?;
        Ok(Self::new(directories, entries.found))
    }
}

/// The entries that were read so far, by their path below the root.
struct Entries<'a> {
    root: &'a Path,
    found: BTreeMap<String, UnitEntry>,
}

impl Entries<'_> {
    /// Reads the files and links of a directory. Returns the names of the directories in it.
    #[expect(clippy::disallowed_methods, reason = "the feature reads files")]
    fn add_all(&mut self, directory: &str) -> io::Result<Vec<String>> {
        let place = self.root.join(directory.trim_start_matches('/'));
        let Some(entries) = existing(fs::read_dir(&place), &place)? else { return Ok(Vec::new()) };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.path().is_dir() {
                folders.push(name);
            } else {
                self.add(format!("{directory}/{name}"))?;
            }
        }
        Ok(folders)
    }

    /// Reads a file or link.
    #[expect(clippy::disallowed_methods, reason = "the feature reads files")]
    fn add(&mut self, path: String) -> io::Result<()> {
        let place = self.root.join(path.trim_start_matches('/'));
        let Some(kind) = existing(fs::symlink_metadata(&place), &place)? else { return Ok(()) };
        let entry = if kind.is_symlink() {
            let target = existing(fs::read_link(&place), &place)?;
            target.and_then(|it| it.into_os_string().into_string().ok()).map(UnitEntry::Link)
        } else if kind.is_file() {
            let source = existing(fs::read(&place), &place)?;
            source.map(|source| UnitEntry::File(UnitFile::parse_collecting(source).0))
        } else {
            None
        };
        self.found.extend(entry.map(|entry| (path, entry)));
        Ok(())
    }

    /// Reads the targets of links to places outside of the directories.
    fn add_targets(&mut self) -> io::Result<()> {
        const MAX_LINKS: usize = 40;
        for _ in 0..MAX_LINKS {
            let targets = self.found.iter().filter_map(|(path, entry)| match entry {
                UnitEntry::Link(target) => Some(absolute(path, target)),
                UnitEntry::File(_) => None,
            });
            let is_new = |path: &String| path != "/dev/null" && !self.found.contains_key(path);
            let targets: Vec<String> = targets.filter(is_new).collect();
            let before = self.found.len();
            targets.into_iter().try_for_each(|path| self.add(path))?;
            if self.found.len() == before {
                break;
            }
        }
        Ok(())
    }
}

/// Returns `None` for a place that does not exist, and adds the place to other errors.
fn existing<T>(result: io::Result<T>, place: &Path) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", place.display()))),
    }
}
