//! From options to text: the canonical form, and the refusal of what it cannot hold.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::grammar::{BLANKS, is_clean, section_flaw};
use crate::join::{Logical, trimmed_end};
use crate::lines::{Lines, MAX_LINE, ends_in_open_backslash, is_blank, is_line_end};
use crate::option::{OptionView, UnitOption};

/// Why an option cannot be written into a unit file and read back as the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", self.subject())]
pub struct OptionError {
    section: String,
    name: String,
    kind: OptionErrorKind,
}

impl OptionError {
    /// The rule that the option breaks.
    pub fn kind(&self) -> OptionErrorKind {
        self.kind
    }

    /// The section of the option.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// The name of the option; empty, where only a section was to be written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What breaks the rule: the option, or the section that it is in.
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
    /// The section name is empty, or has a character that it must not have.
    Section,
    /// The option name is empty, has a blank at an end, a line end, a `=`, or starts like a
    /// comment or a section header.
    Name,
    /// The value has a line end that no backslash precedes: what follows would be read as
    /// another line of the file.
    LineEnd,
    /// The value ends in a backslash, which would join it with what follows.
    OpenBackslash,
    /// The option holds one of Unicode's noncharacters, which systemd refuses.
    Noncharacter,
    /// The option is longer than a line may be.
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
            Self::Noncharacter => "has a character that Unicode reserves: remove it",
            Self::TooLong => "needs a line of 1 MiB or more: break it into several options",
        })
    }
}

/// Refuses an option that would not read back as the same.
pub(crate) fn check(option: &UnitOption) -> Result<(), OptionError> {
    match flaw(option) {
        None => Ok(()),
        Some(kind) => Err(OptionError {
            section: option.section().to_owned(),
            name: option.name().to_owned(),
            kind,
        }),
    }
}

/// Refuses a section that no header can name.
pub(crate) fn check_section(section: &str) -> Result<(), OptionError> {
    // An option of the shortest name stands for all that the section could hold.
    let alone = |error| OptionError { name: String::new(), ..error };
    check(&UnitOption::new(section, "X", "")).map_err(alone)
}

/// An option that can be written out.
pub(crate) trait Written<'a>: Copy {
    fn section(self) -> &'a str;
    fn name(self) -> &'a str;
    fn verbatim(self) -> Cow<'a, str>;
}

impl<'a> Written<'a> for &'a UnitOption {
    fn section(self) -> &'a str {
        UnitOption::section(self)
    }

    fn name(self) -> &'a str {
        UnitOption::name(self)
    }

    fn verbatim(self) -> Cow<'a, str> {
        Cow::Borrowed(UnitOption::verbatim(self))
    }
}

impl<'a> Written<'a> for OptionView<'a> {
    fn section(self) -> &'a str {
        OptionView::section(self)
    }

    fn name(self) -> &'a str {
        OptionView::name(self)
    }

    fn verbatim(self) -> Cow<'a, str> {
        OptionView::verbatim(self)
    }
}

/// Hands out the canonical text in pieces: options grouped by section, sections in the order in
/// which they first have an option, an empty line between them.
pub(crate) fn canonical<'a, O: Written<'a>>(
    options: impl Iterator<Item = O> + Clone,
    piece: &mut dyn FnMut(&str),
) {
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

/// The value as it reads and, where that differs, as it is written.
///
/// A text that is not the value of one option is left as it is, for [`check`] to refuse.
pub(crate) fn normalise(text: &str) -> (Cow<'_, str>, Option<String>) {
    let trimmed = &text[..trimmed_end(text.as_bytes())];
    let trimmed = trimmed.trim_start_matches(BLANKS);
    let mut lines = Lines::new(trimmed.as_bytes(), 0);
    let Some(first) = lines.next() else {
        return (Cow::Borrowed(""), None);
    };
    let logical = Logical::starting_with(first, &mut lines);
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

/// Lines of a text are cut and joined at ASCII bytes only.
const UTF8: &str = "lines that were cut from text at ASCII bytes are text";

fn flaw(option: &UnitOption) -> Option<OptionErrorKind> {
    let (name, value) = (option.name(), option.verbatim());
    if section_flaw(option.section()).is_some() || !is_clean(option.section()) {
        return Some(OptionErrorKind::Section);
    }
    if !is_writable_name(name) {
        return Some(OptionErrorKind::Name);
    }
    if !is_clean(name) || !is_clean(value) {
        return Some(OptionErrorKind::Noncharacter);
    }
    let line_ends = value.bytes().filter(|&byte| is_line_end(byte)).count();
    let longest = (name.len() + 1 + value.len() - line_ends).max(option.section().len() + 2);
    if longest >= MAX_LINE {
        return Some(OptionErrorKind::TooLong);
    }
    value_flaw(value)
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

/// Whether each line of the value but the last ends in a backslash, and the last one does not.
fn value_flaw(value: &str) -> Option<OptionErrorKind> {
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

/// The sections in the order in which they first have an option, with the options of each as
/// runs of neighbours: there are few of them, however many options there are.
fn grouped<'a, O: Written<'a>>(
    options: impl Iterator<Item = O>,
) -> Vec<(&'a str, Vec<Range<usize>>)> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<(&str, Vec<Range<usize>>)> = Vec::new();
    for (index, option) in options.enumerate() {
        let section = option.section();
        let place = *places.entry(section).or_insert(groups.len());
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
