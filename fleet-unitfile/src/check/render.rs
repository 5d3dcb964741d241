//! Rendering of a finding: location, source line, mark and help.

use std::fmt;

use super::finding::Finding;

/// Maximum number of characters of a line that are shown. In a longer line, at most
/// [`MAX_CHARS_BEFORE`] of them are before the mark.
const MAX_CHARS: usize = 120;
const MAX_CHARS_BEFORE: usize = 60;

pub(super) struct FindingExcerpt<'a> {
    pub(super) finding: &'a Finding,
    pub(super) file: &'a str,
    pub(super) source: &'a [u8],
}

impl fmt::Display for FindingExcerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let finding = self.finding;
        let (line, column) = (finding.location.line, finding.location.column);
        let gutter = line.to_string().len();
        writeln!(f, "{}[{}]: {}", finding.severity(), finding.code, finding.message)?;
        writeln!(f, "{:gutter$}--> {}:{line}:{column}", "", self.file)?;
        let (text, blanks, marks) = self.marked();
        if !text.is_empty() {
            writeln!(f, "{:gutter$} |", "")?;
            writeln!(f, "{line} | {text}")?;
            writeln!(f, "{:gutter$} | {:blanks$}{}", "", "", "^".repeat(marks))?;
        }
        writeln!(f, "{:gutter$} = help: {}", "", finding.help)
    }
}

impl FindingExcerpt<'_> {
    /// Returns the source line, truncated if it is long, and where to mark it: the number of blanks
    /// before the mark, and the length of the mark.
    ///
    /// The mark never extends past the end of the line.
    fn marked(&self) -> (String, usize, usize) {
        let (start, end) = self.line();
        let at = |offset: usize| {
            let offset = offset.clamp(start, end);
            String::from_utf8_lossy(&self.source[start..offset]).chars().count()
        };
        let span = self.finding.span;
        let (first, last) = (at(span.start), at(span.end.max(span.start)));
        let line = String::from_utf8_lossy(&self.source[start..end]);
        let skipped = if line.chars().count() > MAX_CHARS {
            first.saturating_sub(MAX_CHARS_BEFORE)
        } else {
            0
        };
        let mut text: String = if skipped > 0 { "…".into() } else { String::new() };
        text.extend(
            line.chars().skip(skipped + text.chars().count()).take(MAX_CHARS).map(displayed),
        );
        if line.chars().count() > skipped + MAX_CHARS {
            text.push('…');
        }
        let room = text.chars().count().saturating_sub(first - skipped);
        (text.trim_end().to_owned(), first - skipped, (last - first).clamp(1, room.max(1)))
    }

    /// Returns the byte range of the line in which the finding begins.
    fn line(&self) -> (usize, usize) {
        let ends = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
        let from = self.finding.span.start.min(self.source.len());
        let start = self.source[..from].iter().rposition(ends).map_or(0, |at| at + 1);
        let len = self.source[from..].iter().position(ends);
        (start, len.map_or(self.source.len(), |len| from + len))
    }
}

/// Replaces a character that does not take exactly one column.
fn displayed(character: char) -> char {
    match character {
        '\u{feff}' => ' ',
        _ if character.is_control() => ' ',
        _ => character,
    }
}
