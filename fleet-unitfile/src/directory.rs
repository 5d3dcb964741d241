//! Walks over unit directories; the caller reads them.

use std::collections::BTreeMap;

use crate::file::UnitFile;
use crate::tree::{UnitEntry, UnitTree, absolute};

/// Suffixes of the directories in a unit directory that systemd reads.
const COMPANIONS: [&str; 4] = [".d", ".wants", ".requires", ".upholds"];

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory with entries of these names.
    Directory(Vec<String>),
    /// A file with this content.
    File(Vec<u8>),
    /// A link to this path.
    Link(String),
    /// Nothing, or nothing that systemd reads.
    Nothing,
}

impl UnitTree {
    /// Creates a tree from all files and links in the unit directories, which `look` reads.
    ///
    /// `directories` are the unit directories, in order of precedence; see
    /// [`UNIT_DIRECTORIES`](crate::UNIT_DIRECTORIES). `look` gets an absolute path, and returns
    /// what stands there without following a link. It is called for each directory, for the
    /// directories of drop-ins and dependencies in it, for the entries of all of these, and for
    /// targets of links outside of them. Invalid lines of files are skipped, like in
    /// [`parse_collecting`](UnitFile::parse_collecting).
    ///
    /// # Errors
    ///
    /// Returns the first error of `look`.
    pub fn gather<E>(
        directories: &[&str],
        look: impl FnMut(&str) -> Result<Place, E>,
    ) -> Result<Self, E> {
        let mut walk = Walk { look, found: BTreeMap::new() };
        for directory in directories {
            let directory = directory.trim_end_matches('/');
            for name in walk.add_all(directory)? {
                if COMPANIONS.iter().any(|suffix| name.ends_with(suffix)) {
                    walk.add_all(&format!("{directory}/{name}"))?;
                }
            }
        }
        walk.add_targets()?;
        Ok(Self::new(directories, walk.found))
    }
}

/// The entries that were read so far, by their path.
struct Walk<L> {
    look: L,
    found: BTreeMap<String, UnitEntry>,
}

impl<E, L: FnMut(&str) -> Result<Place, E>> Walk<L> {
    /// Reads the files and links of a directory. Returns the names of the directories in it.
    fn add_all(&mut self, directory: &str) -> Result<Vec<String>, E> {
        let Place::Directory(names) = (self.look)(directory)? else { return Ok(Vec::new()) };
        let mut folders = Vec::new();
        for name in names {
            if self.add(format!("{directory}/{name}"))? {
                folders.push(name);
            }
        }
        Ok(folders)
    }

    /// Reads a file or link. Returns `true` if it is a directory.
    fn add(&mut self, path: String) -> Result<bool, E> {
        let entry = match (self.look)(&path)? {
            Place::Directory(_) => return Ok(true),
            Place::File(source) => UnitEntry::File(UnitFile::parse_collecting(source).0),
            Place::Link(target) => UnitEntry::Link(target),
            Place::Nothing => return Ok(false),
        };
        self.found.insert(path, entry);
        Ok(false)
    }

    /// Reads the targets of links to places outside of the directories.
    fn add_targets(&mut self) -> Result<(), E> {
        const MAX_LINKS: usize = 40;
        for _ in 0..MAX_LINKS {
            let targets = self.found.iter().filter_map(|(path, entry)| match entry {
                UnitEntry::Link(target) => Some(absolute(path, target)),
                UnitEntry::File(_) => None,
            });
            let is_new = |path: &String| path != "/dev/null" && !self.found.contains_key(path);
            let targets: Vec<String> = targets.filter(is_new).collect();
            let before = self.found.len();
            for path in targets {
                self.add(path)?;
            }
            if self.found.len() == before {
                break;
            }
        }
        Ok(())
    }
}
