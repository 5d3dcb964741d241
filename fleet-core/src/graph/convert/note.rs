//! What is lost when units of another init become stanzas.

use std::fmt;

use super::SourceFile;

/// Something that files of another init say and stanzas do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionNote {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
    /// How much it weighs.
    pub severity: NoteSeverity,
    /// What is lost.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// How much a loss weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteSeverity {
    /// What the stanzas make is not the same.
    Loss,
    /// It is the same as far as these files are concerned; a person may want to know.
    Remark,
}

impl NoteSeverity {
    /// `loss` or `remark`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Remark => "remark",
        }
    }
}

impl fmt::Display for ConversionNote {
    /// `FILE:LINE:COLUMN: loss: …`, and `help: …` in a second line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, help, .. } = self;
        write!(f, "{file}:{line}:{column}: {}: {message}\nhelp: {help}", self.severity.as_str())
    }
}

/// Where a loss is: the index of the file, the line, the column.
pub(super) type Place = (usize, usize, usize);

/// All losses of a conversion.
pub(super) struct Report<'a> {
    sources: &'a [SourceFile],
    losses: Vec<(Place, ConversionNote)>,
}

impl<'a> Report<'a> {
    pub(super) fn new(sources: &'a [SourceFile]) -> Self {
        Self { sources, losses: Vec::new() }
    }

    /// The path of a file.
    pub(super) fn path(&self, file: usize) -> &'a str {
        self.sources.get(file).map_or("", |source| source.path.as_str())
    }

    /// The names that links give the unit of a file.
    pub(super) fn aliases(&self, file: usize) -> &'a [String] {
        self.sources.get(file).map_or(&[], |source| source.aliases.as_slice())
    }

    /// Something is not the same.
    pub(super) fn loss(
        &mut self,
        place: impl Into<At>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(place.into(), NoteSeverity::Loss, message.into(), help.into());
    }

    /// Something is to be known.
    pub(super) fn remark(
        &mut self,
        place: impl Into<At>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(place.into(), NoteSeverity::Remark, message.into(), help.into());
    }

    /// A whole file becomes no stanza.
    pub(super) fn left_out(
        &mut self,
        file: usize,
        line: usize,
        why: impl fmt::Display,
        help: impl Into<String>,
    ) {
        self.loss((file, line), format!("the unit is left out: {why}"), help);
    }

    /// How much was told so far.
    pub(super) fn told(&self) -> usize {
        self.losses.len()
    }

    /// Takes back what was told beyond that, because it turned out otherwise.
    pub(super) fn take_back(&mut self, told: usize) {
        self.losses.truncate(told);
    }

    fn add(&mut self, At(place): At, severity: NoteSeverity, message: String, help: String) {
        let (file, line, column) = place;
        let file = self.path(file).to_owned();
        self.losses.push((place, ConversionNote { file, line, column, severity, message, help }));
    }

    /// In the order of the files and their lines.
    pub(super) fn into_losses(mut self) -> Vec<ConversionNote> {
        self.losses.sort_by_key(|(place, loss)| (*place, loss.severity));
        self.losses.into_iter().map(|(_, loss)| loss).collect()
    }
}

/// A place, whose column is 1 where it is not given.
pub(super) struct At(Place);

impl From<(usize, usize)> for At {
    fn from((file, line): (usize, usize)) -> Self {
        Self((file, line, 1))
    }
}

impl From<Place> for At {
    fn from(place: Place) -> Self {
        Self(place)
    }
}
