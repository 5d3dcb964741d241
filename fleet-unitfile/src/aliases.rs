//! The names under which units are known, by the files and links in the directories of units.

use std::collections::BTreeMap;

use crate::name::UnitName;
use crate::tree::{Names, UnitEntry, absolute};
use crate::unit_type::UnitType;

/// What each name stands for, and back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aliases {
    targets: BTreeMap<String, Target>,
    /// The names that lead to a file, by the file's own name.
    names: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug)]
enum Target {
    /// Another name.
    Name(String),
    /// A file, or a link that leads to one elsewhere.
    Path(String),
}

impl Aliases {
    pub(crate) fn new(directories: &[String], entries: &BTreeMap<String, UnitEntry>) -> Self {
        let mut aliases = Self::default();
        for directory in directories {
            let inside = format!("{directory}/");
            let below = entries.range(inside.clone()..);
            for (path, entry) in below.take_while(|(path, _)| path.starts_with(&inside)) {
                aliases.add(directories, path, &path[inside.len()..], entry);
            }
        }
        aliases.turn_round();
        aliases
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }

    /// The path from which a unit of this name is read.
    pub(crate) fn fragment(&self, name: &UnitName) -> Option<&str> {
        let own = self.follow(name.as_str());
        own.or_else(|| self.follow(name.template()?.as_str()))
    }

    /// All names of the unit of this name, which is read from a path.
    pub(crate) fn of(&self, name: &UnitName, path: Option<&str>) -> Names {
        let mut names = Names::from([name.clone()]);
        self.gather(name.as_str(), name, None, &mut names);
        if let Some(file) = path.and_then(|path| path.rsplit('/').next())
            && file != name.as_str()
        {
            self.gather(file, name, Some(file), &mut names);
        }
        names
    }

    fn add(&mut self, directories: &[String], path: &str, name: &str, entry: &UnitEntry) {
        let Ok(parsed) = UnitName::parse(name) else { return };
        if self.targets.contains_key(name) {
            return;
        }
        let target = match entry {
            UnitEntry::File(_) => Target::Path(path.to_owned()),
            UnitEntry::Link(target) => {
                let target = absolute(path, target);
                let is_within = |it: &String| target.starts_with(&format!("{it}/"));
                if directories.iter().any(is_within) {
                    let other = target.rsplit('/').next().unwrap_or_default();
                    if !may_be_alias(&parsed, other) {
                        return;
                    }
                    Target::Name(other.to_owned())
                } else {
                    Target::Path(path.to_owned())
                }
            }
        };
        self.targets.insert(name.to_owned(), target);
    }

    fn turn_round(&mut self) {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.targets.keys() {
            let Some(file) = self.follow(name).and_then(|path| path.rsplit('/').next()) else {
                continue;
            };
            let (parsed, own) = (UnitName::parse(name), UnitName::parse(file));
            // An instance that leads to a template is another name of one instance of it alone.
            let own = match (parsed, own) {
                (Ok(name), Ok(own)) if name.is_instance() && own.is_template() => {
                    instance_for(&own, &name).map(|it| it.to_string())
                }
                _ => Some(file.to_owned()),
            };
            names.entry(own.unwrap_or_default()).or_default().push(name.clone());
        }
        self.names = names;
    }

    /// The path at the end of the names that begin with this one.
    fn follow(&self, name: &str) -> Option<&str> {
        const MOST_NAMES: usize = 8;
        let mut target = self.targets.get(name)?;
        for _ in 0..MOST_NAMES {
            match target {
                Target::Path(path) => return Some(path),
                Target::Name(other) => {
                    let template = || UnitName::parse(other).ok()?.template();
                    let next = self.targets.get(other);
                    target = next.or_else(|| self.targets.get(template()?.as_str()))?;
                }
            }
        }
        None
    }

    /// Adds a name and those that lead to the same file, for the unit that is asked for.
    fn gather(&self, name: &str, wanted: &UnitName, file: Option<&str>, names: &mut Names) {
        let others = self.names.get(name).into_iter().flatten().map(String::as_str);
        // A template itself is no name of an instance.
        let own = [name].into_iter().filter(|it| !it.contains("@.") || wanted.is_template());
        for other in own.chain(others) {
            let Ok(other) = UnitName::parse(other) else { continue };
            if !(other.is_template() && wanted.is_instance()) {
                names.insert(other);
                continue;
            }
            let Some(instance) = instance_for(&other, wanted) else { continue };
            // One that is an alias of something else is not one of this unit.
            let elsewhere = self.follow(instance.as_str()).and_then(|it| it.rsplit('/').next());
            if elsewhere.is_none_or(|it| file.is_none_or(|file| it == file)) {
                names.insert(instance);
            }
        }
    }
}

/// The instance of a template that a unit has to do with: that of its own instance, or of its
/// prefix where it has none.
pub(crate) fn instance_for(template: &UnitName, unit: &UnitName) -> Option<UnitName> {
    let own = unit.instance().filter(|instance| !instance.is_empty());
    template.instantiate(own.unwrap_or(unit.prefix())).ok()
}

/// Whether a link of this name to the other one makes an alias.
fn may_be_alias(name: &UnitName, other: &str) -> bool {
    use UnitType::{Device, Path, Service, Socket, Target, Timer};
    let Ok(other) = UnitName::parse(other) else { return false };
    let has_aliases = matches!(name.unit_type(), Service | Socket | Target | Device | Timer | Path);
    let fits = match (name.instance(), other.instance()) {
        (None, None) => true,
        (Some(own), Some(theirs)) => own == theirs || theirs.is_empty(),
        _ => false,
    };
    has_aliases && fits && name.unit_type() == other.unit_type() && *name != other
}
