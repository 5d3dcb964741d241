//! A unit with its drop-ins: which files make it up, and in which order they are read.

use std::collections::BTreeMap;

use crate::file::UnitFile;
use crate::name::UnitName;
use crate::option::UnitOption;

/// The directories of the system's own units, the first of which wins.
pub const UNIT_DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
];

/// What follows the name of a drop-in.
const SUFFIX: &str = ".conf";

/// The drop-in directories of a unit that bear its name or a part of it, the first of which wins.
///
/// For an instance these are its own, that of its template, and those of each beginning of the
/// prefix that ends in a dash, without the `@` and then with it. Below all of them is the
/// directory of the [type](UnitName::unit_type), such as `service.d`, which is not told here.
///
/// ```
/// use fleet_unitfile::{UnitName, drop_in_directories};
///
/// let name = UnitName::parse("web-front@3.service")?;
/// let expected = [
///     "web-front@3.service.d",
///     "web-front@.service.d",
///     "web-.service.d",
///     "web-@.service.d",
/// ];
/// assert_eq!(drop_in_directories(&name), expected);
/// # Ok::<(), fleet_unitfile::NameError>(())
/// ```
pub fn drop_in_directories(name: &UnitName) -> Vec<String> {
    let (prefix, unit_type) = (name.prefix(), name.unit_type());
    let dashes = prefix.rmatch_indices('-').map(|(at, _)| at);
    // A dash at an end parts nothing.
    let beginnings: Vec<_> = dashes.filter(|&at| at > 0 && at + 1 < prefix.len()).collect();
    let shortened = |mark: &'static str| {
        let of = move |at: &usize| format!("{}{mark}.{unit_type}.d", &prefix[..=*at]);
        beginnings.iter().map(of).collect::<Vec<_>>()
    };
    let mut directories = vec![format!("{name}.d")];
    directories.extend(name.template().map(|template| format!("{template}.d")));
    directories.extend(shortened(""));
    if name.instance().is_some() {
        directories.extend(shortened("@"));
    }
    directories
}

/// A unit as systemd would put it together from files: the unit file and its drop-ins.
///
/// It is chosen from files that were read elsewhere, by their paths alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedUnit {
    name: UnitName,
    parts: Vec<UnitPart>,
    has_main: bool,
}

/// One file of a [`MergedUnit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPart {
    /// Where the file was found.
    pub path: String,
    /// What it says.
    pub file: UnitFile,
}

/// An option of a [`MergedUnit`], and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedOption<'a> {
    /// The path of the file.
    pub path: &'a str,
    /// The option; its spans are those of that file.
    pub option: &'a UnitOption,
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
        let choice = Choice::new(&name, directories);
        let mut main: Option<(usize, UnitPart)> = None;
        let mut drop_ins: BTreeMap<String, (usize, UnitPart)> = BTreeMap::new();
        for (path, file) in files {
            match choice.role(&path) {
                Some(Role::Main { rank }) if main.as_ref().is_none_or(|(best, _)| rank < *best) => {
                    main = Some((rank, UnitPart { path, file }));
                }
                Some(Role::DropIn { rank, file_name }) => {
                    let best = drop_ins.get(file_name).map(|(best, _)| *best);
                    if best.is_none_or(|best| rank < best) {
                        drop_ins.insert(file_name.to_owned(), (rank, UnitPart { path, file }));
                    }
                }
                _ => {}
            }
        }
        let has_main = main.is_some();
        let says_something = |part: &UnitPart| !part.file.source().is_empty();
        let drop_ins = drop_ins.into_values().map(|(_, part)| part).filter(says_something);
        let parts = main.into_iter().map(|(_, part)| part).chain(drop_ins).collect();
        Self { name, parts, has_main }
    }

    /// The name that the files were chosen for; it is what specifiers are replaced from.
    pub fn name(&self) -> &UnitName {
        &self.name
    }

    /// The unit file, if there is one.
    pub fn main(&self) -> Option<&UnitPart> {
        self.parts.first().filter(|_| self.has_main)
    }

    /// Whether the unit file is empty, which forbids the unit to be started.
    pub fn is_masked(&self) -> bool {
        self.main().is_some_and(|main| main.file.source().is_empty())
    }

    /// Every file in the order in which they are read, the unit file first.
    pub fn parts(&self) -> &[UnitPart] {
        &self.parts
    }

    /// Every option with the file that it came from, in the order in which they are read.
    pub fn options(&self) -> impl DoubleEndedIterator<Item = MergedOption<'_>> {
        self.parts.iter().flat_map(|part| {
            let of_part = |option| MergedOption { path: &part.path, option };
            part.file.options().iter().map(of_part)
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

    /// The values that count of an option that is a list: those after the last empty one,
    /// whichever file it stands in.
    pub fn effective<'a>(&'a self, section: &'a str, name: &'a str) -> Vec<MergedOption<'a>> {
        let after_reset = |it: &MergedOption<'_>| !it.option.value().is_empty();
        let mut values: Vec<_> = self.values(section, name).rev().take_while(after_reset).collect();
        values.reverse();
        values
    }

    /// One unit file that says what all the files do, in canonical form.
    pub fn to_unit_file(&self) -> UnitFile {
        let options = self.options().map(|it| it.option.clone());
        UnitFile::from_options(options).expect("what was read can be written")
    }
}

/// What a file is to a unit; the lower rank wins.
enum Role<'p> {
    Main { rank: usize },
    DropIn { rank: usize, file_name: &'p str },
}

struct Choice<'a> {
    directories: &'a [&'a str],
    mains: Vec<String>,
    named: Vec<String>,
    of_type: String,
}

impl<'a> Choice<'a> {
    fn new(name: &UnitName, directories: &'a [&'a str]) -> Self {
        let template = name.template().map(|template| template.to_string());
        Self {
            directories,
            mains: [name.to_string()].into_iter().chain(template).collect(),
            named: drop_in_directories(name),
            of_type: format!("{}.d", name.unit_type()),
        }
    }

    fn role<'p>(&self, path: &'p str) -> Option<Role<'p>> {
        let (folder, file_name) = path.rsplit_once('/')?;
        if let Some(directory) = self.directory(folder) {
            let main = self.mains.iter().position(|main| main == file_name)?;
            return Some(Role::Main { rank: main * self.directories.len() + directory });
        }
        let (folder, drop_in) = folder.rsplit_once('/')?;
        let directory = self.directory(folder)?;
        let is_drop_in = file_name.ends_with(SUFFIX) && !file_name.starts_with('.');
        let rank = match self.named.iter().position(|named| named == drop_in) {
            Some(named) => directory * self.named.len() + named,
            None if drop_in == self.of_type => {
                self.directories.len() * self.named.len() + directory
            }
            None => return None,
        };
        is_drop_in.then_some(Role::DropIn { rank, file_name })
    }

    fn directory(&self, folder: &str) -> Option<usize> {
        self.directories.iter().position(|it| it.trim_end_matches('/') == folder)
    }
}
