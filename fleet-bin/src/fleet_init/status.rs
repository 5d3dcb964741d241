//! `status`: prints the units of a running fleet-init, which are those of files or of fleetd.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::Write as _;

use fleet_agent::ManagedUnit;
use fleet_agent::remote::{Connection, InitRequest, ManagerRequest, RequestError};
use serde::Serialize;

use super::args::StatusArgs;
use super::client::request;
use super::protocol::{StatusHeader, Unit};
use super::tree::{tree, tree_with};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::{Output, Record};
use crate::ui::table::cell;

/// Runs the command.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    request(&args.socket, async |init| {
        let (head, units) = all(init).await?;
        print_header(&head);
        if head.fleet {
            return print_fleet(init, args.output, &head, units).await;
        }
        let mut output = Output::on_stdout(args.output);
        let tree = match args.output {
            Format::Table => tree(&head, &units, output.colour()),
            _ => String::new(),
        };
        output.list(&units, &tree)
    })
}

/// Requests the status of all units.
pub(super) async fn all(init: &Connection) -> Result<(StatusHeader, Vec<Unit>), RequestError> {
    init.call(InitRequest::Status).await
}

/// Prints on standard error how processes are tracked, and the goal.
fn print_header(head: &StatusHeader) {
    let mut to = io::stderr();
    let tracking = match &head.tracking_fallback {
        None => "processes are tracked by control groups".to_owned(),
        Some(why) => {
            format!(
                "processes that leave their group, parent and environment are not tracked: {why}"
            )
        }
    };
    let _unread = writeln!(to, "{tracking}").is_err();
    let extra = match head.extra_targets.as_slice() {
        [] => String::new(),
        extra => format!(", extra targets: {}", extra.join(", ")),
    };
    let goal = match &head.goal {
        Some(goal) => format!("goal: {goal}{extra}"),
        None if head.fleet => return,
        None => "no goal is set, so no unit is needed".to_owned(),
    };
    let _unread = writeln!(to, "{goal}").is_err();
}

/// Prints the units of fleetd as a tree. Each row also shows the last request of fleetd for the
/// unit, and the unit's state as fleetd sees it.
async fn print_fleet(
    init: &Connection,
    format: Format,
    head: &StatusHeader,
    mut units: Vec<Unit>,
) -> Result<(), CliError> {
    let managed: Vec<ManagedUnit> = init.call(ManagerRequest::List).await?;
    let rows: BTreeMap<&str, Row> =
        managed.iter().map(|it| (it.unit.as_str(), Row::new(it))).collect();
    let known: BTreeSet<String> = units.iter().map(|unit| unit.unit.clone()).collect();
    // Timers, and units that cannot run, are not in the graph.
    units.extend(rows.values().filter(|row| !known.contains(row.unit)).map(|row| Unit {
        unit: row.unit.to_owned(),
        state: row.sub.to_owned(),
        reason: (row.load != "loaded").then(|| row.load.to_owned()),
        ..Unit::default()
    }));
    units.sort_by(|one, other| one.unit.cmp(&other.unit));
    let cell_of = |name: &str| match rows.get(name) {
        Some(row) => [row.asked, row.active, row.sub].map(str::to_owned).to_vec(),
        None => vec![cell(None::<String>); 3],
    };
    let mut output = Output::on_stdout(format);
    let columns = ["asked", "active", "sub"];
    let table = tree_with(head, &units, &columns, &cell_of, output.colour());
    let both = |unit| UnitWithRow { unit, row: rows.get(unit.unit.as_str()) };
    output.list(&units.iter().map(both).collect::<Vec<_>>(), &table)
}

/// A unit of the graph, together with fleetd's view of the unit, such as the last request for it.
/// This is also the record of the JSON output.
#[derive(Serialize)]
struct UnitWithRow<'a> {
    #[serde(flatten)]
    unit: &'a Unit,
    #[serde(flatten)]
    row: Option<&'a Row<'a>>,
}

impl Record for UnitWithRow<'_> {
    fn name(&self) -> &str {
        &self.unit.unit
    }
}

/// A unit; also the JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    unit: &'a str,
    /// The last request.
    asked: &'a str,
    load: &'a str,
    active: &'a str,
    sub: &'a str,
    #[serde(rename = "mainPID")]
    main_pid: Option<u32>,
    /// Result of its last run.
    result: Option<&'a str>,
    /// Exit of its last main process.
    exit: Option<String>,
    restarts: u32,
}

impl<'a> Row<'a> {
    fn new(managed: &'a ManagedUnit) -> Self {
        let state = &managed.state;
        Self {
            unit: managed.unit.as_str(),
            asked: managed.known.requested.as_str(),
            load: state.load.as_str(),
            active: state.active.as_str(),
            sub: &state.sub,
            main_pid: state.main_pid,
            result: state.result.as_deref(),
            exit: state.exit.map(|exit| exit.to_string()),
            restarts: state.restarts,
        }
    }
}

impl Record for Row<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}
