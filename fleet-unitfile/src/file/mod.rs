//! A unit file: its source, byte for byte, and the options in it.

pub(crate) mod canonical;
pub(crate) mod index;
pub(crate) mod option;
pub(crate) mod options;
pub(crate) mod text;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use crate::file::canonical::{OptionError, UnitHash, canonical, check};
use crate::file::option::{OptionView, UnitOption};
use crate::file::options::{Options, SectionInstance, names_of_list, resets};
use crate::file::text::{Locator, ParsedSource, Text, parse};
use crate::syntax::diagnostic::{Diagnostic, Location, ParseError, Severity, Span};
use crate::syntax::lines::MarkedSource;

/// The source text of a unit, and the options in it.
///
/// Parsing keeps the source byte for byte, including comments and blank lines.
///
/// Two unit files are equal if their sources are equal. If only their [`hash`](Self::hash)es are
/// equal, they still have the same meaning for a service manager. Clones share all data.
///
/// ```
/// use fleet_unitfile::UnitFile;
///
/// let unit = UnitFile::parse("[Service]\nExecStart=/usr/bin/web \\\n  --port 80\n")?;
/// assert_eq!(unit.get("Service", "ExecStart"), Some("/usr/bin/web    --port 80"));
/// # Ok::<(), fleet_unitfile::ParseError>(())
/// ```
#[derive(Clone)]
pub struct UnitFile(Arc<Inner>);

struct Inner {
    text: Text,
    hash: OnceLock<UnitHash>,
}

impl UnitFile {
    /// Parses a source strictly: an invalid line is an error.
    ///
    /// systemd itself only warns about some of these lines and skips them.
    /// [`parse_collecting`](Self::parse_collecting) skips them as well.
    ///
    /// # Errors
    ///
    /// Returns the first error in the source.
    pub fn parse(source: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        let mut parsed = parse(source.as_ref(), true);
        match parsed.diagnostics.pop_if(|last| last.severity() == Severity::Error) {
            Some(error) => Err(ParseError::new(error)),
            None => Ok(Self::new(parsed).0),
        }
    }

    /// Parses a source and skips invalid lines. Returns the unit file and the diagnostics about the
    /// source.
    ///
    /// If a section header is invalid, the options below it are skipped, because their section is
    /// unknown.
    ///
    /// Diagnostics are in source order, and at most a thousand are kept. If all of these are
    /// warnings, the first error after them is kept in addition.
    pub fn parse_collecting(source: impl AsRef<[u8]>) -> (Self, Vec<Diagnostic>) {
        Self::new(parse(source.as_ref(), false))
    }

    /// Builds a unit file from options. The source of the unit file is the canonical text of the
    /// options.
    ///
    /// # Errors
    ///
    /// Returns an error for the first option that would change if it were written to the source and
    /// parsed again.
    pub fn from_options(
        options: impl IntoIterator<Item = UnitOption>,
    ) -> Result<Self, OptionError> {
        let options: Vec<UnitOption> = options.into_iter().collect();
        options.iter().try_for_each(check)?;
        let mut source = String::new();
        canonical(options.iter(), false, &mut |piece| source.push_str(piece));
        let (unit, diagnostics) = Self::parse_collecting(source);
        debug_assert!(diagnostics.iter().all(|it| it.severity() < Severity::Error));
        Ok(unit)
    }

    /// Returns the source, byte for byte.
    pub fn source(&self) -> &[u8] {
        self.0.text.source.as_bytes()
    }

    /// Returns the source as text, or `None` if it is not UTF-8. Only comments and skipped lines
    /// can contain invalid UTF-8.
    pub fn source_str(&self) -> Option<&str> {
        self.0.text.source.as_text()
    }

    /// Returns all options, in source order.
    pub fn options(&self) -> Options<'_> {
        Options::new(&self.0.text)
    }

    /// Returns the options of a section, in source order, from all its headers.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let unit: UnitFile = "[Service]\nUser=web\n Nice = 5\n".parse()?;
    /// let option = unit.section("Service").nth(1).ok_or("missing")?;
    /// assert_eq!((option.line(), option.column()), (3, 2));
    /// assert_eq!((option.name(), option.value()), ("Nice", "5"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn section<'a>(
        &'a self,
        section: &'a str,
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        self.options().filter(move |option| option.section() == section)
    }

    /// Returns the names of the sections in the order of their first headers. Sections without
    /// options are included.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.0.text.sections()
    }

    /// Returns `true` if the source has a header of this section.
    pub fn has_section(&self, section: &str) -> bool {
        self.0.text.section_names().any(|name| name == section)
    }

    /// Returns the instances of a section, in order: one for each of its headers.
    ///
    /// systemd reads the headers of a section in a unit as one section. In files of networkd, each
    /// `[Address]`, `[Route]` or `[WireGuardPeer]` is a thing of its own.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let network = UnitFile::parse("[Route]\nGateway=10.0.0.1\n[Route]\nGateway=10.0.0.2\n")?;
    /// let gateways = network.section_instances("Route").map(|it| it.get("Gateway"));
    /// assert!(gateways.eq([Some("10.0.0.1"), Some("10.0.0.2")]));
    /// # Ok::<(), fleet_unitfile::ParseError>(())
    /// ```
    pub fn section_instances<'a>(
        &'a self,
        section: &'a str,
    ) -> impl Iterator<Item = SectionInstance<'a>> {
        self.0.text.instances().filter(move |instance| instance.name() == section)
    }

    /// Returns the options with this section and name, in order. Both are case-sensitive.
    pub fn values<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        self.options().named(section, [name])
    }

    /// Returns the effective value of an option: the last one that no empty value resets. For a
    /// list, [`effective`](Self::effective) returns all of them.
    ///
    /// systemd ignores an empty value of some options, such as `Restart=`, with a warning. For such
    /// an option this function returns `None`, and [`check`](Self::check) reports the empty value.
    /// Whether an option is written at all is a question for [`values`](Self::values).
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let unit: UnitFile = "[Service]\nUser=web\nRestart=no\nRestart=always\nUser=\n".parse()?;
    /// assert_eq!(unit.get("Service", "Restart"), Some("always"));
    /// assert_eq!(unit.get("Service", "User"), None);
    /// # Ok::<(), fleet_unitfile::ParseError>(())
    /// ```
    pub fn get<'a>(&'a self, section: &str, name: &str) -> Option<&'a str> {
        self.effective(section, name).next_back().map(OptionView::value)
    }

    /// Returns the options that make up a list: those after the last empty value, because an empty
    /// value resets the list.
    ///
    /// As in systemd, an empty value also resets the other options that fill the same list. Each of
    /// these groups fills one list:
    ///
    /// - all `Condition…=`;
    /// - all `Assert…=`;
    /// - all `Listen…=`;
    /// - the time triggers of a timer, such as `OnCalendar=` and `OnBootSec=`;
    /// - the triggers of a path unit, such as `PathExists=`;
    /// - pairs such as `BindPaths=` and `BindReadOnlyPaths=`.
    ///
    /// The result contains only the options called `name`, not the others of the group.
    ///
    /// Dependencies, such as those of `After=`, are never reset.
    ///
    /// Some lists also have an older name, such as `ReadWriteDirectories=` for `ReadWritePaths=`.
    /// For such a list, the result contains the options of both names, whether the older or the
    /// newer one is passed.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let unit = UnitFile::parse("[Service]\nExecStart=/bin/a\nExecStart=\nExecStart=/bin/b\n")?;
    /// let commands = unit.effective("Service", "ExecStart").map(|it| it.value());
    /// assert_eq!(commands.collect::<Vec<_>>(), ["/bin/b"]);
    ///
    /// let unit = UnitFile::parse("[Timer]\nOnCalendar=daily\nOnBootSec=\nOnBootSec=1h\n")?;
    /// assert_eq!(unit.effective("Timer", "OnCalendar").count(), 0);
    /// # Ok::<(), fleet_unitfile::ParseError>(())
    /// ```
    pub fn effective<'a, 'n>(
        &'a self,
        section: &'n str,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        let resets = |it: &OptionView<'_>| {
            it.value().is_empty() && it.section() == section && resets(section, it.name(), name)
        };
        let after = self.options().rfind(resets).map(|it| it.span().start);
        let all = self.options().named(section, names_of_list(section, name));
        let values = all.filter(|it| !it.value().is_empty());
        values.filter(move |it| Some(it.span().start) > after)
    }

    /// Returns the last `Description=` of section `Unit`, or an empty string.
    pub fn description(&self) -> &str {
        self.get("Unit", "Description").unwrap_or_default()
    }

    /// Returns the canonical text: the options alone, in a fixed layout.
    ///
    /// Options are grouped by section, in the order of the first option of each section. A section
    /// of networkd that may occur several times, such as `[Route]`, is kept apart from the others
    /// of its name. Each option is written as `Name=value`, with the value as
    /// [written](UnitOption::verbatim). An empty line separates sections. Parsing the text yields
    /// the same options.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        canonical(self.options(), !self.source().is_ascii(), &mut |piece| text.push_str(piece));
        text
    }

    /// Returns the SHA-1 of the canonical text, computed once.
    pub fn hash(&self) -> UnitHash {
        let may_have_marks = || !self.source().is_ascii();
        let compute =
            || UnitHash::from_pieces(|piece| canonical(self.options(), may_have_marks(), piece));
        *self.0.hash.get_or_init(compute)
    }

    /// Returns the line and column of a byte offset of the source.
    ///
    /// For a byte of a line end, the column is the one after the last character of the line. An
    /// offset past the end of the source counts as the end of the last line. The time is
    /// proportional to the offset, because lines are counted from the start.
    pub fn location(&self, offset: usize) -> Location {
        self.locator().location(offset)
    }

    /// Returns a cursor that resolves ascending offsets in one pass.
    pub(crate) fn locator(&self) -> Locator<'_> {
        Locator::new(self.marked())
    }

    /// Returns the name and span of each valid header.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, Span)> {
        self.0.text.headers()
    }

    /// Returns the source with the place of its byte order mark.
    pub(crate) fn marked(&self) -> MarkedSource<'_> {
        self.0.text.marked()
    }

    fn new(parsed: ParsedSource) -> (Self, Vec<Diagnostic>) {
        let inner = Inner { text: parsed.text, hash: OnceLock::new() };
        (Self(Arc::new(inner)), parsed.diagnostics)
    }
}

/// Writes the source. Invalid UTF-8, which only comments and skipped lines can have, is replaced by
/// U+FFFD.
impl fmt::Display for UnitFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.source()))
    }
}

impl fmt::Debug for UnitFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnitFile").field(&String::from_utf8_lossy(self.source())).finish()
    }
}

impl PartialEq for UnitFile {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl Eq for UnitFile {}

impl Hash for UnitFile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source().hash(state);
    }
}

impl FromStr for UnitFile {
    type Err = ParseError;

    /// Parses strictly, like [`parse`](Self::parse).
    fn from_str(source: &str) -> Result<Self, ParseError> {
        Self::parse(source)
    }
}

impl TryFrom<Vec<u8>> for UnitFile {
    type Error = ParseError;

    /// Parses strictly, like [`parse`](Self::parse).
    fn try_from(source: Vec<u8>) -> Result<Self, ParseError> {
        Self::parse(source)
    }
}

impl TryFrom<String> for UnitFile {
    type Error = ParseError;

    /// Parses strictly, like [`parse`](Self::parse).
    fn try_from(source: String) -> Result<Self, ParseError> {
        Self::parse(source)
    }
}

impl AsRef<[u8]> for UnitFile {
    /// Returns the source.
    fn as_ref(&self) -> &[u8] {
        self.source()
    }
}

/// An empty unit file, as a starting point for edits.
impl Default for UnitFile {
    fn default() -> Self {
        Self::parse_collecting("").0
    }
}
