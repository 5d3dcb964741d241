//! `list-units`: lists the state of each unit on each machine. Units that should be on a machine
//! but have no reported state are listed too, with the reason.

use fleet_http::wire;
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::ListUnitsArgs;
use crate::fleetctl::format::{
    Columns, MachineLabels, first_clause, machine_label, short_hash, unknown_for, with_health,
    without_name,
};
use crate::fleetctl::unit_filter::{NameFilter, retain_machine, retain_states};
use crate::ui::error::CliError;
use crate::ui::output::Record;
use crate::ui::table::cell;
use crate::ui::time::{date, relative};

pub(super) const COLUMNS: Columns<Row> = Columns {
    all: &[
        ("unit", |row, _| row.unit.unit.clone()),
        ("load", |row, _| cell(Some(row.unit.load.as_str()))),
        ("machine", |row, full| machine_label(&row.unit.machine, &row.machine_name, &row.ip, full)),
        ("active", |row, _| cell(Some(row.unit.active.as_str()))),
        ("sub", |row, _| cell(Some(row.sub()))),
        ("hash", |row, full| {
            let hash = &row.unit.hash;
            cell(Some(if full { hash.clone() } else { short_hash(hash) }))
        }),
        ("since", |row, full| cell(Some(since(row.unit.since, full)))),
        ("reason", |row, full| cell(Some(row.reason(full)))),
    ],
    default: &["unit", "machine", "active", "sub"],
};

/// A row, with labels of its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    unit: wire::UnitRow,
    /// Name of the machine.
    #[serde(rename = "machineName", skip_serializing_if = "String::is_empty")]
    machine_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
}

impl Record for Row {
    fn name(&self) -> &str {
        &self.unit.unit
    }
}

impl Row {
    fn sub(&self) -> String {
        match self.unit.unknown_for {
            Some(seconds) => unknown_for(seconds),
            None => with_health(&self.unit.sub, &self.unit.health),
        }
    }

    fn reason(&self, full: bool) -> String {
        let row = &self.unit;
        if let Some(next) = row.next {
            return format!("next run {}", date(Some(next)));
        }
        let reason = without_name(&row.reason, &row.unit);
        match (full, row.reason_summary.is_empty()) {
            (true, _) => reason.to_owned(),
            (false, true) => first_clause(reason),
            (false, false) => row.reason_summary.clone(),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(context: &mut Context, args: &ListUnitsArgs) -> Result<(), CliError> {
    COLUMNS.check(&args.list)?;
    let names = NameFilter::new(&args.units)?;
    let session = &context.session;
    let (units, states, machines) =
        futures_util::try_join!(session.units(), session.states(), session.machines())?;
    let mut rows = wire::unit_rows(units, states);
    retain_states(&mut rows, &args.state)?;
    if let Some(machine) = &args.machine {
        retain_machine(&mut rows, machine, &machines)?;
    }
    rows.retain(|row| names.matches(&row.unit));
    let rows = labelled(rows, &MachineLabels::new(&machines));
    let table = COLUMNS.table(&args.list, &rows, Some("reason"), context.output.table_style())?;
    context.output.list(&rows, &table)
}

/// Formats the time since which a unit has its state: as an age, or in full as a date.
fn since(time: Option<wire::Time>, full: bool) -> String {
    match time {
        Some(time) if !full => relative(time, fleet_agent::wall_time()),
        time => date(time),
    }
}

/// Adds the names and addresses of machines.
fn labelled(rows: Vec<wire::UnitRow>, machines: &MachineLabels) -> Vec<Row> {
    let labelled = |unit: wire::UnitRow| {
        let machine_name = machines.name(&unit.machine).to_owned();
        Row { machine_name, ip: machines.address(&unit.machine).to_owned(), unit }
    };
    rows.into_iter().map(labelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleetctl::args::subcommands::ListArgs;
    use crate::ui::table::TableStyle;

    fn state(name: &str, machine: &str, active: &str, problem: &str) -> wire::UnitStateEntity {
        wire::UnitStateEntity {
            name: name.into(),
            machine_id: machine.into(),
            systemd_load_state: "loaded".into(),
            systemd_active_state: active.into(),
            systemd_sub_state: "running".into(),
            hash: "0123456789abcdef".into(),
            problem: problem.into(),
            ..wire::UnitStateEntity::default()
        }
    }

    fn unit(name: &str, desired: &str, machine: &str, reason: &str) -> wire::UnitEntity {
        wire::UnitEntity {
            name: name.into(),
            desired_state: desired.into(),
            machine_id: machine.into(),
            reason: reason.into(),
            ..wire::UnitEntity::default()
        }
    }

    fn machines() -> MachineLabels {
        let machine = |id: &str, ip: &str| wire::MachineEntity {
            id: id.into(),
            primary_ip: ip.into(),
            ..wire::MachineEntity::default()
        };
        MachineLabels::new(&[
            machine("282f949fc0de", "10.10.20.1"),
            machine("fd1d3e94beef", "10.0.0.1"),
        ])
    }

    fn rows(units: Vec<wire::UnitEntity>, states: Vec<wire::UnitStateEntity>) -> Vec<Row> {
        labelled(wire::unit_rows(units, states), &machines())
    }

    fn table(rows: &[Row], fields: Option<&str>) -> String {
        let args = ListArgs { fields: fields.map(str::to_owned), ..ListArgs::default() };
        COLUMNS.table(&args, rows, Some("reason"), TableStyle::PLAIN).unwrap().replace('\t', "→")
    }

    #[test]
    fn unit_table_matches_v1() {
        let states = vec![
            state("app.service", "282f949fc0de", "active", ""),
            state("app.service", "fd1d3e94beef", "active", ""),
        ];
        let rows = rows(vec![unit("app.service", "launched", "", "")], states);
        insta::assert_snapshot!(table(&rows, None), @r"
        UNIT→→MACHINE→→→ACTIVE→SUB
        app.service→282f949f.../10.10.20.1→active→running
        app.service→fd1d3e94.../10.0.0.1→active→running
        ");
        insta::assert_snapshot!(table(&rows, Some("unit,load,hash")), @r"
        UNIT→→LOAD→HASH
        app.service→loaded→0123456
        app.service→loaded→0123456
        ");
    }

    #[test]
    fn health_is_shown_beside_the_sub_state() {
        let checked = |name: &str, health: &str, problem: &str| wire::UnitStateEntity {
            health: health.into(),
            health_problem: problem.into(),
            ..state(name, "282f949fc0de", "active", "")
        };
        let states = vec![
            checked("a.service", "healthy", ""),
            checked("b.service", "starting", ""),
            checked("c.service", "unhealthy", "GET http://a/: 503 Service Unavailable"),
        ];
        let rows = rows(Vec::new(), states);
        insta::assert_snapshot!(table(&rows, Some("unit,active,sub,reason")), @"
        UNIT→→ACTIVE→SUB→→→REASON
        a.service→active→running (healthy)→-
        b.service→active→running (starting)→-
        c.service→active→running (unhealthy)→GET http://a/: 503 Service Unavailable
        ");
        let json = serde_json::to_value(&rows[2]).unwrap();
        assert_eq!((&json["sub"], &json["health"]), (&"running".into(), &"unhealthy".into()));
    }

    #[test]
    fn counted_failures_come_before_the_reason() {
        let failing = |name: &str, failures: &str| wire::UnitEntity {
            failures: failures.into(),
            ..unit(name, "launched", "282f949fc0de", "")
        };
        let units = vec![
            failing(
                "a.service",
                "failed 2 times on 282f949f: restarts after 20 s, at 14:06:39 UTC",
            ),
            failing("b.service", "failed 3 times on fd1d3e94: moved to 282f949f"),
        ];
        let states = vec![
            state("a.service", "282f949fc0de", "failed", "ExecStart is missing"),
            state("b.service", "282f949fc0de", "active", ""),
        ];
        let rows = rows(units, states);
        insta::assert_snapshot!(table(&rows, Some("unit,active,reason")), @r"
        UNIT→→ACTIVE→REASON
        a.service→failed→failed 2 times on 282f949f: restarts after 20 s, at 14:06:39 UTC; ...
        b.service→active→failed 3 times on fd1d3e94: moved to 282f949f
        ");
    }

    #[test]
    fn unit_that_does_not_run_has_a_row_with_a_reason() {
        let units = vec![
            unit("alone.service", "launched", "", "no machine is present"),
            unit("asleep.service", "inactive", "", ""),
            wire::UnitEntity {
                problem: "cannot be read".into(),
                ..unit("broken.service", "", "", "")
            },
            unit("late.service", "loaded", "282f949fc0de", ""),
            wire::UnitEntity {
                unknown_for: Some(75),
                ..unit("lost.service", "launched", "m3", "")
            },
            wire::UnitEntity {
                unknown_for: Some(3),
                ..unit("stays.service", "launched", "m3", "Reschedule=never keeps it")
            },
        ];
        let states = vec![
            state("web.service", "fd1d3e94beef", "failed", "ExecStart is missing"),
            wire::UnitStateEntity {
                result: "exit-code".into(),
                exit: "exited with status 3".into(),
                ..state("exits.service", "282f949fc0de", "failed", "")
            },
        ];
        let rows = rows(units, states);
        insta::assert_snapshot!(table(&rows, None), @r"
        UNIT→→MACHINE→→→ACTIVE→SUB→→REASON
        alone.service→-→→→-→-→→no machine is present
        broken.service→-→→→-→-→→cannot be read
        exits.service→282f949f.../10.10.20.1→failed→running→→exited with status 3, result exit-code
        late.service→282f949f.../10.10.20.1→-→-→→its machine has not reported it yet
        lost.service→m3→→→unknown→for 1min→its machine is not present
        stays.service→m3→→→unknown→for 3s→→Reschedule=never keeps it
        web.service→fd1d3e94.../10.0.0.1→failed→running→→ExecStart is missing
        ");
        insta::assert_snapshot!(serde_json::to_string_pretty(&rows[6]).unwrap(), @r#"
        {
          "unit": "web.service",
          "machine": "fd1d3e94beef",
          "load": "loaded",
          "active": "failed",
          "sub": "running",
          "hash": "0123456789abcdef",
          "restarts": 0,
          "reason": "ExecStart is missing",
          "ip": "10.0.0.1"
        }
        "#);
    }
}
