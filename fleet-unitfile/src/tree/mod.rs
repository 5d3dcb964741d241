//! Unit directories: their files and links, and the units that these define.

pub(crate) mod aliases;
pub(crate) mod merge;

use std::collections::{BTreeMap, BTreeSet};

use crate::file::UnitFile;
use crate::name::UnitName;
use crate::tree::aliases::{Aliases, instance_for};
use crate::tree::merge::directories_with;

pub use crate::tree::merge::{
    DependencyKind, ImpliedDependency, MergedOption, MergedUnit, UNIT_DIRECTORIES, UnitPart,
    drop_in_directories,
};

/// An entry of a unit directory: a file or a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitEntry {
    /// A file with this content. An empty file masks the unit, drop-in or dependency with its name.
    File(UnitFile),
    /// A link to this path, which may be relative to the link's directory. A link to `/dev/null`
    /// masks the unit, drop-in or dependency with its name.
    Link(String),
}

impl From<UnitFile> for UnitEntry {
    fn from(file: UnitFile) -> Self {
        Self::File(file)
    }
}

/// All files and links in the unit directories, from which units are merged.
///
/// The caller reads the files and links. This type resolves them by their paths alone, as systemd
/// does:
///
/// - **Unit file:** A unit is read from the file with its name, in the first directory that has
///   such a file. If no directory has one, an instance is read from the file of its template.
/// - **Aliases:** A link to a unit makes the name of the link an alias of that unit. The link may
///   lead to the same unit directory or to another one. Like systemd, this type ignores the link if
///   the two names cannot be aliases, for example because their types differ. A unit has the
///   drop-ins and dependencies of all its names.
/// - **Other links:** A link to a file outside the directories stands for that file.
/// - **Masks:** An empty file, or a link to `/dev/null`, masks a unit, drop-in or dependency. A
///   masked unit cannot be started. A masked drop-in or dependency has no effect, even if later
///   directories contain a file with its name.
/// - **Drop-ins:** Drop-ins are the files `*.conf` in `NAME.d`, in the [other drop-in
///   directories](drop_in_directories) of the name, and in `TYPE.d`. They are read in the
///   order of their file names.
/// - **Precedence of drop-ins:** Of several drop-ins with the same file name, only the one with the
///   highest precedence is used. The unit's name decides first: its own name comes before its
///   aliases. The unit directory decides next, and then the drop-in directory. Drop-ins in `TYPE.d`
///   have the lowest precedence.
/// - **Dependencies:** Each link in `NAME.wants` and `NAME.requires` adds a dependency on the unit
///   after which the link is named. The same holds for the other directories of the name, such as
///   `TYPE.wants`.
///
/// ```
/// use fleet_unitfile::tree::{UnitEntry, UNIT_DIRECTORIES};
/// use fleet_unitfile::{UnitFile, UnitName, UnitTree};
///
/// let file = |text: &str| UnitEntry::File(UnitFile::parse(text).unwrap());
/// let link = |target: &str| UnitEntry::Link(target.to_owned());
/// let tree = UnitTree::new(&UNIT_DIRECTORIES, [
///     ("/usr/lib/systemd/system/web.service", file("[Service]\nExecStart=/bin/web\n")),
///     ("/etc/systemd/system/www.service", link("web.service")),
///     ("/etc/systemd/system/www.service.d/nice.conf", file("[Service]\nNice=5\n")),
///     ("/etc/systemd/system/web.service.wants/db.service", link("../db.service")),
/// ]);
///
/// let unit = tree.unit(&UnitName::parse("www.service")?);
/// assert_eq!(unit.name(), "web.service");
/// assert_eq!(unit.aliases(), [UnitName::parse("www.service")?]);
/// assert_eq!(unit.get("Service", "Nice").unwrap().option.value(), "5");
/// assert_eq!(unit.dependencies()[0].unit, "db.service");
/// # Ok::<(), fleet_unitfile::NameError>(())
/// ```
#[derive(Clone, Debug)]
pub struct UnitTree {
    entries: BTreeMap<String, UnitEntry>,
    directories: Vec<String>,
    aliases: Aliases,
}

impl UnitTree {
    /// Creates a tree from files and links, each with its absolute path.
    ///
    /// `directories` are the unit directories, in order of precedence; see
    /// [`UNIT_DIRECTORIES`]. `entries` are all files and links in them. If
    /// a link leads to a file outside them, `entries` must contain that file as well.
    pub fn new<P: Into<String>, E: Into<UnitEntry>>(
        directories: &[&str],
        entries: impl IntoIterator<Item = (P, E)>,
    ) -> Self {
        let entries = entries.into_iter().map(|(path, entry)| (path.into(), entry.into()));
        let entries: BTreeMap<String, UnitEntry> = entries.collect();
        let directories: Vec<_> =
            directories.iter().map(|it| it.trim_end_matches('/').to_owned()).collect();
        let aliases = Aliases::new(&directories, &entries);
        Self { entries, directories, aliases }
    }

    /// Returns the names of all units that have a unit file or link, including templates and masked
    /// units.
    pub fn names(&self) -> impl Iterator<Item = UnitName> {
        // All of them were parsed as names before.
        self.aliases.names().filter_map(|name| UnitName::parse(name).ok())
    }

    /// Returns the unit with this name or alias, merged from all its files.
    ///
    /// A unit without a unit file has no [main part](MergedUnit::main), but may have drop-ins.
    pub fn unit(&self, name: &UnitName) -> MergedUnit {
        let path = self.aliases.fragment(name);
        let mut names = self.aliases.names_of(name, path);
        let own = path.and_then(|path| own_name(path, name));
        // If the template's instance is an alias of another file, its name is not the unit's own.
        let id = own.clone().filter(|own| names.contains(own)).unwrap_or_else(|| name.clone());
        names.extend(own);
        let aliases: Vec<UnitName> = names.into_iter().filter(|name| *name != id).collect();
        let all = || [&id].into_iter().chain(&aliases);
        let main = path.and_then(|path| self.part(path));
        let dependencies = DependencyKind::ALL.iter().flat_map(|kind| {
            let found = self.companion_files(all(), kind.suffix()).into_iter();
            found.filter_map(|(file, path)| self.dependency(*kind, file, path, &id))
        });
        let dependencies = dependencies.filter(|it| all().all(|name| it.unit != *name)).collect();
        let drop_ins = self.companion_files(all(), ".d").into_iter();
        let drop_ins = drop_ins.filter(|(file, _)| file.ends_with(".conf"));
        let drop_ins = drop_ins.filter_map(|(_, path)| self.part(path)).filter(|it| !it.is_empty());
        let drop_ins = drop_ins.collect();
        MergedUnit::new(id, aliases, main, drop_ins, dependencies)
    }

    /// Returns the files and links in the directories that belong to these unit names and end in
    /// `suffix`. For `web.service` and `.d`, these are `web.service.d`, `service.d` and others.
    ///
    /// The result maps the name of each file to its path. Of several paths with the same file name,
    /// it has only the one with the highest precedence.
    fn companion_files<'n>(
        &self,
        names: impl Iterator<Item = &'n UnitName>,
        suffix: &str,
    ) -> BTreeMap<&str, &str> {
        let mut found = BTreeMap::new();
        let mut of_type = None;
        let mut add = |folder: String| {
            let inside = format!("{folder}/");
            let entries = self.entries.range(inside.clone()..);
            for (path, _) in entries.take_while(|(path, _)| path.starts_with(&inside)) {
                let file = &path[inside.len()..];
                if !file.contains('/') && !file.starts_with('.') {
                    found.entry(file).or_insert(path.as_str());
                }
            }
        };
        for name in names {
            of_type = Some(name.unit_type());
            let folders = directories_with(name, suffix);
            for directory in &self.directories {
                folders.iter().for_each(|folder| add(format!("{directory}/{folder}")));
            }
        }
        for (directory, unit_type) in self.directories.iter().zip(of_type.iter().cycle()) {
            add(format!("{directory}/{unit_type}{suffix}"));
        }
        found
    }

    fn dependency(
        &self,
        kind: DependencyKind,
        file: &str,
        path: &str,
        of: &UnitName,
    ) -> Option<ImpliedDependency> {
        let is_link = matches!(self.entries.get(path), Some(UnitEntry::Link(_)));
        let is_masked = self.file(path).is_some_and(|file| file.source().is_empty());
        if !is_link || is_masked {
            return None;
        }
        let unit = UnitName::parse(file).ok()?;
        let unit = if unit.is_template() { instance_for(&unit, of)? } else { unit };
        Some(ImpliedDependency { kind, unit, path: path.to_owned() })
    }

    fn part(&self, path: &str) -> Option<UnitPart> {
        Some(UnitPart { path: path.to_owned(), file: self.file(path)? })
    }

    /// Resolves links from a path and returns the file at their end.
    fn file(&self, path: &str) -> Option<UnitFile> {
        const MAX_LINKS: usize = 40;
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match self.entries.get(&path) {
                Some(UnitEntry::File(file)) => return Some(file.clone()),
                Some(UnitEntry::Link(target)) => path = absolute(&path, target),
                None if path == "/dev/null" => return UnitFile::parse("").ok(),
                None => return None,
            }
        }
        None
    }
}

/// Returns the own name of the unit that is read from the file at `path`: the name of the file. If
/// this is a template and `requested` is an instance, returns the template's instance with the same
/// instance name.
fn own_name(path: &str, requested: &UnitName) -> Option<UnitName> {
    let own = UnitName::parse(path.rsplit('/').next()?).ok()?;
    match requested.instance() {
        Some(instance) if own.is_template() && !instance.is_empty() => {
            own.instantiate(instance).ok()
        }
        _ => Some(own),
    }
}

/// Resolves the target of a link to an absolute path.
pub(crate) fn absolute(link: &str, target: &str) -> String {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    let joined = if target.starts_with('/') { target } else { &format!("{folder}/{target}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A set of unit names.
pub(crate) type Names = BTreeSet<UnitName>;

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
    /// [`UNIT_DIRECTORIES`]. `look` gets an absolute path, and returns
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
