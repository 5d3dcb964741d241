//! A unit file: the source byte for byte, and what it says.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use crate::diagnostic::{Diagnostic, Location, ParseError, Severity, Span};
use crate::hash::UnitHash;
use crate::locate::Locator;
use crate::option::{OptionView, UnitOption};
use crate::options::Options;
use crate::parse::{Parsed, parse};
use crate::reset::{names_of_list, takes_back};
use crate::text::Text;
use crate::write::{OptionError, canonical, check};

/// The text of a unit and the options in it.
///
/// The source is kept byte for byte, comments and blank lines included; reading never changes
/// it. Two unit files are equal when their sources are; they mean the same to a service manager
/// when their [`hash`](Self::hash)es are equal. A clone shares everything.
///
/// ```
/// use fleet_unitfile::UnitFile;
///
/// let unit = UnitFile::parse("[Service]\nExecStart=/usr/bin/web \\\n  --port 80\n")?;
/// assert_eq!(unit.last("Service", "ExecStart"), Some("/usr/bin/web    --port 80"));
/// # Ok::<(), fleet_unitfile::ParseError>(())
/// ```
#[derive(Clone)]
pub struct UnitFile(Arc<Inner>);

struct Inner {
    text: Text,
    hash: OnceLock<UnitHash>,
}

impl UnitFile {
    /// Reads a source and refuses it where a line of it cannot be read.
    ///
    /// The service manager of systemd warns of some such lines and goes on without them; see
    /// [`parse_collecting`](Self::parse_collecting) for that.
    ///
    /// # Errors
    ///
    /// The first error of the source.
    pub fn parse(source: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        let mut parsed = parse(source.as_ref(), true);
        match parsed.diagnostics.pop_if(|last| last.severity() == Severity::Error) {
            Some(error) => Err(ParseError::new(error)),
            None => Ok(Self::new(parsed).0),
        }
    }

    /// Reads a source, goes on without the lines that cannot be read, and tells what is wrong.
    ///
    /// Diagnostics are in the order of the source. At most a thousand are kept, and one more
    /// where the first error comes after those. Where a section header cannot be read, the
    /// options below it are left out: they belong to no section that is known.
    pub fn parse_collecting(source: impl AsRef<[u8]>) -> (Self, Vec<Diagnostic>) {
        Self::new(parse(source.as_ref(), false))
    }

    /// Writes a unit file that holds the given options; its source is their canonical text.
    ///
    /// # Errors
    ///
    /// The first option that would not read back as the same, with the rule that it breaks.
    pub fn from_options(
        options: impl IntoIterator<Item = UnitOption>,
    ) -> Result<Self, OptionError> {
        let options: Vec<UnitOption> = options.into_iter().collect();
        options.iter().try_for_each(check)?;
        let mut source = String::new();
        canonical(options.iter(), &mut |piece| source.push_str(piece));
        let (unit, diagnostics) = Self::parse_collecting(source);
        debug_assert!(diagnostics.iter().all(|it| it.severity() < Severity::Error));
        Ok(unit)
    }

    /// The source, byte for byte as it was given.
    pub fn source(&self) -> &[u8] {
        self.0.text.source.as_bytes()
    }

    /// The source as text; `None` where a comment of it is not UTF-8.
    pub fn source_str(&self) -> Option<&str> {
        self.0.text.source.as_text()
    }

    /// Every option, in the order of the source.
    pub fn options(&self) -> Options<'_> {
        Options::new(&self.0.text)
    }

    /// The names of the sections in the order of their first headers, those without options too.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.0.text.sections()
    }

    /// Whether the source has a header of this section.
    pub fn has_section(&self, section: &str) -> bool {
        self.0.text.section_names().any(|name| name == section)
    }

    /// The options of this name in this section, in order. Case counts in both.
    pub fn values<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        self.options().named(section, [name])
    }

    /// The value of the last option of this name in this section.
    pub fn last<'a>(&'a self, section: &str, name: &str) -> Option<&'a str> {
        self.options().named(section, [name]).next_back().map(OptionView::value)
    }

    /// The values that count of an option that is a list: those after the last empty one, which
    /// takes back what was said before it.
    ///
    /// As in systemd, options that fill one list are taken back together: all of `Condition…=`,
    /// of `Assert…=`, of `Listen…=`, the triggers of a timer, those of a path unit, and pairs such
    /// as `BindPaths=` and `BindReadOnlyPaths=`. Of dependencies, such as those of `After=`,
    /// nothing is ever taken back.
    ///
    /// Where a list has an older name, such as `ReadWriteDirectories=` for `ReadWritePaths=`, the
    /// options of both names are in it, by whichever it is asked for.
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
    pub fn effective<'a>(
        &'a self,
        section: &'a str,
        name: &'a str,
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        let takes_back = |it: &OptionView<'_>| {
            it.value().is_empty() && it.section() == section && takes_back(section, it.name(), name)
        };
        let after = self.options().rfind(takes_back).map(|it| it.span().start);
        let all = self.options().named(section, names_of_list(section, name));
        let values = all.filter(|it| !it.value().is_empty());
        values.filter(move |it| Some(it.span().start) > after)
    }

    /// The last `Description=` of section `Unit`, or an empty text.
    pub fn description(&self) -> &str {
        self.last("Unit", "Description").unwrap_or_default()
    }

    /// The canonical text: only what means something, in one way of writing it.
    ///
    /// Options are grouped by section, sections in the order in which they first have an option,
    /// each option as `Name=value` with the value as it is [written](UnitOption::verbatim), and
    /// an empty line between sections. It reads back as the same options.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        canonical(self.options(), &mut |piece| text.push_str(piece));
        text
    }

    /// The SHA-1 of the canonical text, computed once.
    pub fn hash(&self) -> UnitHash {
        let compute = || UnitHash::of_pieces(|piece| canonical(self.options(), piece));
        *self.0.hash.get_or_init(compute)
    }

    /// The line and column of a byte offset of the source.
    ///
    /// A byte of a line end belongs to the end of its line, and so does an offset past the end.
    /// This counts lines from the start, so takes time in proportion to the offset.
    pub fn location(&self, offset: usize) -> Location {
        self.locator().location(offset)
    }

    /// The whole physical line that a byte offset of the source stands in, without its end.
    ///
    /// What is not UTF-8 is replaced by U+FFFD.
    pub fn line_text(&self, offset: usize) -> Cow<'_, str> {
        let line = self.locator().line(offset);
        line.map_or(Cow::Borrowed(""), |line| String::from_utf8_lossy(line.text))
    }

    /// Tells the lines of several offsets in one pass.
    pub(crate) fn locator(&self) -> Locator<'_> {
        Locator::new(self.source())
    }

    /// Where each header stands that can be read, with the name in it.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, Span)> {
        self.0.text.headers()
    }

    fn new(parsed: Parsed) -> (Self, Vec<Diagnostic>) {
        let inner = Inner { text: parsed.text, hash: OnceLock::new() };
        (Self(Arc::new(inner)), parsed.diagnostics)
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

    /// The same as [`parse`](Self::parse).
    fn from_str(source: &str) -> Result<Self, ParseError> {
        Self::parse(source)
    }
}

impl AsRef<[u8]> for UnitFile {
    /// The source.
    fn as_ref(&self) -> &[u8] {
        self.source()
    }
}

/// A unit file of no bytes, to put options into.
impl Default for UnitFile {
    fn default() -> Self {
        Self::parse_collecting("").0
    }
}
