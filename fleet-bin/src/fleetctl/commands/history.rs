//! `history`: events of a unit. `revisions` and `rollback`: its earlier files.

use fleet_core::{TargetState, Timestamp};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};
use serde::Serialize;

use super::apply;
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::{HistoryArgs, RollbackArgs};
use crate::fleetctl::format::{MachineLabels, short_hash};
use crate::fleetctl::local::LocalFile;
use crate::fleetctl::manifest_diff::UnitDiff;
use crate::fleetctl::session::machines::MachineCache;
use crate::fleetctl::session::{Session, decoded_source};
use crate::ui::error::{CliError, Exit};
use crate::ui::names::unit_arg;
use crate::ui::output::Record;
use crate::ui::table::{cell, layout, painted};
use crate::ui::time::{date, relative};
use crate::ui::unit_text::SourcePath;

/// An event of a unit, or the write of one of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct EventRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<wire::Time>,
    /// Kind of the event, as in the API, or `revision` for the write of a file.
    event: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    from: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    cause: String,
    count: u32,
    text: String,
}

impl Record for EventRow {
    fn name(&self) -> &str {
        &self.event
    }
}

impl From<wire::UnitEventEntity> for EventRow {
    fn from(entity: wire::UnitEventEntity) -> Self {
        let wire::UnitEventEntity { at, cause, count, event, from, machine_id, text, .. } = entity;
        Self { at: Some(at), event, machine: machine_id, from, cause, count, text }
    }
}

impl EventRow {
    fn of_revision(revision: &wire::UnitRevisionEntity) -> Self {
        Self {
            at: revision.written_at,
            event: "revision".to_owned(),
            machine: String::new(),
            from: String::new(),
            cause: String::new(),
            count: 1,
            text: format!("file revision {} ({})", revision.number, short_hash(&revision.hash)),
        }
    }

    fn cells(&self, machines: &MachineLabels, now: Timestamp) -> Vec<String> {
        let times = if self.count > 1 { format!(" ({} times)", self.count) } else { String::new() };
        let age = self.at.map(|at| relative(at, now));
        vec![
            cell(Some(date(self.at))),
            cell(age),
            machines.label(&self.machine, false),
            format!("{}{times}", self.text),
        ]
    }
}

/// Runs `history`: prints the events of a unit and the writes of its files, oldest first.
pub(super) async fn history(context: &mut Context, args: &HistoryArgs) -> Result<(), CliError> {
    let name = unit_arg(&args.unit)?.name;
    let session = &context.session;
    let (events, revisions) =
        futures_util::try_join!(session.history(&name), session.revisions(&name))?;
    let Some(events) = events else { return Err(session.unknown(&name).await) };
    let mut machines = MachineCache::default();
    machines.load(session, events.iter().map(|event| event.machine_id.as_str())).await?;
    let files = revisions.iter().flatten().map(EventRow::of_revision);
    let mut rows: Vec<EventRow> = files.chain(events.into_iter().map(EventRow::from)).collect();
    // Stable: events of one time stay in the order in which they were recorded.
    rows.sort_by_key(|row| row.at);
    let (machines, now) = (machines.labels(), fleet_agent::wall_time());
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(&machines, now)).collect();
    let table = layout(&["time", "age", "machine", "event"], true, &cells);
    context.output.list(&rows, &table)
}

/// A revision of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    unit: String,
    revision: u64,
    hash: String,
    /// Time of the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_at: Option<wire::Time>,
    /// Whether it is the unit's present file.
    current: bool,
}

impl Record for Row {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs `revisions`.
pub(super) async fn revisions(context: &mut Context, args: &HistoryArgs) -> Result<(), CliError> {
    let name = unit_arg(&args.unit)?.name;
    let revisions = kept_revisions(&context.session, &name).await?;
    let current = revisions.last().map(|it| it.number);
    let rows: Vec<Row> = revisions
        .into_iter()
        .map(|it| Row {
            unit: name.to_string(),
            revision: it.number,
            hash: it.hash,
            written_at: it.written_at,
            current: Some(it.number) == current,
        })
        .collect();
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let columns = &["revision", "hash", "written", ""];
    let table = painted(columns, true, &cells, context.output.table_style());
    context.output.list(&rows, &table)
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let mark = if self.current { "current" } else { "" };
        let written = date(self.written_at);
        vec![
            self.revision.to_string(),
            short_hash(&self.hash),
            cell(Some(written)),
            mark.to_owned(),
        ]
    }
}

/// Runs `rollback`: applies an earlier file of a unit, and keeps its desired state. The instances
/// of a template get its file too.
pub(super) async fn rollback(context: &mut Context, args: RollbackArgs) -> Result<Exit, CliError> {
    let name = unit_arg(&args.unit)?.name;
    let known = context.session.known_unit(&name).await?;
    let revisions = kept_revisions(&context.session, &name).await?;
    let revision = match &args.to {
        Some(text) => find(&name, &revisions, text)?,
        None => match &revisions[..] {
            [.., earlier, _current] => earlier,
            _ => {
                return Err(CliError::failed(format!("{name} has no earlier revision"))
                    .help("a revision is kept whenever the unit's file is replaced"));
            }
        },
    };
    let path = SourcePath::from(&*format!("{name}@{}", revision.number));
    let file = LocalFile { path, file: file_of(&name, revision)? };
    let desired = known.desired().unwrap_or(TargetState::Inactive);
    let diff = UnitDiff { name, file, desired, known: Some(known) };
    let mut diffs = vec![diff];
    apply::add_instances(context, &mut diffs).await?;
    apply::carry_out(context, diffs, args.options).await
}

/// Returns the file of a revision that an argument such as `web.service@3` names, and the unit.
/// Returns `None` for an argument of another form.
pub(super) async fn named_revision(
    session: &Session,
    arg: &str,
) -> Result<Option<(UnitName, UnitFile)>, CliError> {
    let Some((name, text)) = split_revision(arg) else { return Ok(None) };
    let revisions = kept_revisions(session, &name).await?;
    let file = file_of(&name, find(&name, &revisions, text)?)?;
    Ok(Some((name, file)))
}

/// Splits `web.service@3` into the unit and the revision.
fn split_revision(arg: &str) -> Option<(UnitName, &str)> {
    let (name, revision) = arg.rsplit_once('@')?;
    // The name of an instance has its type after the last "@".
    (!revision.contains('.')).then(|| Some((name.parse().ok()?, revision))).flatten()
}

async fn kept_revisions(
    session: &Session,
    name: &UnitName,
) -> Result<Vec<wire::UnitRevisionEntity>, CliError> {
    match session.revisions(name).await? {
        Some(revisions) => Ok(revisions),
        None => Err(session.unknown(name).await),
    }
}

/// Finds a revision by its number, or by the beginning of its hash.
fn find<'a>(
    name: &UnitName,
    revisions: &'a [wire::UnitRevisionEntity],
    text: &str,
) -> Result<&'a wire::UnitRevisionEntity, CliError> {
    let by_number = revisions.iter().find(|it| it.number.to_string() == text);
    let by_hash = || revisions.iter().rev().find(|it| text.len() >= 4 && it.hash.starts_with(text));
    by_number.or_else(by_hash).ok_or_else(|| {
        CliError::failed(format!("{name} has no revision {text:?}"))
            .help(format!("\"fleetctl revisions {name}\" lists the revisions that are kept"))
    })
}

fn file_of(name: &UnitName, revision: &wire::UnitRevisionEntity) -> Result<UnitFile, CliError> {
    let cannot = || CliError::failed(format!("cannot read revision {} of {name}", revision.number));
    let source = decoded_source(&revision.source, &revision.source_base64);
    let source = source.ok_or_else(cannot)?;
    UnitFile::parse(source).map_err(|error| cannot().because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_follow_the_unit_name() {
        let split = |arg: &'static str| {
            split_revision(arg).map(|(name, revision)| (name.to_string(), revision))
        };
        assert_eq!(split("web.service@3"), Some(("web.service".to_owned(), "3")));
        assert_eq!(split("web@1.service@ab12"), Some(("web@1.service".to_owned(), "ab12")));
        assert_eq!(split("web@.service@2"), Some(("web@.service".to_owned(), "2")));
        for other in ["web@1.service", "web.service", "web@", "units/web@1", "web@3"] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn revisions_are_found_by_number_and_hash() {
        let revision = |number, hash: &str| {
            let mut revision = wire::UnitRevisionEntity::default();
            (revision.number, revision.hash) = (number, hash.to_owned());
            revision
        };
        let all = [revision(7, "12345678"), revision(8, "abcd1234"), revision(9, "abcd5678")];
        let name = "web.service".parse().unwrap();
        let found = |text: &str| find(&name, &all, text).map(|it| it.number).ok();
        for (text, expected) in
            [("7", Some(7)), ("1234", Some(7)), ("abcd", Some(9)), ("abc", None), ("10", None)]
        {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}
