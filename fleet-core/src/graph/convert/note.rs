//! Notes about losses and other effects of a conversion.

use std::fmt;

use super::SourceFile;
use crate::graph::systemd::RelationKind;

/// A loss or a remark of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionNote {
    /// The file.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// Severity.
    pub severity: NoteSeverity,
    /// Description.
    pub message: String,
    /// Remedy.
    pub help: String,
}

/// Severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteSeverity {
    /// The stanzas behave differently from the source.
    Loss,
    /// The stanzas behave as the source specifies. The note is only information.
    Remark,
}

impl NoteSeverity {
    /// Returns `loss` or `remark`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Remark => "remark",
        }
    }
}

impl fmt::Display for ConversionNote {
    /// Formats as `FILE:LINE:COLUMN: loss: …`, with `help: …` on a second line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, help, .. } = self;
        write!(f, "{file}:{line}:{column}: {}: {message}\nhelp: {help}", self.severity.as_str())
    }
}

/// Position of a note: file index, line and column.
pub(super) type NotePosition = (usize, usize, usize);

/// Notes collected during a conversion.
pub(super) struct Report<'a> {
    sources: &'a [SourceFile],
    notes: Vec<(NotePosition, ConversionNote)>,
}

impl<'a> Report<'a> {
    pub(super) fn new(sources: &'a [SourceFile]) -> Self {
        Self { sources, notes: Vec::new() }
    }

    /// Returns the path of a file.
    pub(super) fn path(&self, file: usize) -> &'a str {
        self.sources.get(file).map_or("", |source| source.path.as_str())
    }

    /// Returns the names of the links to a file.
    pub(super) fn aliases(&self, file: usize) -> &'a [String] {
        self.sources.get(file).map_or(&[], |source| source.aliases.as_slice())
    }

    /// Returns the names of the units that start the unit of a file, by links in their directories.
    pub(super) fn starters(&self, file: usize) -> impl Iterator<Item = (&'a str, RelationKind)> {
        let source = self.sources.get(file);
        let wanted = source.into_iter().flat_map(|source| &source.wanted_by);
        let required = source.into_iter().flat_map(|source| &source.required_by);
        wanted
            .map(|name| (name.as_str(), RelationKind::WantedBy))
            .chain(required.map(|name| (name.as_str(), RelationKind::RequiredBy)))
    }

    /// Adds a loss.
    pub(super) fn loss(
        &mut self,
        position: impl Into<IntoPosition>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(position.into(), NoteSeverity::Loss, message.into(), help.into());
    }

    /// Adds a remark.
    pub(super) fn remark(
        &mut self,
        position: impl Into<IntoPosition>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(position.into(), NoteSeverity::Remark, message.into(), help.into());
    }

    /// Adds the loss of a whole unit.
    pub(super) fn left_out(
        &mut self,
        file: usize,
        line: usize,
        why: impl fmt::Display,
        help: impl Into<String>,
    ) {
        self.loss((file, line), format!("the unit is left out: {why}"), help);
    }

    /// Returns the number of notes so far.
    pub(super) fn note_count(&self) -> usize {
        self.notes.len()
    }

    /// Drops the notes added after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.notes.truncate(count);
    }

    fn add(
        &mut self,
        IntoPosition(position): IntoPosition,
        severity: NoteSeverity,
        message: String,
        help: String,
    ) {
        let (file, line, column) = position;
        let file = self.path(file).to_owned();
        self.notes.push((position, ConversionNote { file, line, column, severity, message, help }));
    }

    /// Returns the notes ordered by file and line.
    pub(super) fn into_notes(mut self) -> Vec<ConversionNote> {
        self.notes.sort_by_key(|(position, note)| (*position, note.severity));
        self.notes.into_iter().map(|(_, note)| note).collect()
    }
}

/// A position; the column is 1 by default.
pub(super) struct IntoPosition(NotePosition);

impl From<(usize, usize)> for IntoPosition {
    fn from((file, line): (usize, usize)) -> Self {
        Self((file, line, 1))
    }
}

impl From<NotePosition> for IntoPosition {
    fn from(position: NotePosition) -> Self {
        Self(position)
    }
}
