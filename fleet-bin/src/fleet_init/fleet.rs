//! Status of a fleet-init that runs the units of fleetd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{ManagedUnit, ServiceManager as _, SystemClock};
use serde::Serialize;

use super::client::{InitClient, PROGRAM};
use super::protocol::{StatusHeader, Unit};
use super::tree::tree_with;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::{Output, Record};
use crate::ui::table::{cell, painted};

/// Opens the fleet-init's service manager, which reports the units as fleetd sees them.
pub(super) async fn open(init: &InitClient) -> Result<Arc<RemoteManager>, CliError> {
    let config = RemoteConfig {
        socket: init.socket.clone(),
        directory: None,
        program: PROGRAM.to_owned(),
        clock: Arc::new(SystemClock::start()),
    };
    let socket = init.socket.display();
    let cannot = |error| {
        CliError::failed(format!("cannot connect to the fleet-init at {socket}")).because(error)
    };
    RemoteManager::open(config).await.map_err(cannot)
}

fn cannot_list(init: &InitClient) -> CliError {
    CliError::failed(format!(
        "cannot list the units of the fleet-init at {}",
        init.socket.display()
    ))
}

/// Prints the units as a tree. Each row also shows the last request of fleetd for the unit, and the
/// unit's state as fleetd sees it.
pub(super) async fn tree(
    init: &InitClient,
    format: Format,
    head: &StatusHeader,
    mut units: Vec<Unit>,
) -> Result<(), CliError> {
    let managed =
        open(init).await?.list().await.map_err(|error| cannot_list(init).because(error))?;
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

/// Lists the units of a fleet-init of an earlier version. Its response to `Status` has no graph.
pub(super) async fn status(init: &InitClient, format: Format) -> Result<(), CliError> {
    let units = open(init).await?.list().await.map_err(|error| cannot_list(init).because(error))?;
    let rows: Vec<Row> = units.iter().map(Row::new).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let mut output = Output::on_stdout(format);
    let columns = ["unit", "asked", "active", "sub", "pid", "result"];
    let table = painted(&columns, true, &cells, output.colour());
    output.list(&rows, &table)
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

    fn cells(&self) -> Vec<String> {
        let pid = self.main_pid.map(|pid| pid.to_string());
        let result = match (self.result, &self.exit) {
            (Some(result), Some(exit)) => Some(format!("{result}, {exit}")),
            (result, _) => result.map(str::to_owned),
        };
        let words = [self.unit, self.asked, self.active, self.sub].map(str::to_owned);
        words.into_iter().chain([cell(pid), cell(result)]).collect()
    }
}

impl Record for Row<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}
