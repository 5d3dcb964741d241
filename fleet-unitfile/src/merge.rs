//! A unit with its drop-ins: which files make it up, and in which order they are read.

use crate::file::UnitFile;
use crate::name::UnitName;
use crate::option::OptionView;
use crate::reset::{names_of_list, takes_back};
use crate::tree::UnitTree;

/// The directories of the system's own units, the first of which wins.
pub const UNIT_DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
];

/// The drop-in directories of a unit that bear its name or a part of it, the first of which wins.
///
/// For an instance these are its own, that of its template, those of each beginning of the prefix
/// that ends in a dash, and those of each such beginning with the instance and as a template.
/// Below all of them is the directory of the [type](UnitName::unit_type), such as `service.d`,
/// which is not told here.
///
/// ```
/// use fleet_unitfile::{UnitName, drop_in_directories};
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

/// The same with another suffix.
pub(crate) fn directories_with(name: &UnitName, suffix: &str) -> Vec<String> {
    let (prefix, unit_type) = (name.prefix(), name.unit_type());
    let dashes = prefix.rmatch_indices('-').map(|(at, _)| at);
    // A dash at an end parts nothing.
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

/// A unit as systemd would put it together from files: the unit file and its drop-ins.
///
/// It is chosen from files that were read elsewhere, by their paths alone. Where there are links
/// among them, see [`UnitTree`].
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
    /// Where the file was found.
    pub path: String,
    /// What it says.
    pub file: UnitFile,
}

impl UnitPart {
    pub(crate) fn is_empty(&self) -> bool {
        self.file.source().is_empty()
    }
}

/// A dependency that a link in a directory such as `web.service.wants` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImpliedDependency {
    /// How strong it is.
    pub kind: DependencyKind,
    /// What the unit depends on; for a link named after a template, the instance of it.
    pub unit: UnitName,
    /// The path of the link.
    pub path: String,
}

/// The kinds of dependency that directories make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyKind {
    /// As by `Requires=`, from directories that end in `.requires`.
    Requires,
    /// As by `Wants=`, from directories that end in `.wants`.
    Wants,
}

impl DependencyKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Requires, Self::Wants];

    /// How the names of its directories end, with the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Requires => ".requires",
            Self::Wants => ".wants",
        }
    }
}

/// An option of a [`MergedUnit`], and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergedOption<'a> {
    /// The path of the file.
    pub path: &'a str,
    /// The option; its spans are those of that file.
    pub option: OptionView<'a>,
}

impl MergedUnit {
    /// Chooses the files of a unit among those given, each with its whole path.
    ///
    /// `directories` are those that hold units, the first of which wins; see
    /// [`UNIT_DIRECTORIES`]. The unit file is the one of the unit's name, or else that of its
    /// template. Drop-ins are the `.conf` files in the [directories](drop_in_directories) of the
    /// unit and in that of its type; of those with the same file name only one counts: the one
    /// from the first unit directory, and in it from the first drop-in directory, those of the
    /// type coming last. They are read in the order of their file names, byte by byte. An empty
    /// file, as `/dev/null` is one, masks those of its name. Files that have nothing to do with
    /// the unit are ignored.
    ///
    /// ```
    /// use fleet_unitfile::{MergedUnit, UNIT_DIRECTORIES, UnitFile, UnitName};
    ///
    /// let file = |path: &str, text: &str| (path.to_owned(), UnitFile::parse(text).unwrap());
    /// let files = [
    ///     file("/etc/systemd/system/web@.service.d/user.conf", "[Service]\nUser=web\n"),
    ///     file("/usr/lib/systemd/system/web@.service", "[Service]\nUser=root\nNice=5\n"),
    /// ];
    /// let name = UnitName::parse("web@3.service")?;
    /// let unit = MergedUnit::select(name, &UNIT_DIRECTORIES, files);
    /// let user = unit.last("Service", "User").unwrap();
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

    /// The unit's own name: that of its file, for an instance of a template with the instance. It
    /// is what specifiers are replaced from.
    pub fn name(&self) -> &UnitName {
        &self.name
    }

    /// The further names of the unit, in order.
    pub fn aliases(&self) -> &[UnitName] {
        &self.aliases
    }

    /// What links in directories such as `web.service.wants` make the unit depend on, beside its
    /// options: the requirements first, both kinds in the order of the links' names.
    pub fn dependencies(&self) -> &[ImpliedDependency] {
        &self.dependencies
    }

    /// The unit file, if there is one.
    pub fn main(&self) -> Option<&UnitPart> {
        self.parts.first().filter(|_| self.has_main)
    }

    /// Whether the unit file is empty, which forbids the unit to be started.
    pub fn is_masked(&self) -> bool {
        self.main().is_some_and(UnitPart::is_empty)
    }

    /// Every file in the order in which they are read, the unit file first.
    pub fn parts(&self) -> &[UnitPart] {
        &self.parts
    }

    /// Every option with the file that it came from, in the order in which they are read.
    pub fn options(&self) -> impl DoubleEndedIterator<Item = MergedOption<'_>> {
        self.parts.iter().flat_map(|part| {
            let of_part = |option| MergedOption { path: &part.path, option };
            part.file.options().map(of_part)
        })
    }

    /// The options of this name in this section.
    pub fn values<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = MergedOption<'a>> {
        self.options().filter(move |it| it.option.name() == name && it.option.section() == section)
    }

    /// The last option of this name in this section.
    pub fn last<'a>(&'a self, section: &'a str, name: &'a str) -> Option<MergedOption<'a>> {
        self.values(section, name).next_back()
    }

    /// The values that count of an option that is a list, whichever files they stand in, like
    /// [`UnitFile::effective`].
    pub fn effective<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = MergedOption<'a>> {
        let takes_back = |it: &OptionView<'_>| {
            it.value().is_empty() && it.section() == section && takes_back(section, it.name(), name)
        };
        let last = self.parts.iter().enumerate().rev().find_map(|(number, part)| {
            Some((number, part.file.options().rfind(takes_back)?.span().start))
        });
        self.parts.iter().enumerate().flat_map(move |(number, part)| {
            let values = part.file.options().named(section, names_of_list(section, name));
            let after = values
                .filter(move |it| !it.value().is_empty() && Some((number, it.span().start)) > last);
            after.map(|option| MergedOption { path: &part.path, option })
        })
    }

    /// One unit file that says what all the files do, in canonical form.
    pub fn to_unit_file(&self) -> UnitFile {
        let options = self.options().map(|it| it.option.into());
        UnitFile::from_options(options).expect("what was read can be written")
    }
}
