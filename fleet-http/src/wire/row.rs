//! Rows of a list of units: each unit on each machine, and wanted units without a reported state.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::TargetState;
use serde::Serialize;

use super::{ReasonDetail, Time, UnitEntity, UnitStateEntity};

/// A unit on a machine, or a unit without a reported state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnitRow {
    /// The unit's name.
    pub unit: String,
    /// ID of the machine; empty if the unit has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// systemd's `LoadState`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub load: String,
    /// systemd's `ActiveState`, or `unknown` if the machine is not present. Empty if the unit has
    /// no machine, or is not reported yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub active: String,
    /// systemd's `SubState`, the phase of an ended job, or the state of a schedule.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub: String,
    /// Time at which the unit entered its active state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Hash of the unit file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// `starting`, `healthy` or `unhealthy`; empty without a health check.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
    /// Result of the last run, as in systemd's `Result`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// Exit status of the last main process.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exit: String,
    /// PID of the main process.
    #[serde(rename = "mainPID", skip_serializing_if = "Option::is_none")]
    pub main_pid: Option<u32>,
    /// Number of automatic restarts by the service manager.
    pub restarts: u32,
    /// Next run of a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
    /// Minimum time for which the state has been unknown, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_for: Option<u64>,
    /// Reason for having no machine, problem on its machine, end of the run that failed, or failure
    /// of the health check. Preceded by failures that count for `MoveAfterFailures=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason for having no machine, as data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<ReasonDetail>,
    /// Short form of a reason for having no machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason_summary: String,
}

/// Returns a row for each state, and a row for each wanted unit without a state. Units that cannot
/// be decoded, schedules and ended jobs always have a row. The rows are ordered by unit, then
/// machine.
#[must_use]
pub fn unit_rows(units: Vec<UnitEntity>, states: Vec<UnitStateEntity>) -> Vec<UnitRow> {
    let failures: BTreeMap<String, String> = units
        .iter()
        .filter(|unit| !unit.failures.is_empty())
        .map(|unit| (unit.name.clone(), unit.failures.clone()))
        .collect();
    let reported: BTreeSet<String> = states.iter().map(|state| state.name.clone()).collect();
    let missing =
        units.into_iter().filter(|unit| is_wanted(unit) && !reported.contains(&unit.name));
    let missing: Vec<_> = missing.map(UnitRow::from_unit).collect();
    let states = states.into_iter().map(UnitRow::from_state);
    let mut rows: Vec<UnitRow> = states.chain(missing).collect();
    for row in &mut rows {
        if let Some(failures) = failures.get(&row.unit) {
            let separator = if row.reason.is_empty() { "" } else { "; " };
            row.reason = format!("{failures}{separator}{}", row.reason);
        }
    }
    rows.sort_by(|a, b| (&a.unit, &a.machine).cmp(&(&b.unit, &b.machine)));
    rows
}

/// Whether the unit has a row even without a state.
fn is_wanted(unit: &UnitEntity) -> bool {
    !unit.problem.is_empty()
        || unit.job.as_ref().is_some_and(|job| job.has_ended)
        || unit.desired().is_some_and(|desired| desired > TargetState::Inactive)
}

impl UnitRow {
    fn from_state(state: UnitStateEntity) -> Self {
        let has_no_reason = state.problem.is_empty() && state.systemd_active_state == "failed";
        let reason = match (has_no_reason, state.problem.is_empty()) {
            (true, _) => state.outcome(),
            (false, true) => state.health_problem,
            (false, false) => state.problem,
        };
        Self {
            unit: state.name,
            machine: state.machine_id,
            load: state.systemd_load_state,
            active: state.systemd_active_state,
            sub: state.systemd_sub_state,
            since: state.since,
            hash: state.hash,
            health: state.health,
            result: state.result,
            exit: state.exit,
            main_pid: state.main_pid,
            restarts: state.restarts,
            reason,
            ..Self::default()
        }
    }

    /// Creates the row of a unit that no machine reports.
    fn from_unit(unit: UnitEntity) -> Self {
        if let Some(row) = Self::from_job_or_schedule(&unit) {
            return row;
        }
        let reason_detail = unit.reason_detail.filter(|_| unit.problem.is_empty());
        let (reason, reason_summary) = match (unit.problem.as_str(), unit.machine_id.as_str()) {
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
        Self {
            active: unit.unknown_for.map_or("", |_| "unknown").to_owned(),
            unknown_for: unit.unknown_for,
            unit: unit.name,
            machine: unit.machine_id,
            hash: unit.hash,
            reason,
            reason_detail,
            reason_summary,
            ..Self::default()
        }
    }

    /// Creates the row of a job that has ended, or of a schedule.
    fn from_job_or_schedule(unit: &UnitEntity) -> Option<Self> {
        let row = Self { unit: unit.name.clone(), hash: unit.hash.clone(), ..Self::default() };
        match (&unit.job, &unit.schedule) {
            (Some(job), _) if job.has_ended => {
                let has_failed = matches!(job.phase.as_str(), "failed" | "deadline exceeded");
                let active = if has_failed { "failed" } else { "inactive" };
                let reason = format!("job {}", job.text);
                Some(Self { active: active.to_owned(), sub: job.phase.clone(), reason, ..row })
            }
            (None, Some(schedule)) => {
                let sub = format!("schedule {}", schedule.state);
                Some(Self { active: "active".to_owned(), sub, next: schedule.next, ..row })
            }
            _ => None,
        }
    }
}
