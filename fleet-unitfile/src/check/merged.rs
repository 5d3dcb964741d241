//! Checking a unit with its drop-ins: each part for itself, and the whole as systemd reads it.

use std::fmt;

use super::finding::Finding;
use super::{Checker, sections, table, whole};
use crate::diagnostic::Severity;
use crate::file::UnitFile;
use crate::merge::{MergedUnit, UnitPart};
use crate::name::UnitName;
use crate::option::OptionView;

/// A finding, and the file of a [`MergedUnit`] that it is in.
///
/// `Display` is the path of the file and the finding in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergedFinding<'a> {
    /// The file.
    pub part: &'a UnitPart,
    /// What is wrong; its places are those of the file.
    pub finding: Finding,
}

impl MergedFinding<'_> {
    /// How it is shown to a person, like [`Finding::render`], with the path of the file.
    pub fn render(&self) -> impl fmt::Display + '_ {
        self.finding.render(&self.part.path, self.part.file.source())
    }
}

impl fmt::Display for MergedFinding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part.path, self.finding)
    }
}

/// Checks a unit with all its drop-ins, like [`check`](super::check).
///
/// Sections, options and values are checked file by file. What a unit must have, and what does
/// not go together, is judged of the whole: a drop-in may bring the missing `ExecStart=`, or be
/// the one that sets a second. Findings are in the order in which the files are read.
///
/// Of a unit without a [unit file](MergedUnit::main) the drop-ins are checked and nothing is
/// missed, so a drop-in can be checked alone; nothing is said of one that is masked. An error in
/// a drop-in does not make systemd refuse the unit: it reads the rest of that file no more.
///
/// ```
/// use fleet_unitfile::{UNIT_DIRECTORIES, UnitFile, UnitName, UnitTree, check_merged};
///
/// let main = UnitFile::parse("[Service]\nExecStart=/usr/bin/web\n")?;
/// let drop_in = UnitFile::parse("[Service]\nExecStart=/usr/bin/web --again\n")?;
/// let tree = UnitTree::new(&UNIT_DIRECTORIES, [
///     ("/usr/lib/systemd/system/web.service", main),
///     ("/etc/systemd/system/web.service.d/more.conf", drop_in),
/// ]);
/// let unit = tree.unit(&UnitName::parse("web.service")?);
/// let findings = check_merged(&unit);
/// assert_eq!(
///     findings[0].render().to_string(),
///     "error[U0402]: ExecStart: only a oneshot service may run several commands
///  --> /etc/systemd/system/web.service.d/more.conf:2:11
///   |
/// 2 | ExecStart=/usr/bin/web --again
///   |           ^^^^^^^^^^^^^^^^^^^^
///   = help: write Type=oneshot, or put what comes first into ExecStartPre=
/// ",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_merged(unit: &MergedUnit) -> Vec<MergedFinding<'_>> {
    if unit.is_masked() {
        return Vec::new();
    }
    let mut checkers: Vec<_> =
        unit.parts().iter().map(|part| Checker::new(unit.name(), &part.file)).collect();
    if let Some(main) = unit.main() {
        let (whole, places) = joined(unit);
        for (option, flaw) in whole::check(unit.name(), &whole) {
            match option.and_then(|option| place(&whole, &places, option)) {
                Some((part, option)) => checkers[part].value(option, flaw),
                None => checkers[0].keep(sections::place(unit.name(), &main.file), flaw),
            }
        }
    }
    let all = unit.parts().iter().zip(checkers).flat_map(|(part, checker)| {
        let findings = checker.finish().into_iter();
        findings.map(move |finding| MergedFinding { part, finding })
    });
    all.collect()
}

/// The number of a part, and an option of it.
type Place<'a> = (usize, OptionView<'a>);

/// One file with all options that systemd reads, and where each of them comes from.
fn joined(unit: &MergedUnit) -> (UnitFile, Vec<Place<'_>>) {
    let (mut source, mut places) = (String::new(), Vec::new());
    for (number, part) in unit.parts().iter().enumerate() {
        // An error in the unit file is an error of the whole, which is told anyway.
        let is_read = |option: &OptionView<'_>| number == 0 || !stops(unit.name(), *option);
        for option in part.file.options().take_while(is_read) {
            let (section, name) = (option.section(), option.name());
            source.push_str(&format!("[{section}]\n{name}={}\n", option.verbatim()));
            places.push((number, option));
        }
    }
    (UnitFile::parse_collecting(source).0, places)
}

/// Whether systemd reads a file no further than to this option.
fn stops(name: &UnitName, option: OptionView<'_>) -> bool {
    let kind = table::kind(option.section(), option.name());
    let flaws = kind.map(|kind| kind.check(option.name(), option.value(), name));
    flaws.into_iter().flatten().any(|flaw| flaw.code.severity() == Severity::Error)
}

fn place<'a>(whole: &UnitFile, places: &[Place<'a>], option: OptionView<'_>) -> Option<Place<'a>> {
    let at = whole.options().position(|it| it.span() == option.span())?;
    places.get(at).copied()
}
