//! Checks of a unit with its drop-ins: each file by itself, and then the merged unit.

use super::finding::Finding;
use super::version::SystemdVersion;
use super::{Checker, cross_option, sections, table};
use crate::diagnostic::Severity;
use crate::file::UnitFile;
use crate::merge::MergedUnit;
use crate::name::UnitName;
use crate::option::OptionView;

impl MergedUnit {
    /// Checks a unit with all its drop-ins, like [`UnitFile::check`].
    ///
    /// Sections, options and values are checked file by file. Required options and conflicts are
    /// checked on the merged unit, because a drop-in may add a missing `ExecStart=`, or set a second
    /// one. The findings are in the order in which systemd reads the files.
    ///
    /// Special cases:
    ///
    /// - A masked unit has no findings.
    /// - If a unit has no [unit file](MergedUnit::main), only its drop-ins are checked, and missing
    ///   options are not reported. A drop-in can therefore be checked alone.
    /// - If a drop-in contains an error, systemd still accepts the unit, and ignores the drop-in from
    ///   the error on. The check of the merged unit ignores the same part.
    ///
    /// ```
    /// use fleet_unitfile::{UNIT_DIRECTORIES, UnitFile, UnitName, UnitTree};
    ///
    /// let main = UnitFile::parse("[Service]\nExecStart=/usr/bin/web\n")?;
    /// let drop_in = UnitFile::parse("[Service]\nExecStart=/usr/bin/web --again\n")?;
    /// let tree = UnitTree::new(&UNIT_DIRECTORIES, [
    ///     ("/usr/lib/systemd/system/web.service", main),
    ///     ("/etc/systemd/system/web.service.d/more.conf", drop_in),
    /// ]);
    /// let unit = tree.unit(&UnitName::parse("web.service")?);
    /// let findings = unit.check();
    /// assert_eq!(
    ///     findings[0].render().to_string(),
    ///     "error[U0402]: ExecStart: only a oneshot service can have several commands
    ///  --> /etc/systemd/system/web.service.d/more.conf:2:11
    ///   |
    /// 2 | ExecStart=/usr/bin/web --again
    ///   |           ^^^^^^^^^^^^^^^^^^^^
    ///   = help: write Type=oneshot, or move all but the last command to ExecStartPre=
    /// ",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self) -> Vec<Finding> {
        self.check_for(None)
    }

    /// Checks a unit with all its drop-ins for one version of systemd, like
    /// [`UnitFile::check_for`].
    pub fn check_for(&self, version: impl Into<Option<SystemdVersion>>) -> Vec<Finding> {
        if self.is_masked() {
            return Vec::new();
        }
        let (name, version) = (self.name(), version.into());
        let mut checkers: Vec<_> =
            self.parts().iter().map(|part| Checker::new(name, &part.file, version)).collect();
        if let Some(main) = self.main() {
            let (whole, origins) = joined(self);
            for (option, error) in cross_option::check(name, &whole) {
                match option.and_then(|option| origin(&whole, &origins, option)) {
                    Some((part, option)) => checkers[part].push_value_error(option, error),
                    None => checkers[0].push(sections::missing_span(name, &main.file), error),
                }
            }
        }
        let all = self.parts().iter().zip(checkers);
        all.flat_map(|(part, checker)| checker.finish(&part.path)).collect()
    }
}

/// The origin of an option in a merged unit: the index of its file, and the option in that file.
type Origin<'a> = (usize, OptionView<'a>);

/// Builds a single file from all options that systemd reads, in order. In a drop-in, these are the
/// options before its first error. Also returns the origin of each option.
fn joined(unit: &MergedUnit) -> (UnitFile, Vec<Origin<'_>>) {
    let (mut source, mut origins) = (String::new(), Vec::new());
    for (number, part) in unit.parts().iter().enumerate() {
        // An error in the unit file itself is reported in any case.
        let is_read = |option: &OptionView<'_>| number == 0 || !stops(unit.name(), *option);
        for option in part.file.options().take_while(is_read) {
            let (section, name) = (option.section(), option.name());
            source.push_str(&format!("[{section}]\n{name}={}\n", option.verbatim()));
            origins.push((number, option));
        }
    }
    (UnitFile::parse_collecting(source).0, origins)
}

/// Returns `true` if systemd stops reading a file at this option.
fn stops(name: &UnitName, option: OptionView<'_>) -> bool {
    let kind = table::kind(option.section(), option.name());
    let errors = kind.map(|kind| kind.check(option.name(), option.value(), name));
    errors.into_iter().flatten().any(|error| error.code.severity() == Severity::Error)
}

fn origin<'a>(
    whole: &UnitFile,
    origins: &[Origin<'a>],
    option: OptionView<'_>,
) -> Option<Origin<'a>> {
    let at = whole.options().position(|it| it.span() == option.span())?;
    origins.get(at).copied()
}
