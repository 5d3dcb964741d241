//! A unit on its way from a file of another init to a stanza.

use std::time::Duration;

use super::note::Report;
use crate::graph::text::{OmittedKey, print, read_stanzas};
use crate::graph::{Command, EdgeKind, InitUnit, Name, Restart, ServiceType, Target, Timeouts};

/// How long the stop of a script may take, which here is over only when no process is left. Without
/// an end one process that stays would hold up the end of the whole system.
const STOP_OF_SCRIPT: Duration = Duration::from_secs(5 * 60);

/// A unit, and what its file says of others.
#[derive(Debug)]
pub(super) struct Draft {
    /// The file, by its index.
    pub(super) file: usize,
    /// Where it comes from, for a comment.
    pub(super) from: String,
    /// The unit.
    pub(super) unit: InitUnit,
    /// What it says of others, which is no edge yet.
    pub(super) wishes: Vec<Wish>,
}

/// What a unit says of a target.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    /// The edge that it makes.
    pub(super) kind: EdgeKind,
    /// The target.
    pub(super) target: Target,
    /// Whether the edge leads the other way: this unit comes before.
    pub(super) before: bool,
    /// The line that says so.
    pub(super) line: usize,
}

impl Draft {
    /// The draft of a file's unit.
    pub(super) fn new(file: usize, report: &Report<'_>, unit: InitUnit) -> Self {
        let from = format!("from {}", report.path(file));
        Self { file, from, unit, wishes: Vec::new() }
    }
}

/// The name of the unit that a file describes; nothing if it can have none, which is told.
pub(super) fn name_of(file: usize, report: &mut Report<'_>) -> Option<Name> {
    let path = report.path(file);
    let name = path.rsplit('/').next().unwrap_or_default();
    match Name::new(name) {
        Ok(name) => Some(name),
        Err(problem) => {
            let why = format!("`{name}` is no name for a unit: {problem}");
            report.left_out(file, 1, why, "give the file a name of letters, digits and `_-.@:`");
            None
        }
    }
}

/// Makes a unit call a script, for which its init would wait however long it took.
pub(super) fn call_script(
    unit: &mut InitUnit,
    file: usize,
    report: &mut Report<'_>,
    call: impl Fn(&str) -> Vec<Command>,
) {
    unit.kind = ServiceType::BackgroundScripted;
    (unit.run.start, unit.run.stop) = (call("start"), call("stop"));
    (unit.timeouts.start, unit.timeouts.stop) = (None, Some(STOP_OF_SCRIPT));
    let message = "its start has no time-out, as before, but its stop has one of 5 minutes";
    let help = "write another stop-timeout into the stanza, if that is not long enough";
    report.remark((file, 1), message, help);
}

/// The unit as its stanza has it; nothing if no stanza can have it. What is lost is told, at the
/// line where `place` knows it to come from.
pub(super) fn as_stanza(
    unit: &InitUnit,
    file: usize,
    report: &mut Report<'_>,
    place: impl Fn(&OmittedKey) -> Option<(usize, usize)>,
) -> Option<InitUnit> {
    let mut unit = unit.clone();
    if unit.is_virtual() {
        // What never ends is never started again.
        unit.restart = Restart::default();
    }
    let printed = print(&unit, &Timeouts::default());
    for omitted in &printed.omitted {
        let (line, column) = place(omitted).unwrap_or((1, 1));
        let message =
            format!("`{}: {}` cannot be said: {}", omitted.key, omitted.value, omitted.why);
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
