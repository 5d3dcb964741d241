//! Pure: finds problems of a cluster, each with a remedy.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent::{Drift, is_wait_reason};
use fleet_core::TargetState;
use fleet_http::wire;
use serde::Serialize;

use super::format::{MachineLabels, short_hash, short_machine, unknown_for, without_name};
use super::wait::is_skipped;
use crate::ui::output::Record;
use crate::ui::table::{BAD, Colour, HELP, ODD};

/// Number of restarts from which a unit gets a warning.
const MANY_RESTARTS: u32 = 5;

/// Severity of a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Something does not work.
    Problem,
    /// Something may not be intended.
    Warning,
}

/// One problem or warning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) severity: Severity,
    /// Name of the unit or machine, or another subject.
    pub(crate) subject: String,
    /// Description of the problem, as a sentence.
    pub(crate) message: String,
    /// Remedy.
    pub(crate) remedy: String,
}

impl Record for Diagnosis {
    fn name(&self) -> &str {
        &self.subject
    }
}

impl Diagnosis {
    pub(crate) fn problem(subject: &str, message: String, remedy: impl Into<String>) -> Self {
        let (severity, subject) = (Severity::Problem, subject.to_owned());
        Self { severity, subject, message, remedy: remedy.into() }
    }

    pub(crate) fn warning(subject: &str, message: String, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(subject, message, remedy) }
    }

    /// Formats the two lines for people.
    pub(crate) fn text(&self, colour: Colour) -> String {
        let kind = match self.severity {
            Severity::Problem => colour.paint(BAD, "problem"),
            Severity::Warning => colour.paint(ODD, "warning"),
        };
        let help = colour.paint(HELP, "help");
        format!("{kind}: {}\n   {help}: {}\n", self.message, self.remedy)
    }
}

/// Content of a cluster for the diagnosis.
#[derive(Debug, Default)]
pub(crate) struct ClusterView {
    pub(crate) units: Vec<wire::UnitEntity>,
    pub(crate) states: Vec<wire::UnitStateEntity>,
    pub(crate) machines: Vec<wire::MachineEntity>,
    /// Machines that were present until recently.
    pub(crate) absent: Vec<wire::MachineEntity>,
}

impl ClusterView {
    /// Returns all problems and warnings, problems first.
    pub(crate) fn diagnose(&self) -> Vec<Diagnosis> {
        let labels = MachineLabels::new(&self.machines);
        let desired: BTreeMap<&str, &wire::UnitEntity> =
            self.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
        let state_diagnoses = self
            .states
            .iter()
            .filter_map(|it| state_diagnosis(it, desired.get(it.name.as_str()).copied(), &labels));
        let unit_diagnoses = self.units.iter().filter_map(|unit| unit_diagnosis(unit, &labels));
        let machine_diagnoses =
            self.machines.iter().filter_map(|it| machine_diagnosis(it, &self.units, &labels));
        let mut all: Vec<Diagnosis> = self.cluster_wide().into_iter().collect();
        all.extend(self.absent.iter().map(absent_diagnosis));
        all.extend(machine_diagnoses.chain(unit_diagnoses).chain(state_diagnoses));
        all.sort();
        all
    }

    fn cluster_wide(&self) -> Vec<Diagnosis> {
        let mut all = Vec::new();
        if self.machines.is_empty() {
            let message = "no machine is present, so nothing can run".to_owned();
            let remedy = "start fleetd on a machine, and check its log: it may not reach the store";
            all.push(Diagnosis::problem("cluster", message, remedy));
        } else if self.machines.iter().all(|machine| machine.cordoned) {
            let message = "every machine is cordoned, so no unit can be placed".to_owned();
            let remedy =
                "run \"fleetctl machine uncordon ID\" for a machine on which units may be placed";
            all.push(Diagnosis::problem("cluster", message, remedy));
        }
        let versions: BTreeSet<&str> = self.machines.iter().map(|it| it.version.as_str()).collect();
        if versions.len() > 1 {
            let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("machines run different versions of fleetd: {versions}");
            let remedy = "use one version; \"fleetctl list-machines --fields machine,version\" \
                          shows them";
            all.push(Diagnosis::warning("cluster", message, remedy));
        }
        all
    }
}

fn machine_diagnosis(
    machine: &wire::MachineEntity,
    units: &[wire::UnitEntity],
    labels: &MachineLabels,
) -> Option<Diagnosis> {
    let (id, at) = (&machine.id, labels.label(&machine.id, false));
    let uncordon = format!("run \"fleetctl machine uncordon {id}\" after its maintenance");
    match machine.intent.as_str() {
        "" => None,
        "drained" if is_draining(machine, units) => {
            let left = units.iter().filter(|unit| unit.machine_id == *id).count();
            let message = format!("{at} is draining: {left} of its units have not moved yet");
            let remedy = format!("\"fleetctl machine drain {id} --wait\" shows the progress");
            Some(Diagnosis::warning(id, message, remedy))
        }
        "drained" => Some(Diagnosis::warning(id, format!("{at} is drained"), uncordon)),
        intent => Some(Diagnosis::warning(id, format!("{at} is {intent}"), uncordon)),
    }
}

/// Returns whether a machine that is to be drained still has units. Global units do not count.
pub(crate) fn is_draining(machine: &wire::MachineEntity, units: &[wire::UnitEntity]) -> bool {
    machine.intent == "drained" && units.iter().any(|unit| unit.machine_id == machine.id)
}

fn absent_diagnosis(machine: &wire::MachineEntity) -> Diagnosis {
    let lasting = unknown_for(machine.absent_for.unwrap_or_default());
    let message = format!("{} has been absent {lasting}", short_machine(&machine.id));
    let remedy = "check that the machine is up, and the log of its fleetd";
    Diagnosis::warning(&machine.id, message, remedy)
}

fn unit_diagnosis(unit: &wire::UnitEntity, labels: &MachineLabels) -> Option<Diagnosis> {
    let name = &unit.name;
    if !unit.problem.is_empty() {
        let remedy =
            format!("run \"fleetctl submit --replace FILE\" or \"fleetctl destroy {name}\"");
        let message = format!("{name} is broken: {}", unit.problem);
        return Some(Diagnosis::problem(name, message, remedy));
    }
    if unit.desired() <= Some(TargetState::Inactive) {
        return None;
    }
    if let Some(seconds) = unit.unknown_for {
        let at = labels.label(&unit.machine_id, false);
        let lasting = unknown_for(seconds);
        let message =
            format!("the state of {name} has been unknown {lasting}: {at} is not present");
        let remedy = "check that the machine is up, and the log of its fleetd";
        return Some(Diagnosis::problem(name, message, remedy));
    }
    if unit.machine_id.is_empty() && !unit.reason.is_empty() {
        let message = format!("{name} has no machine: {}", unit.reason);
        let remedy = format!("\"fleetctl explain {name}\" shows the verdict of each machine");
        return Some(Diagnosis::problem(name, message, remedy));
    }
    None
}

fn state_diagnosis(
    state: &wire::UnitStateEntity,
    unit: Option<&wire::UnitEntity>,
    labels: &MachineLabels,
) -> Option<Diagnosis> {
    let (name, at) = (&state.name, labels.label(&state.machine_id, false));
    let journal = format!("see \"fleetctl logs {name}\"");
    if let Some(drift) = drift(state) {
        return Some(drift_warning(state, drift, &at));
    }
    if is_wait_reason(&state.problem) {
        let other = state.problem.split_once(" (StartAfter=)").and_then(|it| it.0.rsplit_once(' '));
        let see = other.map(|it| format!("see \"fleetctl status {}\"", it.1)).unwrap_or(journal);
        let (reason, remedy) = state.problem.split_once("; ").unwrap_or((&state.problem, &see));
        let message = format!("{name} on {at} {reason}");
        return Some(Diagnosis::problem(name, message, remedy));
    }
    if is_skipped(state) && state.systemd_active_state == "inactive" {
        let message = format!("{name} was skipped on {at}: {}", without_name(&state.problem, name));
        let remedy = format!(
            "nothing to do if that is intended; otherwise \"fleetctl start {name}\" tries again"
        );
        return Some(Diagnosis::warning(name, message, remedy));
    }
    if !state.problem.is_empty() {
        let message = format!("{name} cannot run on {at}: {}", without_name(&state.problem, name));
        return Some(Diagnosis::problem(name, message, remedy(state)));
    }
    // A failed unit is only a problem if it is supposed to run.
    let is_wanted = unit.is_none_or(|unit| unit.desired() == Some(TargetState::Launched));
    if is_wanted && state.systemd_active_state == "failed" {
        let how = [state.result.as_str(), state.exit.as_str()].join(", ");
        let how = how.trim_matches([',', ' ']).to_owned();
        let message = format!("{name} failed on {at}: {how}");
        let remedy = format!("{journal}; \"fleetctl start {name}\" tries again");
        return Some(Diagnosis::problem(name, message, remedy));
    }
    if state.health == "unhealthy" {
        let message = format!("{name} is unhealthy on {at}: {}", state.health_problem);
        let remedy = format!("{journal}, and correct the unit or its HealthCheck=");
        return Some(Diagnosis::problem(name, message, remedy));
    }
    if state.restarts >= MANY_RESTARTS {
        let message = format!("{name} was restarted {} times on {at}", state.restarts);
        return Some(Diagnosis::warning(name, message, journal));
    }
    match unit {
        Some(unit) if !state.hash.is_empty() && unit.hash != state.hash => {
            let (old, new) = (short_hash(&state.hash), short_hash(&unit.hash));
            let message = format!("{name} on {at} still has the file {old} instead of {new}");
            let remedy = "if this persists, check the log of fleetd on that machine";
            Some(Diagnosis::warning(name, message, remedy))
        }
        _ => None,
    }
}

/// Returns the change of a unit that was made on its machine without fleet. The machine reports it
/// as the text of a problem.
fn drift(state: &wire::UnitStateEntity) -> Option<Drift> {
    let all = [Drift::Stopped, Drift::Started, Drift::Changed];
    all.into_iter().find(|drift| state.problem == drift.to_string())
}

/// Returns whether a unit that should run was stopped on its machine without fleet.
pub(crate) fn is_stopped_by_hand(state: &wire::UnitStateEntity) -> bool {
    drift(state) == Some(Drift::Stopped)
}

fn drift_warning(state: &wire::UnitStateEntity, drift: Drift, at: &str) -> Diagnosis {
    let name = &state.name;
    let (change, remedy) = match drift {
        Drift::Stopped => ("stopped", format!("\"fleetctl start {name}\" starts it again")),
        Drift::Started => (
            "started",
            format!("\"fleetctl stop {name}\" stops it, \"fleetctl start {name}\" keeps it"),
        ),
        _ => ("changed", "revert the change there, or make it with \"fleetctl apply\"".to_owned()),
    };
    let message = format!("{name} was {change} on {at}, but not by fleet, which leaves it so");
    match drift {
        Drift::Stopped => Diagnosis::problem(name, message, remedy),
        _ => Diagnosis::warning(name, message, remedy),
    }
}

/// Returns the remedy for a unit that its machine cannot run.
fn remedy(state: &wire::UnitStateEntity) -> &'static str {
    let starts_another = [".timer", ".socket", ".path"].iter().any(|it| state.name.ends_with(it));
    if starts_another && state.systemd_load_state == "loaded" {
        return "load the unit that it starts on the same machine, with MachineOf= in [X-Fleet]";
    }
    "fix its unit file, then \"fleetctl apply FILE\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(view: &ClusterView) -> String {
        view.diagnose().iter().map(|it| it.text(Colour::Off)).collect()
    }

    fn machine(id: &str, version: &str) -> wire::MachineEntity {
        let (id, version) = (id.into(), version.into());
        wire::MachineEntity { id, version, ..wire::MachineEntity::default() }
    }

    #[test]
    fn healthy_cluster_has_no_diagnosis() {
        let unit = wire::UnitEntity {
            name: "web.service".into(),
            desired_state: "launched".into(),
            machine_id: "m1".into(),
            hash: "ab".into(),
            ..wire::UnitEntity::default()
        };
        let state = wire::UnitStateEntity {
            name: "web.service".into(),
            machine_id: "m1".into(),
            hash: "ab".into(),
            systemd_active_state: "active".into(),
            restarts: MANY_RESTARTS - 1,
            ..wire::UnitStateEntity::default()
        };
        let asleep = wire::UnitEntity {
            name: "asleep.service".into(),
            desired_state: "inactive".into(),
            reason: "nobody wants it".into(),
            ..wire::UnitEntity::default()
        };
        let (units, states) = (vec![unit, asleep], vec![state]);
        let machines = vec![machine("m1", "1"), machine("m2", "1")];
        assert_eq!(report(&ClusterView { units, states, machines, absent: Vec::new() }), "");
    }

    #[test]
    fn failed_and_stopped_unit_is_no_problem() {
        let view = |desired: &str| ClusterView {
            units: vec![wire::UnitEntity {
                name: "web.service".into(),
                desired_state: desired.into(),
                machine_id: "m1".into(),
                ..wire::UnitEntity::default()
            }],
            states: vec![wire::UnitStateEntity {
                name: "web.service".into(),
                machine_id: "m1".into(),
                systemd_active_state: "failed".into(),
                ..wire::UnitStateEntity::default()
            }],
            absent: Vec::new(),
            machines: vec![machine("m1", "1")],
        };
        assert_eq!(report(&view("loaded")), "");
        assert!(report(&view("launched")).contains("failed on m1"));
    }

    #[test]
    fn every_diagnosis_has_a_message_and_a_remedy() {
        let unit = |name: &str, reason: &str, problem: &str, unknown_for| wire::UnitEntity {
            name: name.into(),
            desired_state: "launched".into(),
            hash: "0123456789".into(),
            reason: reason.into(),
            problem: problem.into(),
            unknown_for,
            ..wire::UnitEntity::default()
        };
        let state = |name: &str, active: &str, restarts, problem: &str| wire::UnitStateEntity {
            name: name.into(),
            machine_id: "m1".into(),
            hash: "abcdef0123".into(),
            systemd_active_state: active.into(),
            result: "exit-code".into(),
            restarts,
            problem: problem.into(),
            ..wire::UnitStateEntity::default()
        };
        let units = vec![
            unit("lost.service", "no machine fits", "", None),
            unit("broken.service", "", "no section", None),
            wire::UnitEntity { machine_id: "m9".into(), ..unit("away.service", "", "", Some(7)) },
            wire::UnitEntity { machine_id: "m1".into(), ..unit("old.service", "", "", None) },
        ];
        let states = vec![
            state("bad.service", "failed", 0, ""),
            state("loop.service", "active", MANY_RESTARTS, ""),
            state("unfit.service", "", 0, "PrivateNetwork= needs systemd"),
            state("old.service", "active", 0, ""),
            wire::UnitStateEntity {
                systemd_load_state: "loaded".into(),
                ..state("tick.timer", "inactive", 0, "tick.timer: tick.service is not there")
            },
        ];
        let drained = wire::MachineEntity { intent: "drained".into(), ..machine("m2", "2") };
        let machines = vec![machine("m1", "1"), drained];
        let view = ClusterView { units, states, machines, absent: Vec::new() };
        insta::assert_snapshot!(report(&view), @r#"
        problem: the state of away.service has been unknown for 7s: m9 is not present
           help: check that the machine is up, and the log of its fleetd
        problem: bad.service failed on m1: exit-code
           help: see "fleetctl logs bad.service"; "fleetctl start bad.service" tries again
        problem: broken.service is broken: no section
           help: run "fleetctl submit --replace FILE" or "fleetctl destroy broken.service"
        problem: lost.service has no machine: no machine fits
           help: "fleetctl explain lost.service" shows the verdict of each machine
        problem: tick.timer cannot run on m1: tick.service is not there
           help: load the unit that it starts on the same machine, with MachineOf= in [X-Fleet]
        problem: unfit.service cannot run on m1: PrivateNetwork= needs systemd
           help: fix its unit file, then "fleetctl apply FILE"
        warning: machines run different versions of fleetd: 1, 2
           help: use one version; "fleetctl list-machines --fields machine,version" shows them
        warning: loop.service was restarted 5 times on m1
           help: see "fleetctl logs loop.service"
        warning: m2 is drained
           help: run "fleetctl machine uncordon m2" after its maintenance
        warning: old.service on m1 still has the file abcdef0 instead of 0123456
           help: if this persists, check the log of fleetd on that machine
        "#);
        insta::assert_snapshot!(report(&ClusterView::default()), @r"
        problem: no machine is present, so nothing can run
           help: start fleetd on a machine, and check its log: it may not reach the store
        ");
        let cordoned = wire::MachineEntity { cordoned: true, ..machine("m1", "1") };
        let view = ClusterView { machines: vec![cordoned], ..ClusterView::default() };
        assert!(report(&view).contains("every machine is cordoned"));
    }

    /// Regression: the report said that the unit cannot run, and suggested to fix its file.
    #[test]
    fn changes_by_hand_have_their_own_remedies() {
        let state = |name: &str, drift: Drift| wire::UnitStateEntity {
            name: name.into(),
            machine_id: "m1".into(),
            problem: drift.to_string(),
            ..wire::UnitStateEntity::default()
        };
        let states = vec![
            state("halted.service", Drift::Stopped),
            state("roused.service", Drift::Started),
            state("edited.service", Drift::Changed),
        ];
        let machines = vec![machine("m1", "1")];
        let view = ClusterView { states, machines, ..ClusterView::default() };
        insta::assert_snapshot!(report(&view), @r#"
        problem: halted.service was stopped on m1, but not by fleet, which leaves it so
           help: "fleetctl start halted.service" starts it again
        warning: edited.service was changed on m1, but not by fleet, which leaves it so
           help: revert the change there, or make it with "fleetctl apply"
        warning: roused.service was started on m1, but not by fleet, which leaves it so
           help: "fleetctl stop roused.service" stops it, "fleetctl start roused.service" keeps it
        "#);
    }

    #[test]
    fn unhealthy_unit_is_a_problem() {
        let state = wire::UnitStateEntity {
            name: "web.service".into(),
            machine_id: "m1".into(),
            systemd_active_state: "active".into(),
            health: "unhealthy".into(),
            health_problem: "tcp://127.0.0.1:80: connection refused".into(),
            ..wire::UnitStateEntity::default()
        };
        let (states, machines) = (vec![state], vec![machine("m1", "1")]);
        let view = ClusterView { states, machines, ..ClusterView::default() };
        insta::assert_snapshot!(report(&view), @r#"
        problem: web.service is unhealthy on m1: tcp://127.0.0.1:80: connection refused
           help: see "fleetctl logs web.service", and correct the unit or its HealthCheck=
        "#);
    }

    #[test]
    fn unit_that_waits_for_an_external_unit_is_a_problem() {
        let state = wire::UnitStateEntity {
            name: "web.service".into(),
            machine_id: "m1".into(),
            systemd_active_state: "inactive".into(),
            problem: "waits for db.service: nothing is at /run/db; start db.service".into(),
            ..wire::UnitStateEntity::default()
        };
        let ordered = wire::UnitStateEntity {
            name: "app.service".into(),
            problem: "waits for db.service (StartAfter=), which is activating on m2".into(),
            ..state.clone()
        };
        let (states, machines) = (vec![state, ordered], vec![machine("m1", "1")]);
        let view = ClusterView { states, machines, ..ClusterView::default() };
        insta::assert_snapshot!(report(&view), @r#"
        problem: app.service on m1 waits for db.service (StartAfter=), which is activating on m2
           help: see "fleetctl status db.service"
        problem: web.service on m1 waits for db.service: nothing is at /run/db
           help: start db.service
        "#);
    }

    #[test]
    fn absent_and_draining_machines_get_warnings() {
        let machines = ["m1", "m2"]
            .map(|id| wire::MachineEntity { intent: "drained".into(), ..machine(id, "1") });
        let unit = wire::UnitEntity { machine_id: "m1".into(), ..wire::UnitEntity::default() };
        let view = ClusterView {
            units: vec![unit],
            machines: machines.into(),
            absent: vec![wire::MachineEntity { absent_for: Some(125), ..machine("m3", "") }],
            ..ClusterView::default()
        };
        insta::assert_snapshot!(report(&view), @r#"
        warning: m1 is draining: 1 of its units have not moved yet
           help: "fleetctl machine drain m1 --wait" shows the progress
        warning: m2 is drained
           help: run "fleetctl machine uncordon m2" after its maintenance
        warning: m3 has been absent for 2min
           help: check that the machine is up, and the log of its fleetd
        "#);
    }
}
