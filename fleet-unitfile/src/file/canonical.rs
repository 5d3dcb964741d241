//! Options as text: which can be written, the canonical text, and its hash.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::file::option::{OptionView, UnitOption};
use crate::file::options::is_repeated;
use crate::syntax::assignment::{LogicalLine, trimmed_end};
use crate::syntax::grammar::{BLANKS, has_no_noncharacters, section_name_error};
use crate::syntax::lines::{Lines, MAX_LINE, ends_in_open_backslash, is_blank, is_line_end};

/// Error for an option that would change if it were written to a unit file and read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", self.subject())]
pub struct OptionError {
    section: String,
    name: String,
    kind: OptionErrorKind,
}

impl OptionError {
    /// Returns the rule that the option breaks.
    pub fn kind(&self) -> OptionErrorKind {
        self.kind
    }

    /// Returns the section of the option.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// Returns the name of the option. The name is empty if the error is about a section without
    /// options.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the option or the section that breaks the rule, for the message.
    fn subject(&self) -> String {
        let Self { section, name, kind } = self;
        match (name.as_str(), kind) {
            ("", OptionErrorKind::Name) => format!("option of section {section:?} "),
            ("", _) | (_, OptionErrorKind::Section) => format!("section {section:?} "),
            _ => format!("option {name:?} of section {section:?} "),
        }
    }
}

/// The rules that an option can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OptionErrorKind {
    /// The section name is empty or contains a character that is not allowed.
    Section,
    /// The option name is not valid. It is empty, begins or ends with a blank, contains a line end
    /// or a `=`, or begins like a comment or a section header.
    Name,
    /// The value contains a line end without a backslash before it. If it were written, the text
    /// after the line end would be read as another line of the file.
    LineEnd,
    /// The value ends in a backslash, which would join the value with the next line.
    OpenBackslash,
    /// The name, or a further line of the value, begins with a byte order mark. systemd removes the
    /// mark from the first line of a file that begins with one.
    ByteOrderMark,
    /// The option contains a Unicode noncharacter, which systemd refuses.
    Noncharacter,
    /// The option reaches the limit of a line.
    TooLong,
}

impl fmt::Display for OptionErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Section => {
                "cannot be written: use a name without control characters, quotes, backslashes \
                 and brackets"
            }
            Self::Name => {
                "has a name that cannot be written: use one without \"=\", line ends and outer \
                 blanks that does not start with \"#\", \";\" or \"[\""
            }
            Self::LineEnd => {
                "has a line end in its value: end each line but the last with a backslash"
            }
            Self::OpenBackslash => {
                "has a value that ends in a backslash: remove it, or write two of them"
            }
            Self::ByteOrderMark => "begins a line with a byte order mark: remove the mark",
            Self::Noncharacter => "has a character that Unicode reserves: remove it",
            Self::TooLong => "needs a line of 1 MiB or more: break it into several options",
        })
    }
}

/// Refuses an option that would change if it were written and read back.
pub(crate) fn check(option: &UnitOption) -> Result<(), OptionError> {
    match violation(option) {
        None => Ok(()),
        Some(kind) => Err(OptionError {
            section: option.section().to_owned(),
            name: option.name().to_owned(),
            kind,
        }),
    }
}

/// Refuses a section name that cannot be in a header.
pub(crate) fn check_section(section: &str) -> Result<(), OptionError> {
    // Tests the section with a minimal option.
    let alone = |error| OptionError { name: String::new(), ..error };
    check(&UnitOption::new(section, "X", "")).map_err(alone)
}

/// An option that can be written.
pub(crate) trait Writable<'a>: Copy {
    fn section(self) -> &'a str;
    fn instance(self) -> usize;
    fn name(self) -> &'a str;
    fn verbatim(self) -> Cow<'a, str>;
}

impl<'a> Writable<'a> for &'a UnitOption {
    fn section(self) -> &'a str {
        UnitOption::section(self)
    }

    fn instance(self) -> usize {
        if is_repeated(UnitOption::section(self)) { UnitOption::instance(self) } else { 0 }
    }

    fn name(self) -> &'a str {
        UnitOption::name(self)
    }

    fn verbatim(self) -> Cow<'a, str> {
        Cow::Borrowed(UnitOption::verbatim(self))
    }
}

impl<'a> Writable<'a> for OptionView<'a> {
    fn section(self) -> &'a str {
        OptionView::section(self)
    }

    fn instance(self) -> usize {
        OptionView::instance(self)
    }

    fn name(self) -> &'a str {
        OptionView::name(self)
    }

    fn verbatim(self) -> Cow<'a, str> {
        OptionView::verbatim(self)
    }
}

/// Calls `piece` with each piece of the canonical text, in order, so that the whole text need not
/// be in memory.
///
/// Options are grouped by section, and by the instances of sections that may be repeated, in the
/// order of the first option of each. An empty line separates sections. With `may_have_marks`, a
/// byte order mark precedes the text if a line begins with another one, which stays text in this
/// way.
pub(crate) fn canonical<'a, O: Writable<'a>>(
    options: impl Iterator<Item = O> + Clone,
    may_have_marks: bool,
    piece: &mut dyn FnMut(&str),
) {
    let begins_with_mark = |it: O| begins_line_with_mark(it.name(), &it.verbatim());
    if may_have_marks && options.clone().any(begins_with_mark) {
        piece("\u{feff}");
    }
    for (index, (section, runs)) in grouped(options.clone()).into_iter().enumerate() {
        if index > 0 {
            piece("\n");
        }
        for text in ["[", section, "]\n"] {
            piece(text);
        }
        for run in runs {
            for option in options.clone().skip(run.start).take(run.len()) {
                for text in [option.name(), "=", &option.verbatim(), "\n"] {
                    piece(text);
                }
            }
        }
    }
}

/// Returns the value in the form in which systemd reads it. If this form differs from `text`, also
/// returns the value as written.
///
/// If `text` is not a valid value, the function only removes blanks around it. [`check`] then
/// refuses the option.
pub(crate) fn normalise(text: &str) -> (Cow<'_, str>, Option<String>) {
    let trimmed = &text[..trimmed_end(text.as_bytes())];
    let trimmed = trimmed.trim_start_matches(BLANKS);
    let mut lines = Lines::new(trimmed.as_bytes(), 0);
    let Some(first) = lines.next() else {
        return (Cow::Borrowed(""), None);
    };
    let logical = LogicalLine::starting_with(first, &mut lines);
    let ended = trimmed.bytes().last().is_some_and(is_line_end);
    let ends_open = logical.unfinished && ends_in_open_backslash(trimmed.as_bytes());
    if ends_open || ended && !logical.unfinished || lines.next().is_some() {
        return (Cow::Borrowed(trimmed), None);
    }
    let joined = String::from_utf8(logical.joined()).expect(UTF8);
    let value = joined.trim_matches(BLANKS).to_owned();
    let verbatim = String::from_utf8(logical.verbatim(0)).expect(UTF8);
    let differs = verbatim != value;
    (Cow::Owned(value), differs.then_some(verbatim))
}

/// Panic message for lines that are not UTF-8. This cannot happen, because the lines come from
/// valid text, which is split and joined only at ASCII bytes.
const UTF8: &str = "lines that were cut from text at ASCII bytes are text";

fn violation(option: &UnitOption) -> Option<OptionErrorKind> {
    let (name, value) = (option.name(), option.verbatim());
    if section_name_error(option.section()).is_some() || !has_no_noncharacters(option.section()) {
        return Some(OptionErrorKind::Section);
    }
    if !is_writable_name(name) {
        return Some(OptionErrorKind::Name);
    }
    if begins_line_with_mark(name, value) {
        return Some(OptionErrorKind::ByteOrderMark);
    }
    if !has_no_noncharacters(name) || !has_no_noncharacters(value) {
        return Some(OptionErrorKind::Noncharacter);
    }
    let line_ends = value.bytes().filter(|&byte| is_line_end(byte)).count();
    let longest = (name.len() + 1 + value.len() - line_ends).max(option.section().len() + 2);
    if longest >= MAX_LINE {
        return Some(OptionErrorKind::TooLong);
    }
    value_violation(value)
}

/// Returns `true` if a line of the written option begins with a byte order mark.
fn begins_line_with_mark(name: &str, verbatim: &str) -> bool {
    const MARK: char = '\u{feff}';
    name.starts_with(MARK) || verbatim.split('\n').skip(1).any(|line| line.starts_with(MARK))
}

fn is_writable_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let [first, .., last] = bytes else {
        return matches!(bytes, [byte] if !is_blank(*byte) && !b"#;[=\n\r\0".contains(byte));
    };
    !b"#;[".contains(first)
        && !is_blank(*first)
        && !is_blank(*last)
        && !bytes.iter().any(|&byte| byte == b'=' || is_line_end(byte))
}

/// Checks that every line of the value except the last ends in a backslash, and that the last line
/// does not.
fn value_violation(value: &str) -> Option<OptionErrorKind> {
    let mut lines = Lines::new(value.as_bytes(), 0).peekable();
    while let Some(line) = lines.next() {
        let ended = line.start + line.text.len() < value.len();
        match (line.continues(), lines.peek().is_some() || ended) {
            (true, false) => return Some(OptionErrorKind::OpenBackslash),
            (false, true) => return Some(OptionErrorKind::LineEnd),
            _ => {}
        }
    }
    None
}

/// Groups options by section, in the order of the first option of each section.
///
/// The options of a group are given as ranges of indexes. Consecutive options of a section form one
/// range, so a group usually has few ranges.
fn grouped<'a, O: Writable<'a>>(
    options: impl Iterator<Item = O>,
) -> Vec<(&'a str, Vec<Range<usize>>)> {
    let mut places: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    let mut groups: Vec<(&str, Vec<Range<usize>>)> = Vec::new();
    for (index, option) in options.enumerate() {
        let section = option.section();
        let place = *places.entry((section, option.instance())).or_insert(groups.len());
        if place == groups.len() {
            groups.push((section, Vec::new()));
        }
        match groups[place].1.last_mut() {
            Some(run) if run.end == index => run.end += 1,
            _ => groups[place].1.push(index..index + 1),
        }
    }
    groups
}

/// The SHA-1 of a unit file's canonical text.
///
/// Two files with the same hash contain the same options in the same order. Comments, blank lines
/// and line ends do not affect the hash. The hash identifies contents, but does not protect against
/// an attacker, because SHA-1 collisions can be constructed. Its text form is 40 lower-case
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitHash([u8; 20]);

impl UnitHash {
    /// Makes a hash from its bytes, as returned by [`as_bytes`](Self::as_bytes).
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// Returns the twenty bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Returns the first seven digits, for display in tables. Two unit files can share these seven
    /// digits, so compare unit files by the whole hash.
    pub fn short(&self) -> String {
        let mut digits = self.to_string();
        digits.truncate(7);
        digits
    }

    /// Hashes a string that is passed in pieces.
    pub(crate) fn from_pieces(pieces: impl FnOnce(&mut dyn FnMut(&str))) -> Self {
        let mut sha1 = sha1_smol::Sha1::new();
        pieces(&mut |piece| sha1.update(piece.as_bytes()));
        Self(sha1.digest().bytes())
    }
}

impl fmt::Display for UnitHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UnitHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnitHash({self})")
    }
}

impl FromStr for UnitHash {
    type Err = HashError;

    /// Parses exactly 40 lower-case hexadecimal digits, as written by `Display`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = || HashError(text.chars().take(48).collect());
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(refusal());
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(refusal)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

/// Error for a string that is not 40 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a unit hash: write 40 hexadecimal digits in lower case")]
pub struct HashError(String);

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_reads_back_from_its_exact_text() {
        let hash = UnitHash::from_bytes([0x0a; 20]);
        assert_eq!(hash.to_string(), "0a".repeat(20));
        assert_eq!(hash.short(), "0a0a0a0");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(UnitHash::from_bytes(*hash.as_bytes()), hash);
        for wrong in
            ["", "0a", &"0A".repeat(20), &"0a".repeat(21), &"0g".repeat(20), &"é".repeat(20)]
        {
            assert!(wrong.parse::<UnitHash>().is_err(), "{wrong}");
        }
    }
}
