//! The directories of units: the files and links in them, and which of those make up a unit.

use std::collections::{BTreeMap, BTreeSet};

use crate::aliases::{Aliases, instance_for};
use crate::file::UnitFile;
use crate::merge::{DependencyKind, ImpliedDependency, MergedUnit, UnitPart, directories_with};
use crate::name::UnitName;

/// What stands at a path: a file, or a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitEntry {
    /// A file with this text. An empty one masks what it stands for.
    File(UnitFile),
    /// A link to this path, which may be relative to the link's directory. One to `/dev/null`
    /// masks what it stands for.
    Link(String),
}

impl From<UnitFile> for UnitEntry {
    fn from(file: UnitFile) -> Self {
        Self::File(file)
    }
}

/// The directories that units are read from, with all that stands in them.
///
/// Somebody else reads the files and links; here is decided, by their paths alone, what systemd
/// makes of them:
///
/// - A unit is read from the file of its name; an instance that has none, from its template's.
///   The first directory wins.
/// - A link to the name of another unit makes an alias, whether or not that is in the same
///   directory. A unit has the drop-ins and dependencies of all its names. systemd ignores a
///   link whose type, or whose kind of name, is not that of its target; so is it here.
/// - A link to a file outside the directories is read as if it were that file.
/// - An empty file, or a link to `/dev/null`, masks: the unit cannot be started, the drop-in or
///   dependency does not count, whatever further directories say.
/// - Drop-ins are files `*.conf` in `NAME.d`, the [further directories](crate::drop_in_directories)
///   of its name, and `TYPE.d`. Of those with the same file name one counts: that of the unit's
///   own name before those of its aliases, then by directory, then by how much of the name the
///   drop-in directory has; one in `TYPE.d` comes last. They are read in the order of their
///   file names.
/// - Each link in `NAME.wants` and `NAME.requires`, and in the same further directories, makes
///   the unit that it is named after a dependency.
///
/// ```
/// use fleet_unitfile::{UNIT_DIRECTORIES, UnitEntry, UnitFile, UnitName, UnitTree};
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
/// assert_eq!(unit.last("Service", "Nice").unwrap().option.value(), "5");
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
    /// What stands in `directories`, the first of which wins, and, for links that lead out of
    /// them, elsewhere; all paths are absolute. See [`UNIT_DIRECTORIES`](crate::UNIT_DIRECTORIES).
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

    /// Every name that a unit file or link stands for, templates and masked ones included.
    pub fn names(&self) -> impl Iterator<Item = UnitName> {
        // What is there was found to be a name.
        self.aliases.names().filter_map(|name| UnitName::parse(name).ok())
    }

    /// The unit of this name, or of which this is an alias, with all that it is made of.
    ///
    /// A unit of which there is no file has no [main part](MergedUnit::main), but may have
    /// drop-ins.
    pub fn unit(&self, name: &UnitName) -> MergedUnit {
        let path = self.aliases.fragment(name);
        let mut names = self.aliases.of(name, path);
        let own = path.and_then(|path| own_name(path, name));
        // Where the instance of a template is something else, its name does not come first.
        let id = own.clone().filter(|own| names.contains(own)).unwrap_or_else(|| name.clone());
        names.extend(own);
        let aliases: Vec<UnitName> = names.into_iter().filter(|name| *name != id).collect();
        let all = || [&id].into_iter().chain(&aliases);
        let main = path.and_then(|path| self.part(path));
        let dependencies = DependencyKind::ALL.iter().flat_map(|kind| {
            let found = self.beside(all(), kind.suffix()).into_iter();
            found.filter_map(|(file, path)| self.dependency(*kind, file, path, &id))
        });
        let dependencies = dependencies.filter(|it| all().all(|name| it.unit != *name)).collect();
        let drop_ins = self.beside(all(), ".d").into_iter();
        let drop_ins = drop_ins.filter(|(file, _)| file.ends_with(".conf"));
        let drop_ins = drop_ins.filter_map(|(_, path)| self.part(path)).filter(|it| !it.is_empty());
        let drop_ins = drop_ins.collect();
        MergedUnit::new(id, aliases, main, drop_ins, dependencies)
    }

    /// The entries of all directories of a suffix that belong to a unit with these names, one of
    /// each file name, in their order.
    fn beside<'n>(
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

    /// The file at a path, or at the end of the links that begin there.
    fn file(&self, path: &str) -> Option<UnitFile> {
        const MOST_LINKS: usize = 40;
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
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

/// The name of the unit that a file holds, for the instance that is asked for.
fn own_name(path: &str, wanted: &UnitName) -> Option<UnitName> {
    let own = UnitName::parse(path.rsplit('/').next()?).ok()?;
    match wanted.instance() {
        Some(instance) if own.is_template() && !instance.is_empty() => {
            own.instantiate(instance).ok()
        }
        _ => Some(own),
    }
}

/// The path that a link at a path leads to.
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

/// The names of units, as [`UnitTree`] gathers them.
pub(crate) type Names = BTreeSet<UnitName>;
