//! Unit aliases, derived from the files and links in the unit directories.

use std::collections::BTreeMap;

use crate::name::{UnitName, UnitType};
use crate::tree::{Names, UnitEntry, absolute};

/// All unit names that files and links define. Maps each name to the name or path to which it
/// leads, and each file to the names that lead to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aliases {
    targets: BTreeMap<String, Target>,
    /// The names that lead to a file, by the file's own name.
    names: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug)]
enum Target {
    /// Another unit name.
    Name(String),
    /// A unit file, or a link to a file outside the unit directories.
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
        aliases.build_reverse_index();
        aliases
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }

    /// Returns the path of the file that defines the unit with this name (systemd's
    /// `FragmentPath=`).
    ///
    /// For an instance without a file of its own, this is the file of its template. Returns `None`
    /// if neither exists.
    pub(crate) fn fragment(&self, name: &UnitName) -> Option<&str> {
        let own = self.follow(name.as_str());
        own.or_else(|| self.follow(name.template()?.as_str()))
    }

    /// Returns all names of the unit that `name` refers to, including `name` itself and the
    /// aliases. `path` is the path of the unit file, or `None` if there is none.
    pub(crate) fn names_of(&self, name: &UnitName, path: Option<&str>) -> Names {
        let mut names = Names::from([name.clone()]);
        self.collect_names(name.as_str(), name, None, &mut names);
        if let Some(file) = path.and_then(|path| path.rsplit('/').next())
            && file != name.as_str()
        {
            self.collect_names(file, name, Some(file), &mut names);
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

    fn build_reverse_index(&mut self) {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.targets.keys() {
            let Some(file) = self.follow(name).and_then(|path| path.rsplit('/').next()) else {
                continue;
            };
            let (parsed, own) = (UnitName::parse(name), UnitName::parse(file));
            // An instance that leads to a template is an alias of one instance of that template
            // only.
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

    /// Follows links from `name` to the path at their end.
    fn follow(&self, name: &str) -> Option<&str> {
        const MAX_HOPS: usize = 8;
        let mut target = self.targets.get(name)?;
        for _ in 0..MAX_HOPS {
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

    /// Adds `name` to `names`, together with all names that lead to the file called `name`.
    ///
    /// If `unit` is an instance, templates are treated as follows:
    ///
    /// - `name` itself is left out if it is a template.
    /// - Each other template is replaced by its instance for `unit`. If `file` is given, an
    ///   instance that leads to another file is left out.
    fn collect_names(&self, name: &str, unit: &UnitName, file: Option<&str>, names: &mut Names) {
        let others = self.names.get(name).into_iter().flatten().map(String::as_str);
        // A template itself is no name of an instance.
        let own = [name].into_iter().filter(|it| !it.contains("@.") || unit.is_template());
        for other in own.chain(others) {
            let Ok(other) = UnitName::parse(other) else { continue };
            if !(other.is_template() && unit.is_instance()) {
                names.insert(other);
                continue;
            }
            let Some(instance) = instance_for(&other, unit) else { continue };
            // Skips an instance that is an alias of a different file.
            let elsewhere = self.follow(instance.as_str()).and_then(|it| it.rsplit('/').next());
            if elsewhere.is_none_or(|it| file.is_none_or(|file| it == file)) {
                names.insert(instance);
            }
        }
    }
}

/// Returns the instance of `template` with the same instance name as `unit`. If `unit` has no
/// instance name, its prefix is used instead: `log@web.service` for `log@.service` and
/// `web.service`. Returns `None` if the result is not a valid name.
pub(crate) fn instance_for(template: &UnitName, unit: &UnitName) -> Option<UnitName> {
    let own = unit.instance().filter(|instance| !instance.is_empty());
    template.instantiate(own.unwrap_or(unit.prefix())).ok()
}

/// Returns `true` if a link called `name` may be an alias of the unit `other`. This is the case if:
///
/// - the two names differ;
/// - they have the same type, and units of this type can have aliases;
/// - they have the same instance name or both have none, or `name` is an instance and `other` a
///   template.
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
