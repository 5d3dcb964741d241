//! A unit merged with its drop-ins. The files are merged in the order in which systemd reads them.

use crate::file::UnitFile;
use crate::file::option::OptionView;
use crate::file::options::{names_of_list, resets};
use crate::name::UnitName;
use crate::tree::UnitTree;

/// Unit directories of the system manager, in order of precedence.
pub const UNIT_DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
];

/// Returns the names of a unit's drop-in directories, in order of precedence:
///
/// 1. the directory of the unit's own name (`web-front@3.service.d`);
/// 2. for an instance, the directory of its template (`web-front@.service.d`);
/// 3. for each dash inside the prefix, the directory of the beginning of the prefix up to that dash
///    (`web-.service.d`);
/// 4. for an instance, two more directories for each of these beginnings: one with the instance
///    name (`web-@3.service.d`), and one as a template (`web-@.service.d`).
///
/// Longer beginnings come before shorter ones. The directory of the [type](UnitName::unit_type),
/// such as `service.d`, has the lowest precedence and is not included.
///
/// ```
/// use fleet_unitfile::tree::drop_in_directories;
/// use fleet_unitfile::UnitName;
///
/// let name = UnitName::parse("web-front@3.service")?;
/// let expected = [
///     "web-front@3.service.d",
///     "web-front@.service.d",
///     "web-.service.d",
///     "web-@3.service.d",
///     "web-@.service.d",
/// ];
/// assert_eq!(drop_in_directories(&name), expected);
/// # Ok::<(), fleet_unitfile::NameError>(())
/// ```
pub fn drop_in_directories(name: &UnitName) -> Vec<String> {
    directories_with(name, ".d")
}

/// Returns the directories of [`drop_in_directories`] with another suffix in place of `.d`.
pub(crate) fn directories_with(name: &UnitName, suffix: &str) -> Vec<String> {
    let (prefix, unit_type) = (name.prefix(), name.unit_type());
    let dashes = prefix.rmatch_indices('-').map(|(at, _)| at);
    // A dash at either end of the prefix does not count.
    let beginnings: Vec<_> = dashes.filter(|&at| at > 0 && at + 1 < prefix.len()).collect();
    let of_type = |stem: String| format!("{stem}.{unit_type}{suffix}");
    let mut directories = vec![format!("{name}{suffix}")];
    directories.extend(name.template().map(|template| format!("{template}{suffix}")));
    directories.extend(beginnings.iter().map(|&at| of_type(prefix[..=at].to_owned())));
    if let Some(instance) = name.instance().filter(|instance| !instance.is_empty()) {
        let both = beginnings.iter().flat_map(|&at| {
            let beginning = &prefix[..=at];
            [format!("{beginning}@{instance}"), format!("{beginning}@")]
        });
        directories.extend(both.map(of_type));
    }
    directories
}

/// A unit file merged with its drop-ins, in the same way as systemd merges them.
///
/// The caller reads the files, and [`select`](Self::select) chooses those of the unit by their
/// paths. If some of the files are links, use [`UnitTree`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedUnit {
    name: UnitName,
    aliases: Vec<UnitName>,
    parts: Vec<UnitPart>,
    has_main: bool,
    dependencies: Vec<ImpliedDependency>,
}

/// One file of a [`MergedUnit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitPart {
    /// Path of the file.
    pub path: String,
    /// The parsed file.
    pub file: UnitFile,
}

impl UnitPart {
    pub(crate) fn is_empty(&self) -> bool {
        self.file.source().is_empty()
    }
}

/// A dependency made by a link in a directory such as `web.service.wants`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImpliedDependency {
    /// Kind of the dependency.
    pub kind: DependencyKind,
    /// The unit after which the link is named, and on which the merged unit depends.
    ///
    /// If the link names a template, this is the template's instance for the merged unit:
    /// `log@3.service` for `web@3.service`, and `log@web.service` for `web.service`.
    pub unit: UnitName,
    /// Path of the link.
    pub path: String,
}

/// The kinds of dependency that links in directories make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyKind {
    /// Like `Requires=`, from directories that end in `.requires`.
    Requires,
    /// Like `Wants=`, from directories that end in `.wants`.
    Wants,
}

impl DependencyKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Requires, Self::Wants];

    /// Returns the suffix of the directories' names, including the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Requires => ".requires",
            Self::Wants => ".wants",
        }
    }
}

/// An option of a [`MergedUnit`] with the file it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergedOption<'a> {
    /// Path of the file.
    pub path: &'a str,
    /// The option. Its spans refer to that file.
    pub option: OptionView<'a>,
}

impl MergedUnit {
    /// Selects the files of a unit from the given files, each with its absolute path.
    ///
    /// `directories` are the unit directories, in order of precedence; see [`UNIT_DIRECTORIES`].
    /// The unit file is the file with the unit's name, or else the file of its template. Drop-ins
    /// are the `.conf` files in the unit's [drop-in directories](drop_in_directories) and in the
    /// drop-in directory of its type. Other files are ignored.
    ///
    /// Of several drop-ins with the same file name, only the one with the highest precedence is
    /// used. The order of the unit directories decides first, and then the order of the drop-in
    /// directories. Drop-ins in the directory of the type have the lowest precedence.
    ///
    /// An empty file hides the files of lower precedence with the same name. An empty unit file
    /// therefore masks the unit. Drop-ins are read in the bytewise order of their file names.
    ///
    /// ```
    /// use fleet_unitfile::tree::UNIT_DIRECTORIES;
    /// use fleet_unitfile::{MergedUnit, UnitFile, UnitName};
    ///
    /// let file = |path: &str, text: &str| (path.to_owned(), UnitFile::parse(text).unwrap());
    /// let files = [
    ///     file("/etc/systemd/system/web@.service.d/user.conf", "[Service]\nUser=web\n"),
    ///     file("/usr/lib/systemd/system/web@.service", "[Service]\nUser=root\nNice=5\n"),
    /// ];
    /// let name = UnitName::parse("web@3.service")?;
    /// let unit = MergedUnit::select(name, &UNIT_DIRECTORIES, files);
    /// let user = unit.get("Service", "User").unwrap();
    /// assert_eq!(user.option.value(), "web");
    /// assert_eq!(user.path, "/etc/systemd/system/web@.service.d/user.conf");
    /// # Ok::<(), fleet_unitfile::NameError>(())
    /// ```
    pub fn select(
        name: UnitName,
        directories: &[&str],
        files: impl IntoIterator<Item = (String, UnitFile)>,
    ) -> Self {
        UnitTree::new(directories, files).unit(&name)
    }

    pub(crate) fn new(
        name: UnitName,
        aliases: Vec<UnitName>,
        main: Option<UnitPart>,
        drop_ins: Vec<UnitPart>,
        dependencies: Vec<ImpliedDependency>,
    ) -> Self {
        let has_main = main.is_some();
        let parts = main.into_iter().chain(drop_ins).collect();
        Self { name, aliases, parts, has_main, dependencies }
    }

    /// Returns the unit's own name, as opposed to its aliases. This is the name of its file, or, if
    /// the file is that of a template, the name of the instance. Specifiers are expanded from this
    /// name.
    pub fn name(&self) -> &UnitName {
        &self.name
    }

    /// Returns the unit's other names, in order.
    pub fn aliases(&self) -> &[UnitName] {
        &self.aliases
    }

    /// Returns the dependencies made by links in directories such as `web.service.wants`.
    /// Dependencies in options are not included.
    ///
    /// `Requires` dependencies come before `Wants` dependencies. Within each kind, dependencies are
    /// ordered by the name of the link.
    pub fn dependencies(&self) -> &[ImpliedDependency] {
        &self.dependencies
    }

    /// Returns the unit file, if there is one.
    pub fn main(&self) -> Option<&UnitPart> {
        self.parts.first().filter(|_| self.has_main)
    }

    /// Returns `true` if the unit file is empty. systemd does not start a unit with an empty unit
    /// file.
    pub fn is_masked(&self) -> bool {
        self.main().is_some_and(UnitPart::is_empty)
    }

    /// Returns all files in the order in which systemd reads them, beginning with the unit file.
    pub fn parts(&self) -> &[UnitPart] {
        &self.parts
    }

    /// Returns all options with their files, in the order in which systemd reads them.
    pub fn options(&self) -> impl DoubleEndedIterator<Item = MergedOption<'_>> {
        self.parts.iter().flat_map(|part| {
            let of_part = |option| MergedOption { path: &part.path, option };
            part.file.options().map(of_part)
        })
    }

    /// Returns the options with this section and name.
    pub fn values<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = MergedOption<'a>> {
        self.options().filter(move |it| it.option.name() == name && it.option.section() == section)
    }

    /// Returns the last option with this section and name that no empty value resets, like
    /// [`UnitFile::get`].
    pub fn get<'a>(&'a self, section: &'a str, name: &'a str) -> Option<MergedOption<'a>> {
        self.effective(section, name).next_back()
    }

    /// Returns the effective values of a list option across all files, like
    /// [`UnitFile::effective`].
    pub fn effective<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = MergedOption<'a>> {
        let resets = |it: &OptionView<'_>| {
            it.value().is_empty() && it.section() == section && resets(section, it.name(), name)
        };
        let last = self.parts.iter().enumerate().rev().find_map(|(number, part)| {
            Some((number, part.file.options().rfind(resets)?.span().start))
        });
        self.parts.iter().enumerate().flat_map(move |(number, part)| {
            let values = part.file.options().named(section, names_of_list(section, name));
            let after = values
                .filter(move |it| !it.value().is_empty() && Some((number, it.span().start)) > last);
            after.map(|option| MergedOption { path: &part.path, option })
        })
    }

    /// Returns one unit file with the options of all files, in canonical form.
    pub fn to_unit_file(&self) -> UnitFile {
        let options = self.options().map(|it| it.option.into());
        UnitFile::from_options(options).expect("what was read can be written")
    }
}
