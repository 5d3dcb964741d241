//! `list-units`: lists the state of each unit on each machine. Units that should be on a machine
//! but have no reported state are listed too, with the reason.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::TargetState;
use fleet_http::wire;
use serde::Serialize;

use super::status::date;
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::ListArgs;
use crate::fleetctl::format::{
    Columns, MachineLabels, first_clause, machine_label, short_hash, unknown_for, with_health,
    without_name,
};
use crate::fleetctl::wait::outcome;
use crate::ui::error::CliError;
use crate::ui::output::Record;
use crate::ui::table::cell;

const COLUMNS: Columns<Row> = Columns {
    all: &[
        ("unit", |row, _| row.unit.clone()),
        ("load", |row, _| cell(Some(row.load.as_str()))),
        ("machine", |row, full| machine_label(&row.machine, &row.ip, full)),
        ("active", |row, _| cell(Some(row.active.as_str()))),
        ("sub", |row, _| cell(Some(with_health(&row.sub, &row.health).as_str()))),
        ("hash", |row, full| {
            cell(Some(if full { row.hash.clone() } else { short_hash(&row.hash) }))
        }),
        ("reason", |row, full| {
            let reason = without_name(&row.reason, &row.unit);
            cell(Some(match (full, row.summary.is_empty()) {
                (true, _) => reason.to_owned(),
                (false, true) => first_clause(reason),
                (false, false) => row.summary.clone(),
            }))
        }),
    ],
    default: &["unit", "machine", "active", "sub"],
};

/// A unit on a machine, or a unit without a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    unit: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    load: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    active: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    sub: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hash: String,
    /// `starting`, `healthy` or `unhealthy`; empty without a health check.
    #[serde(skip_serializing_if = "String::is_empty")]
    health: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    result: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    exit: String,
    #[serde(rename = "mainPID", skip_serializing_if = "Option::is_none")]
    main_pid: Option<u32>,
    restarts: u32,
    /// Minimum time for which the state has been unknown, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_for: Option<u64>,
    /// Reason for having no machine, problem on its machine, end of the run that failed, or failure
    /// of the health check. Preceded by failures that count for `MoveAfterFailures=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Short form of a reason for having no machine.
    #[serde(skip)]
    summary: String,
}

impl Record for Row {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Row {
    fn from_state(state: wire::UnitStateEntity, machines: &MachineLabels) -> Self {
        let has_no_reason = state.problem.is_empty() && state.systemd_active_state == "failed";
        let reason = match (has_no_reason, state.problem.is_empty()) {
            (true, _) => outcome(&state),
            (false, true) => state.health_problem,
            (false, false) => state.problem,
        };
        Self {
            unit: state.name,
            ip: machines.address(&state.machine_id).to_owned(),
            machine: state.machine_id,
            load: state.systemd_load_state,
            active: state.systemd_active_state,
            sub: state.systemd_sub_state,
            hash: state.hash,
            health: state.health,
            result: state.result,
            exit: state.exit,
            main_pid: state.main_pid,
            restarts: state.restarts,
            unknown_for: None,
            reason,
            summary: String::new(),
        }
    }

    /// Creates the row of a wanted unit that no machine reports.
    fn from_unit(unit: wire::UnitEntity, machines: &MachineLabels) -> Self {
        if let Some(row) = Self::from_job_or_schedule(&unit) {
            return row;
        }
        let (reason, summary) = match (unit.problem.as_str(), unit.machine_id.as_str()) {
            ("", "") => (unit.reason, unit.reason_summary),
            ("", _) if unit.unknown_for.is_none() => {
                ("its machine has not reported it yet".into(), String::new())
            }
            ("", _) if unit.reason.is_empty() => {
                ("its machine is not present".into(), String::new())
            }
            ("", _) => (unit.reason, unit.reason_summary),
            (problem, _) => (problem.into(), String::new()),
        };
        let active = unit.unknown_for.map_or("", |_| "unknown");
        Self {
            active: active.to_owned(),
            sub: unit.unknown_for.map_or_else(String::new, unknown_for),
            unknown_for: unit.unknown_for,
            unit: unit.name,
            ip: machines.address(&unit.machine_id).to_owned(),
            machine: unit.machine_id,
            hash: unit.hash,
            reason,
            summary,
            ..Self::default()
        }
    }
}

impl Row {
    /// Creates the row of a job that has ended, or of a schedule.
    fn from_job_or_schedule(unit: &wire::UnitEntity) -> Option<Self> {
        let (active, sub, reason) = match (&unit.job, &unit.schedule) {
            (Some(job), _) if job.has_ended => {
                let has_failed = matches!(job.phase.as_str(), "failed" | "deadline exceeded");
                let active = if has_failed { "failed" } else { "inactive" };
                (active, job.phase.clone(), format!("job {}", job.text))
            }
            (None, Some(schedule)) => {
                let next = schedule.next.map(|next| format!("next run {}", date(Some(next))));
                ("active", format!("schedule {}", schedule.state), next.unwrap_or_default())
            }
            _ => return None,
        };
        Some(Self {
            active: active.to_owned(),
            sub,
            reason,
            unit: unit.name.clone(),
            hash: unit.hash.clone(),
            ..Self::default()
        })
    }
}

/// Runs the command.
pub(crate) async fn run(context: &mut Context, args: &ListArgs) -> Result<(), CliError> {
    COLUMNS.check(args)?;
    let session = &context.session;
    let (units, states, machines) =
        futures_util::try_join!(session.units(), session.states(), session.machines())?;
    let rows = rows(units, states, &MachineLabels::new(&machines));
    let table = COLUMNS.table(args, &rows, Some("reason"), context.output.colour())?;
    context.output.list(&rows, &table)
}

/// Returns a row for each state, and a row for each wanted unit without a state. The rows are
/// sorted by unit name.
fn rows(
    units: Vec<wire::UnitEntity>,
    states: Vec<wire::UnitStateEntity>,
    machines: &MachineLabels,
) -> Vec<Row> {
    let failures: BTreeMap<String, String> = units
        .iter()
        .filter(|unit| !unit.failures.is_empty())
        .map(|unit| (unit.name.clone(), unit.failures.clone()))
        .collect();
    let reported: BTreeSet<String> = states.iter().map(|state| state.name.clone()).collect();
    let missing =
        units.into_iter().filter(|unit| is_wanted(unit) && !reported.contains(&unit.name));
    let missing: Vec<_> = missing.map(|unit| Row::from_unit(unit, machines)).collect();
    let states = states.into_iter().map(|state| Row::from_state(state, machines));
    let mut rows: Vec<Row> = states.chain(missing).collect();
    for row in &mut rows {
        if let Some(failures) = failures.get(&row.unit) {
            let separator = if row.reason.is_empty() { "" } else { "; " };
            row.reason = format!("{failures}{separator}{}", row.reason);
        }
    }
    rows.sort_by(|a, b| (&a.unit, &a.machine).cmp(&(&b.unit, &b.machine)));
    rows
}

/// Whether the unit should have a state. Broken units and ended jobs are always listed.
fn is_wanted(unit: &wire::UnitEntity) -> bool {
    !unit.problem.is_empty()
        || unit.job.as_ref().is_some_and(|job| job.has_ended)
        || unit.desired().is_some_and(|desired| desired > TargetState::Inactive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::Colour;

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

    fn table(rows: &[Row], fields: Option<&str>) -> String {
        let args = ListArgs {
            full: false,
            no_legend: false,
            fields: fields.map(str::to_owned),
            watch: false,
        };
        COLUMNS.table(&args, rows, Some("reason"), Colour::Off).unwrap().replace('\t', "→")
    }

    #[test]
    fn unit_table_matches_v1() {
        let states = vec![
            state("app.service", "282f949fc0de", "active", ""),
            state("app.service", "fd1d3e94beef", "active", ""),
        ];
        let rows = rows(vec![unit("app.service", "launched", "", "")], states, &machines());
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
        let rows = rows(Vec::new(), states, &machines());
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
        let rows = rows(units, states, &machines());
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
        let rows = rows(units, states, &machines());
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
          "ip": "10.0.0.1",
          "load": "loaded",
          "active": "failed",
          "sub": "running",
          "hash": "0123456789abcdef",
          "restarts": 0,
          "reason": "ExecStart is missing"
        }
        "#);
    }
}
