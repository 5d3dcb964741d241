//! Checking: what systemd would refuse, ignore, or take in another way than it looks.

mod access;
mod advice;
mod calendar;
mod choices;
mod code;
mod command;
mod finding;
mod flaw;
mod kind;
mod lists;
mod merged;
mod near;
mod numbers;
mod render;
mod sections;
mod specifiers;
mod table;
mod values;
mod whole;

use std::collections::BTreeMap;

pub use code::FindingCode;
pub use finding::Finding;
pub use merged::{MergedFinding, check_merged};
pub use table::{Directive, directives, directives_version};

use self::flaw::Flaw;
use crate::diagnostic::{Severity, Span};
use crate::file::UnitFile;
use crate::name::UnitName;
use crate::option::OptionView;

/// How many findings are kept. Past that, only errors are added, and as many of them at most.
const MOST: usize = 200;

/// Checks a unit file against all that systemd knows about options and their values.
///
/// Errors are what systemd refuses the unit for; warnings are what it ignores, takes in another
/// way than it looks, or warns of itself; hints are what it takes, though there is a better way by
/// now. Findings are in the order of the source; what is missing is told at the
/// header of the section. At most two hundred are kept, and as many errors of those that come
/// after them. Of an empty file nothing is told but that it masks the unit.
///
/// The name counts: it tells which sections there may be, and what `Where=` has to be. Sections and
/// options that begin with `X-` are left alone. Of a few options the values are not checked:
/// those that depend on the machine, such as names of system calls. That a user, a program, a
/// device or another unit exists is never checked.
///
/// The grammar is not checked again: what
/// [`parse_collecting`](UnitFile::parse_collecting) found can be added as it is, see
/// [`Finding`]'s `From<&Diagnostic>`.
///
/// ```
/// use fleet_unitfile::{FindingCode, Severity, UnitFile, UnitName, check};
///
/// let name = UnitName::parse("web.service")?;
/// let file = UnitFile::parse("[Service]\nExecStart=/usr/bin/web\nRestrat=always\n")?;
/// let findings = check(&name, &file);
/// assert_eq!(findings.len(), 1);
/// assert_eq!(findings[0].code(), FindingCode::UnknownKey);
/// assert_eq!(findings[0].severity(), Severity::Warning);
/// assert_eq!(findings[0].help(), "write Restart");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(name: &UnitName, file: &UnitFile) -> Vec<Finding> {
    let mut checker = Checker::new(name, file);
    if file.source().is_empty() {
        let message = "an empty file masks the unit, which then cannot be started";
        let help = "write a unit into it, or link it to /dev/null to show that this is meant";
        checker.keep(Span::default(), Flaw::whole(FindingCode::Masked, message, help));
        return checker.finish();
    }
    for (option, flaw) in whole::check(name, file) {
        match option {
            Some(option) => checker.value(option, flaw),
            None => checker.keep(sections::place(name, file), flaw),
        }
    }
    checker.finish()
}

struct Checker<'a> {
    file: &'a UnitFile,
    raw: Vec<(Span, Flaw)>,
    errors: usize,
}

impl<'a> Checker<'a> {
    /// Checks all that can be told of a file without what other files say.
    fn new(name: &UnitName, file: &'a UnitFile) -> Self {
        let mut checker = Self { file, raw: Vec::new(), errors: 0 };
        for (header, flaw) in sections::check(name, file).take(MOST) {
            checker.keep(header, flaw);
        }
        for option in file.options() {
            checker.option(name, option);
        }
        checker.repeated();
        checker
    }

    /// Checks one option by its name and, if that is known, by its value.
    fn option(&mut self, name: &UnitName, option: OptionView<'_>) {
        let section = option.section();
        if sections::is_ignored(name, section) || option.name().starts_with("X-") {
            return;
        }
        let at = self.name(option);
        match table::kind(section, option.name()) {
            Some(kind) => {
                if let Some(flaw) = advice::outdated(option) {
                    self.keep(at, flaw);
                }
                if let Some(flaw) = advice::legacy_path(kind, option) {
                    self.value(option, flaw);
                }
                for flaw in kind.check(option.name(), option.value(), name) {
                    self.value(option, flaw);
                }
            }
            None if table::is_open(section) => {}
            // It would not be kept, and finding what was meant takes its time.
            None if self.raw.len() >= MOST => {}
            None => self.keep(at, sections::unknown_key(name, section, option.name())),
        }
    }

    /// Tells of options with one value that are set again.
    fn repeated(&mut self) {
        // More would not be kept.
        let room = MOST.saturating_sub(self.raw.len());
        let mut again: Vec<_> = set_again(self.file).take(room).collect();
        again.sort_by_key(|(first, _)| *first);
        let mut lines = self.file.locator();
        for (first, option) in again {
            let line = lines.location(first).line;
            let message = format!("{} is set in line {line}, too", option.name());
            let flaw = Flaw::whole(FindingCode::Repeated, message, "keep the one that is meant");
            self.keep(self.name(option), flaw);
        }
    }

    /// Where the name of an option stands; all of the option, where a line ends in its name.
    fn name(&self, option: OptionView<'_>) -> Span {
        let start = option.span().start;
        let span = Span { start, end: start + option.name().len() };
        let written = self.file.source().get(span.start..span.end);
        if written == Some(option.name().as_bytes()) { span } else { option.span() }
    }

    /// Keeps what is wrong with a value, at the part of it that is wrong where that is known.
    fn value(&mut self, option: OptionView<'_>, flaw: Flaw) {
        let whole = match option.value() {
            "" => option.span(),
            _ => option.value_span(),
        };
        let written = self.file.source().get(whole.start..whole.end);
        // A value of several lines reads in another way than it is written.
        let is_plain = written == Some(option.value().as_bytes());
        let span = match &flaw.at {
            at if at.is_empty() || !is_plain => whole,
            at => Span { start: whole.start + at.start, end: whole.start + at.end },
        };
        let message = format!("{}: {}", option.name(), flaw.message);
        self.keep(span, Flaw { message, ..flaw });
    }

    fn keep(&mut self, span: Span, flaw: Flaw) {
        let is_error = flaw.code.severity() == Severity::Error;
        if self.raw.len() < MOST || (is_error && self.errors < MOST) {
            self.errors += usize::from(is_error);
            self.raw.push((span, flaw));
        }
    }

    /// Puts all findings in order and finds their lines.
    fn finish(mut self) -> Vec<Finding> {
        self.raw.sort_by_key(|(span, flaw)| (span.start, flaw.code));
        let mut lines = self.file.locator();
        let findings = self.raw.into_iter().map(|(span, flaw)| Finding {
            code: flaw.code,
            span,
            location: lines.location(span.start),
            message: flaw.message,
            help: flaw.help,
        });
        findings.collect()
    }
}

/// The options with one value that are set again, and where they were set before.
fn set_again(file: &UnitFile) -> impl Iterator<Item = (usize, OptionView<'_>)> {
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
