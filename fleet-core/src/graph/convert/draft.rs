//! A unit between its source file and its stanza, and notes about losses and other effects of the
//! conversion.

use std::fmt;
use std::time::Duration;

use super::SourceFile;
use crate::graph::format::{OmittedKey, print, read_stanzas};
use crate::graph::model::{
    Command, EdgeKind, InitUnit, Name, Restart, RestartWhen, ServiceType, StatusSet, Target,
    Timeouts,
};
use crate::graph::systemd::RelationKind;

/// Stop timeout of a unit that calls a script. Such a stop lasts until no process of the unit is
/// left. Without a timeout, a single remaining process would therefore block the shutdown of the
/// whole init.
const SCRIPT_STOP_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A unit with the dependencies declared in its file.
#[derive(Debug)]
pub(super) struct Draft {
    /// Index of the file.
    pub(super) file: usize,
    /// Origin, for a comment.
    pub(super) from: String,
    /// The unit.
    pub(super) unit: InitUnit,
    /// Declared dependencies, not yet edges.
    pub(super) dependencies: Vec<Dependency>,
}

/// A declared dependency.
#[derive(Debug, Clone)]
pub(super) struct Dependency {
    /// Kind of the edge.
    pub(super) kind: EdgeKind,
    /// The target.
    pub(super) target: Target,
    /// Whether the direction is reversed: this unit comes before the target.
    pub(super) before: bool,
    /// Line of the declaration.
    pub(super) line: usize,
}

impl Draft {
    /// Creates the draft of a file's unit.
    pub(super) fn new(file: usize, report: &Report<'_>, unit: InitUnit) -> Self {
        let from = format!("from {}", report.path(file));
        Self { file, from, unit, dependencies: Vec::new() }
    }
}

/// Returns the unit name of a file, which is the last component of its path. If that is not a valid
/// unit name, reports the file and returns `None`.
pub(super) fn name_of(file: usize, report: &mut Report<'_>) -> Option<Name> {
    let path = report.path(file);
    let name = path.rsplit('/').next().unwrap_or_default();
    match Name::new(name) {
        Ok(name) => Some(name),
        Err(problem) => {
            let why = format!("`{name}` is not a valid unit name: {problem}");
            report.left_out(file, 1, why, "give the file a name of letters, digits and `_-.@:`");
            None
        }
    }
}

/// Makes a unit call a script. The start gets no timeout, because the original init also waits for
/// the script without a limit.
pub(super) fn call_script(
    unit: &mut InitUnit,
    file: usize,
    report: &mut Report<'_>,
    call: impl Fn(&str) -> Vec<Command>,
) {
    unit.kind = ServiceType::BackgroundScripted;
    (unit.run.start, unit.run.stop) = (call("start"), call("stop"));
    (unit.timeouts.start, unit.timeouts.stop) = (None, Some(SCRIPT_STOP_TIMEOUT));
    let message = "the script has no time limit to start, as before, and 5 minutes to stop";
    let help = "if the script needs longer to stop, write a longer stop-timeout into the stanza";
    report.remark((file, 1), message, help);
}

/// Resets settings without an effect to their defaults, so that they are not printed.
fn reset_ineffective(unit: &mut InitUnit) {
    if unit.is_virtual() {
        // A virtual unit never ends, so it has no restart policy.
        unit.restart = Restart::default();
    } else if unit.restart.when == RestartWhen::Never && unit.restart.force == StatusSet::default()
    {
        unit.restart = Restart::never();
    }
    // A notified unit can announce a reload that nothing requested.
    let reloads = !unit.run.reload.is_empty() || unit.run.reload_signal.is_some();
    if !reloads && unit.kind != ServiceType::ForegroundNotified {
        unit.timeouts.reload = Timeouts::default().reload;
    }
}

/// Prints a unit as a stanza and reads it back, so that the result is exactly what the stanza
/// describes. Returns `None` if no stanza can describe the unit. Reports each omitted setting at
/// the position that `position` returns for it.
pub(super) fn as_stanza(
    unit: &InitUnit,
    file: usize,
    report: &mut Report<'_>,
    position: impl Fn(&OmittedKey) -> Option<(usize, usize)>,
) -> Option<InitUnit> {
    let mut unit = unit.clone();
    reset_ineffective(&mut unit);
    let printed = print(&unit, &Timeouts::default());
    for omitted in &printed.omitted {
        let (line, column) = position(omitted).unwrap_or((1, 1));
        let message =
            format!("`{}: {}` cannot be expressed: {}", omitted.key, omitted.value, omitted.why);
        let help = format!("write another value for {} into the stanza", omitted.key);
        report.loss((file, line, column), message, help);
    }
    let mut read = read_stanzas(printed.text.as_bytes(), &Timeouts::default());
    let unit = read.stanzas.pop().and_then(|stanza| stanza.unit);
    if unit.is_none() {
        let why = read.diagnostics.first().map_or("it has no stanza", |it| it.message.as_str());
        report.left_out(file, 1, why, "write its stanza by hand");
    }
    unit
}

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
