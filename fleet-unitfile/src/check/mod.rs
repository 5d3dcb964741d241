//! Checks for text that systemd refuses or ignores, or probably reads differently than its author
//! intended.

mod choices;
mod command;
mod cross_option;
mod finding;
mod forms;
mod kind;
mod lists;
mod numbers;
mod sections;
mod specifiers;
mod system_words;
mod table;
mod values;

use std::collections::BTreeMap;

use crate::check::finding::ValueError;
use crate::file::UnitFile;
use crate::file::option::OptionView;
use crate::name::UnitName;
use crate::syntax::diagnostic::{Excerpt, Severity, Span};
use crate::tree::merge::MergedUnit;

pub use crate::check::finding::{Finding, FindingCode};
pub use crate::check::table::{
    Directive, SystemdVersion, SystemdVersionError, directives, directives_version,
};

/// Maximum number of findings of any severity. After these, only errors are kept, and only until
/// there are this many errors.
const MAX_FINDINGS: usize = 200;

impl UnitFile {
    /// Checks the unit file against systemd's rules for options and their values.
    ///
    /// Each finding has one of three severities:
    ///
    /// - error: systemd refuses the unit;
    /// - warning: systemd ignores the text, warns about it, or probably reads it differently than
    ///   its author intended;
    /// - hint: systemd accepts the text, but there is a newer way to write it.
    ///
    /// Findings are in source order. A missing option is reported at the header of its section.
    /// After two hundred findings, only errors are kept, and only until there are two hundred
    /// errors. An empty file has a single finding: the file masks the unit.
    ///
    /// `name` determines the allowed sections and, for a mount unit, the required value of
    /// `Where=`. The check does not cover:
    ///
    /// - sections and options with a name that begins with `X-`;
    /// - values that depend on the machine, such as names of system calls;
    /// - the existence of users, programs, devices and other units;
    /// - the grammar, because parsing has already checked it. To include the diagnostics of
    ///   [`parse_collecting`](UnitFile::parse_collecting), convert them with [`Finding`]'s
    ///   `From<&Diagnostic>`.
    ///
    /// ```
    /// use fleet_unitfile::check::FindingCode;
    /// use fleet_unitfile::{Severity, UnitFile};
    ///
    /// let unit: UnitFile = "[Service]\nExecStart=/usr/bin/web\nRestrat=always\n".parse()?;
    /// let findings = unit.check(&"web.service".parse()?);
    /// assert_eq!(findings.len(), 1);
    /// assert_eq!(findings[0].code(), FindingCode::UnknownKey);
    /// assert_eq!(findings[0].severity(), Severity::Warning);
    /// assert_eq!(findings[0].help(), "write Restart");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, name: &UnitName) -> Vec<Finding> {
        self.check_for(name, None)
    }

    /// Parses and checks a source. Returns the unit file, without the invalid lines of the source,
    /// and the findings about the grammar and the options, in the order of their positions.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let source = "[Service]\nExecStart=/usr/bin/web\nNice=no\nRestart\n";
    /// let (unit, findings) = UnitFile::check_source(&"web.service".parse()?, source);
    /// assert_eq!(unit.options().count(), 2);
    /// let codes: Vec<_> = findings.iter().map(|it| it.code().as_str()).collect();
    /// assert_eq!(codes, ["U0204", "U0007"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_source(name: &UnitName, source: impl AsRef<[u8]>) -> (Self, Vec<Finding>) {
        let (file, diagnostics) = Self::parse_collecting(source);
        let grammar = diagnostics.iter().map(|it| Finding::from(it).in_file(name.as_str()));
        let mut findings: Vec<Finding> = grammar.chain(file.check(name)).collect();
        findings.sort_by_key(|finding| finding.span().start);
        (file, findings)
    }

    /// Checks the unit file like [`check`](Self::check), for one version of systemd.
    ///
    /// The result also has a finding for each option, value and specifier that this version does
    /// not know yet, or does not know any more. `None`, like `check`, accepts those of all versions
    /// from 252 on. Values whose rules changed between versions are checked by the rules of systemd
    /// 252.
    ///
    /// ```
    /// use fleet_unitfile::check::{FindingCode, SystemdVersion};
    /// use fleet_unitfile::{UnitFile, UnitName};
    ///
    /// let name = UnitName::parse("web.service")?;
    /// let unit: UnitFile = "[Service]\nExecStart=/usr/bin/web\nPrivatePIDs=yes\n".parse()?;
    /// assert!(unit.check(&name).is_empty());
    /// let findings = unit.check_for(&name, SystemdVersion::new(252));
    /// assert_eq!(findings[0].code(), FindingCode::TooNew);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_for(
        &self,
        name: &UnitName,
        version: impl Into<Option<SystemdVersion>>,
    ) -> Vec<Finding> {
        check_with(name, self, version.into())
    }

    /// Checks a drop-in by itself, like [`check_for`](Self::check_for), but without the rules about
    /// the unit as a whole. For example, it may have no command.
    ///
    /// ```
    /// use fleet_unitfile::{UnitFile, UnitName};
    ///
    /// let name = UnitName::parse("web.service")?;
    /// let drop_in: UnitFile = "[Service]\nNice=5\n".parse()?;
    /// assert!(drop_in.check_drop_in(&name, None).is_empty());
    /// assert_eq!(drop_in.check(&name).len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_drop_in(
        &self,
        name: &UnitName,
        version: impl Into<Option<SystemdVersion>>,
    ) -> Vec<Finding> {
        Checker::new(name, self, version.into()).finish(name.as_str())
    }
}

fn check_with(name: &UnitName, file: &UnitFile, version: Option<SystemdVersion>) -> Vec<Finding> {
    let mut checker = Checker::new(name, file, version);
    if file.source().is_empty() {
        let message = "an empty file masks the unit: it cannot be started";
        let help = "write options into the file, or link it to /dev/null if the mask is intended";
        checker.push(Span::default(), ValueError::new(FindingCode::Masked, message, help));
        return checker.finish(name.as_str());
    }
    for (option, error) in cross_option::check(name, file) {
        match option {
            Some(option) => checker.push_value_error(option, error),
            None => checker.push(sections::missing_span(name, file), error),
        }
    }
    checker.finish(name.as_str())
}

struct Checker<'a> {
    file: &'a UnitFile,
    version: Option<SystemdVersion>,
    raw: Vec<(Span, ValueError)>,
    errors: usize,
}

impl<'a> Checker<'a> {
    /// Runs all checks that need no other file.
    fn new(name: &UnitName, file: &'a UnitFile, version: Option<SystemdVersion>) -> Self {
        let mut checker = Self { file, version, raw: Vec::new(), errors: 0 };
        for (header, error) in sections::check(name, file).take(MAX_FINDINGS) {
            checker.push(header, error);
        }
        for option in file.options() {
            checker.option(name, option);
        }
        checker.repeated();
        checker
    }

    /// Checks one option: its name and, if that is known, its value.
    fn option(&mut self, name: &UnitName, option: OptionView<'_>) {
        let section = option.section();
        if sections::is_ignored(name, section) || option.name().starts_with("X-") {
            return;
        }
        let at = self.name(option);
        match table::kind(section, option.name()) {
            Some(_) if table::is_of_podman(section) => {}
            Some(kind) => {
                if let Some(version) = self.version {
                    if let Some(error) = table::name_in_version(option, version) {
                        return self.push(at, error);
                    }
                    if let Some(error) = table::value_in_version(kind, option, version) {
                        self.push_value_error(option, error);
                    }
                }
                if let Some(error) = sections::outdated(option) {
                    self.push(at, error);
                }
                if let Some(error) = sections::legacy_path(kind, option) {
                    self.push_value_error(option, error);
                }
                for error in kind.check(option.name(), option.value(), name) {
                    self.push_value_error(option, error);
                }
                for error in sections::check_install(name, option) {
                    self.push_value_error(option, error);
                }
            }
            None if let Some(error) = sections::without_effect(option) => self.push(at, error),
            None if table::has_unlisted_directives(section) => {}
            // The finding would not be kept, and the search for a suggestion takes time.
            None if self.raw.len() >= MAX_FINDINGS => {}
            None => self.push(at, sections::unknown_key(name, section, option.name())),
        }
    }

    /// Reports options that take one value and are set more than once.
    fn repeated(&mut self) {
        // Further findings would not be kept.
        let room = MAX_FINDINGS.saturating_sub(self.raw.len());
        let mut again: Vec<_> = repeated_options(self.file).take(room).collect();
        again.sort_by_key(|(first, _)| *first);
        let mut lines = self.file.locator();
        for (first, option) in again {
            let line = lines.location(first).line;
            let message = format!("{} is already set in line {line}", option.name());
            let help = "remove one of the two lines: only the last line has an effect";
            let error = ValueError::new(FindingCode::Repeated, message, help);
            self.push(self.name(option), error);
        }
    }

    /// Returns the span of an option's name. If a backslash continues the name on another line,
    /// returns the span of the whole option.
    fn name(&self, option: OptionView<'_>) -> Span {
        let start = option.span().start;
        let span = Span { start, end: start + option.name().len() };
        let written = self.file.source().get(span.start..span.end);
        if written == Some(option.name().as_bytes()) { span } else { option.span() }
    }

    /// Adds a finding about the value of an option. The finding marks the whole value, unless
    /// `error` contains the position of the affected part.
    fn push_value_error(&mut self, option: OptionView<'_>, error: ValueError) {
        let whole = match option.value() {
            "" => option.span(),
            _ => option.value_span(),
        };
        let written = self.file.source().get(whole.start..whole.end);
        // A continued value reads differently than it is written.
        let is_plain = written == Some(option.value().as_bytes());
        let span = match &error.at {
            at if at.is_empty() || !is_plain => whole,
            at => Span { start: whole.start + at.start, end: whole.start + at.end },
        };
        let message = format!("{}: {}", option.name(), error.message);
        self.push(span, ValueError { message, ..error });
    }

    fn push(&mut self, span: Span, error: ValueError) {
        let is_error = error.code.severity() == Severity::Error;
        if self.raw.len() < MAX_FINDINGS || (is_error && self.errors < MAX_FINDINGS) {
            self.errors += usize::from(is_error);
            self.raw.push((span, error));
        }
    }

    /// Sorts the findings and resolves their lines.
    fn finish(mut self, file: &str) -> Vec<Finding> {
        self.raw.sort_by_key(|(span, error)| (span.start, error.code));
        let mut lines = self.file.locator();
        let findings = self.raw.into_iter().map(|(span, error)| Finding {
            file: file.to_owned(),
            code: error.code,
            span,
            location: lines.location(span.start),
            message: error.message,
            help: error.help,
            excerpt: Excerpt::new(self.file.source(), 0, span),
        });
        findings.collect()
    }
}

/// Returns each option that replaces the value of an earlier option with the same section and name,
/// together with the offset of that earlier option.
///
/// An option is not returned if an empty value stands between it and the earlier option, because
/// that value has already reset the earlier one.
fn repeated_options(file: &UnitFile) -> impl Iterator<Item = (usize, OptionView<'_>)> {
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    file.options().filter_map(move |option| {
        let key = (option.section(), option.name());
        if !table::kind(key.0, key.1).is_some_and(kind::Kind::is_single) {
            return None;
        }
        if option.value().is_empty() {
            seen.remove(&key);
            return None;
        }
        seen.insert(key, option.span().start).map(|first| (first, option))
    })
}

impl MergedUnit {
    /// Checks a unit with all its drop-ins, like [`UnitFile::check`].
    ///
    /// Sections, options and values are checked file by file. Required options and conflicts are
    /// checked on the merged unit, because a drop-in may add a missing `ExecStart=`, or set a
    /// second one. The findings are in the order in which systemd reads the files.
    ///
    /// Special cases:
    ///
    /// - A masked unit has no findings.
    /// - If a unit has no [unit file](MergedUnit::main), only its drop-ins are checked, and missing
    ///   options are not reported. A drop-in can therefore be checked alone.
    /// - If a drop-in contains an error, systemd still accepts the unit, and ignores the drop-in
    ///   from the error on. The check of the merged unit ignores the same part.
    ///
    /// ```
    /// use fleet_unitfile::tree::UNIT_DIRECTORIES;
    /// use fleet_unitfile::{UnitFile, UnitName, UnitTree};
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
