//! Edits that leave every other byte of the source unchanged, and the normal form.

mod splice;

use crate::file::UnitFile;
use crate::file::canonical::{OptionError, check, check_section};
use crate::file::option::{OptionView, UnitOption};
use crate::syntax::assignment::{LogicalLine, trimmed_end};
use crate::syntax::lines::{BYTE_ORDER_MARK, Line, MarkedSource, trim_end, trim_start};

/// Several edits of a unit file, which [`apply`](Self::apply) carries out together.
///
/// Each edit changes only its own part of the source: every other byte stays, including comments
/// and spacing. Edits see the result of the edits before them. If one is refused, or if the editor
/// is dropped without `apply`, the unit file is unchanged.
///
/// A refused edit is an [`OptionError`]: the option would not read back as it was written, for
/// example because its value contains a line end.
///
/// ```
/// use fleet_unitfile::UnitFile;
///
/// let mut unit: UnitFile = "[Service]\nNice = 5 \nUser=web\n# The end.\n".parse()?;
/// unit.edit()
///     .set("Service", "Nice", "10")?
///     .add("Install", "WantedBy", "multi-user.target")?
///     .remove("Service", "User")
///     .apply();
/// let text = "[Service]\nNice = 10\n# The end.\n\n[Install]\nWantedBy=multi-user.target\n";
/// assert_eq!(unit.to_string(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "edits take effect with `apply`"]
pub struct Editor<'a> {
    unit: &'a mut UnitFile,
    draft: UnitFile,
}

impl UnitFile {
    /// Begins to edit this unit file.
    pub fn edit(&mut self) -> Editor<'_> {
        let draft = self.clone();
        Editor { unit: self, draft }
    }

    /// Returns this unit file in normal form:
    ///
    /// - Headers, names and values have no blanks around them.
    /// - All line ends are line feeds.
    /// - One empty line precedes each header, unless the header is the first line or below a
    ///   comment.
    /// - No empty line separates a header from the option or comment below it.
    /// - Elsewhere, several empty lines in a row become one. At the start and the end, they are
    ///   removed.
    ///
    /// The options keep their meaning, and the [`hash`](Self::hash) is unchanged. Comments and
    /// invalid lines stay in place. The lines of a continued value keep their indentation.
    ///
    /// ```
    /// let unit = fleet_unitfile::UnitFile::parse("[A]\r\n\r\n K = v\r\n# c\r\n\r\n\r\n[B]\r\n")?;
    /// assert_eq!(unit.formatted().source_str(), Some("[A]\nK=v\n# c\n\n[B]\n"));
    /// # Ok::<(), fleet_unitfile::ParseError>(())
    /// ```
    pub fn formatted(&self) -> Self {
        Self::parse_collecting(formatted(self.marked())).0
    }
}

impl Editor<'_> {
    /// Sets an option: replaces the last one with this section and name. If there is none, adds the
    /// option like [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// Returns an error if the option cannot be written.
    pub fn set(
        &mut self,
        section: &str,
        name: &str,
        value: &str,
    ) -> Result<&mut Self, OptionError> {
        let option = UnitOption::new(section, name, value);
        check(&option)?;
        let (source, options) = (self.draft.marked(), self.draft.options());
        let edited = match options.clone().named(section, [name]).next_back() {
            Some(old) => splice::replaced(source, [(old, option)]),
            None => splice::added(source, options, &option),
        };
        Ok(self.draft(&edited))
    }

    /// Adds an option:
    ///
    /// - after the last option of the section;
    /// - below the header, if the section has no options;
    /// - in a new section at the end, if the section does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the option cannot be written.
    pub fn add(
        &mut self,
        section: &str,
        name: &str,
        value: &str,
    ) -> Result<&mut Self, OptionError> {
        let option = UnitOption::new(section, name, value);
        check(&option)?;
        let edited = splice::added(self.draft.marked(), self.draft.options(), &option);
        Ok(self.draft(&edited))
    }

    /// Removes all options with this section and name, each with the comments between its lines.
    pub fn remove(&mut self, section: &str, name: &str) -> &mut Self {
        let options = self.draft.options().named(section, [name]);
        let edited = splice::removed(self.draft.marked(), options);
        self.draft(&edited)
    }

    /// Renames all options with this section and name.
    ///
    /// # Errors
    ///
    /// Returns an error if the new name cannot be written.
    pub fn rename(
        &mut self,
        section: &str,
        old: &str,
        new: &str,
    ) -> Result<&mut Self, OptionError> {
        let mut changes = Vec::new();
        for option in self.draft.values(section, old) {
            let renamed = UnitOption::new(section, new, option.verbatim());
            check(&renamed)?;
            changes.push((option, renamed));
        }
        let edited = splice::renamed(self.draft.marked(), changes);
        Ok(self.draft(&edited))
    }

    /// Changes the values of many options in one pass. `value` gets each option, and returns its
    /// new value, or `None` to keep the old one.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let mut unit = UnitFile::parse("[Service]\nUser=%i\nGroup=web\n")?;
    /// let expand = |value: &str| value.contains("%i").then(|| value.replace("%i", "a"));
    /// unit.edit().set_values(|option| expand(option.value()))?.apply();
    /// assert_eq!(unit.to_string(), "[Service]\nUser=a\nGroup=web\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error for the first option whose new value cannot be written.
    pub fn set_values(
        &mut self,
        mut value: impl FnMut(OptionView<'_>) -> Option<String>,
    ) -> Result<&mut Self, OptionError> {
        let mut changes = Vec::new();
        for old in self.draft.options() {
            if let Some(value) = value(old) {
                let new = UnitOption::new(old.section(), old.name(), value);
                check(&new)?;
                changes.push((old, new));
            }
        }
        let edited = splice::replaced(self.draft.marked(), changes);
        Ok(self.draft(&edited))
    }

    /// Removes the options for which `keep` returns `false`, in one pass.
    pub fn retain(&mut self, mut keep: impl FnMut(OptionView<'_>) -> bool) -> &mut Self {
        let options = self.draft.options().filter(|option| !keep(*option));
        let edited = splice::removed(self.draft.marked(), options);
        self.draft(&edited)
    }

    /// Adds an empty section at the end, unless the source has a header of this section.
    ///
    /// # Errors
    ///
    /// Returns an error if a header cannot have this name.
    pub fn add_section(&mut self, section: &str) -> Result<&mut Self, OptionError> {
        check_section(section)?;
        if self.draft.has_section(section) {
            return Ok(self);
        }
        let edited = splice::section_added(self.draft.marked(), section);
        Ok(self.draft(&edited))
    }

    /// Renames a section in each of its headers. If a section with the new name exists, the file
    /// then has one section with the options of both.
    ///
    /// # Errors
    ///
    /// Returns an error if a header cannot have the new name.
    pub fn rename_section(&mut self, old: &str, new: &str) -> Result<&mut Self, OptionError> {
        check_section(new)?;
        let edited = splice::section_renamed(self.draft.marked(), old, new);
        Ok(self.draft(&edited))
    }

    /// Removes a section: each of its headers and the text below it, up to the last option before
    /// the next header. Comments after that option stay, because they are mostly about the text
    /// that follows.
    pub fn remove_section(&mut self, section: &str) -> &mut Self {
        let edited = splice::section_removed(self.draft.marked(), section);
        self.draft(&edited)
    }

    /// Carries out the edits.
    pub fn apply(&mut self) {
        self.unit.clone_from(&self.draft);
    }

    /// Makes an edited source the draft.
    fn draft(&mut self, source: &[u8]) -> &mut Self {
        self.draft = UnitFile::parse_collecting(source).0;
        self
    }
}

/// Returns the source in normal form.
///
/// The byte order mark stays if another one is the start of the text behind it or of a later line,
/// or if the text behind it looks like a comment. Without it, the source would have another
/// meaning.
pub(super) fn formatted(source: MarkedSource<'_>) -> Vec<u8> {
    let mut lines = source.lines(0);
    let mut formatter = Formatter::default();
    let has_mark_as_text = source.has_mark_as_text();
    let keeps_mark = |line: &Line<'_>| {
        let is_followed_by_mark = trim_start(line.text).starts_with(BYTE_ORDER_MARK);
        line.is_marked && (has_mark_as_text || is_followed_by_mark || line.starts_like_comment())
    };
    while let Some(first) = lines.next() {
        if first.is_comment() {
            formatter.put(LineKind::Comment, trim_end(trim_start(first.text)));
            continue;
        }
        let logical = LogicalLine::starting_with(first, &mut lines);
        let text = trim_start(&first.text[..trimmed_end(first.text)]);
        formatter.prefix = match () {
            () if keeps_mark(&first) => BYTE_ORDER_MARK,
            // At the start of a line this text would be read as a byte order mark.
            () if text.starts_with(BYTE_ORDER_MARK) && !first.text.starts_with(BYTE_ORDER_MARK) => {
                b" "
            }
            () => b"",
        };
        if !logical.is_single() {
            formatter.put(LineKind::Other, &continued_lines(source, &logical, keeps_mark));
        } else if trim_end(text).is_empty() && formatter.prefix.is_empty() {
            formatter.pending_blank = true;
        } else if text.starts_with(b"[") {
            formatter.put(LineKind::Header, text);
        } else {
            formatter.put(LineKind::Other, &assignment(trim_start(first.text)));
        }
    }
    formatter.text
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LineKind {
    #[default]
    Start,
    Comment,
    Header,
    Other,
}

/// The output, with the state that decides about empty lines.
#[derive(Default)]
struct Formatter {
    text: Vec<u8>,
    /// Bytes to write before the next line that is no comment.
    prefix: &'static [u8],
    last: LineKind,
    pending_blank: bool,
}

impl Formatter {
    /// Writes one or several lines, with the proper number of empty lines above.
    fn put(&mut self, kind: LineKind, text: &[u8]) {
        let has_blank = match (self.last, kind) {
            (LineKind::Start, _) => false,
            (LineKind::Header, LineKind::Comment | LineKind::Other) => false,
            (LineKind::Header | LineKind::Other, LineKind::Header) => true,
            _ => self.pending_blank,
        };
        if has_blank {
            self.text.push(b'\n');
        }
        if kind != LineKind::Comment {
            self.text.extend_from_slice(std::mem::take(&mut self.prefix));
        }
        self.text.extend_from_slice(text);
        self.text.push(b'\n');
        (self.last, self.pending_blank) = (kind, false);
    }
}

/// Removes the blanks around the first `=` and at the end of a line. One blank at the end stays if
/// it keeps a backslash from continuing the line.
fn assignment(line: &[u8]) -> Vec<u8> {
    let line = &line[..trimmed_end(line)];
    let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
        return line.to_vec();
    };
    let (name, value) = (trim_end(&line[..equals]), trim_start(&line[equals + 1..]));
    [name, b"=", value].concat()
}

/// Formats a continued line, keeping the comments between its parts.
fn continued_lines(
    source: MarkedSource<'_>,
    logical: &LogicalLine<'_>,
    keeps_mark: impl Fn(&Line<'_>) -> bool,
) -> Vec<u8> {
    let end = if logical.unfinished { source.bytes.len() } else { logical.last().start };
    let is_part = |line: &Line<'_>| line.start <= end;
    let mut lines = source.lines(logical.first.start).take_while(is_part);
    let first = lines.next().map_or(&b""[..], |line| line.text);
    let start = trim_start(first);
    // A name that does not end on the first line cannot be recognized here.
    let mut text = match start.first() {
        Some(b'[' | b'=') | None => start.to_vec(),
        Some(_) => assignment(start),
    };
    for line in lines {
        text.push(b'\n');
        if keeps_mark(&line) {
            text.extend_from_slice(BYTE_ORDER_MARK);
        }
        text.extend_from_slice(line.text);
    }
    let end = trimmed_end(&text);
    text.truncate(end);
    text
}
