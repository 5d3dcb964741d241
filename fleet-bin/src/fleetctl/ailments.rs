//! Pure: what is wrong with a cluster, in sentences, each with a remedy.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::TargetState;
use fleet_http::wire;
use serde::Serialize;

use super::colour::{BAD, Colour, HELP, ODD};
use super::output::Record;
use super::words::{Machines, short_hash, unknown_for, without_name};

/// From how many restarts on a unit is said to be restarted again and again.
const MANY_RESTARTS: u32 = 5;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Something does not work.
    Problem,
    /// Something may not be as it is meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Ailment {
    pub(crate) severity: Severity,
    /// The unit or machine, or what else it is about.
    pub(crate) subject: String,
    /// What is wrong, as a sentence.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Record for Ailment {
    fn name(&self) -> &str {
        &self.subject
    }
}

impl Ailment {
    pub(crate) fn problem(subject: &str, message: String, remedy: impl Into<String>) -> Self {
        let (severity, subject) = (Severity::Problem, subject.to_owned());
        Self { severity, subject, message, remedy: remedy.into() }
    }

    pub(crate) fn warning(subject: &str, message: String, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(subject, message, remedy) }
    }

    /// The two lines that people see.
    pub(crate) fn text(&self, colour: Colour) -> String {
        let kind = match self.severity {
            Severity::Problem => colour.paint(BAD, "problem"),
            Severity::Warning => colour.paint(ODD, "warning"),
        };
        let help = colour.paint(HELP, "help");
        format!("{kind}: {}\n   {help}: {}\n", self.message, self.remedy)
    }
}

/// What there is of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Patient {
    pub(crate) units: Vec<wire::Unit>,
    pub(crate) states: Vec<wire::UnitState>,
    pub(crate) machines: Vec<wire::Machine>,
}

impl Patient {
    /// All that is wrong, the worst first.
    pub(crate) fn ailments(&self) -> Vec<Ailment> {
        let legends = Machines::new(&self.machines);
        let desired: BTreeMap<&str, &wire::Unit> =
            self.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
        let of_states = self
            .states
            .iter()
            .filter_map(|it| of_state(it, desired.get(it.name.as_str()).copied(), &legends));
        let of_units = self.units.iter().filter_map(|unit| of_unit(unit, &legends));
        let of_machines = self.machines.iter().filter_map(|it| of_machine(it, &legends));
        let mut all: Vec<Ailment> = self.as_a_whole().into_iter().collect();
        all.extend(of_machines.chain(of_units).chain(of_states));
        all.sort();
        all
    }

    fn as_a_whole(&self) -> Vec<Ailment> {
        let mut all = Vec::new();
        if self.machines.is_empty() {
            let message = "no machine is present, so nothing can run".to_owned();
            let remedy = "start fleetd on a machine, and see its log: it may not reach the store";
            all.push(Ailment::problem("cluster", message, remedy));
        } else if self.machines.iter().all(|machine| machine.cordoned) {
            let message = "every machine is cordoned, so nothing new finds a place".to_owned();
            let remedy = "\"fleetctl machine uncordon ID\" lets one take units again";
            all.push(Ailment::problem("cluster", message, remedy));
        }
        let versions: BTreeSet<&str> = self.machines.iter().map(|it| it.version.as_str()).collect();
        if versions.len() > 1 {
            let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("machines run different versions of fleetd: {versions}");
            let remedy = "bring all to one; \"fleetctl list-machines --fields machine,version\" \
                          shows them";
            all.push(Ailment::warning("cluster", message, remedy));
        }
        all
    }
}

fn of_machine(machine: &wire::Machine, legends: &Machines) -> Option<Ailment> {
    let (id, at) = (&machine.id, legends.legend(&machine.id, false));
    let uncordon = format!("\"fleetctl machine uncordon {id}\" when the work on it is done");
    match machine.intent.as_str() {
        "" => None,
        "drained" => Some(Ailment::warning(id, format!("{at} is drained"), uncordon)),
        intent => Some(Ailment::warning(id, format!("{at} is {intent}"), uncordon)),
    }
}

fn of_unit(unit: &wire::Unit, legends: &Machines) -> Option<Ailment> {
    let name = &unit.name;
    if !unit.problem.is_empty() {
        let remedy = format!("submit it again with --replace, or \"fleetctl destroy {name}\"");
        let message = format!("{name} cannot be understood: {}", unit.problem);
        return Some(Ailment::problem(name, message, remedy));
    }
    if unit.desired() <= Some(TargetState::Inactive) {
        return None;
    }
    if let Some(seconds) = unit.unknown_for {
        let at = legends.legend(&unit.machine_id, false);
        let lasting = unknown_for(seconds);
        let message = format!("nothing is known of {name} {lasting}: {at} is not present");
        let remedy = "see whether that machine is up, and the log of its fleetd";
        return Some(Ailment::problem(name, message, remedy));
    }
    if unit.machine_id.is_empty() && !unit.reason.is_empty() {
        let message = format!("{name} has no machine: {}", unit.reason);
        let remedy = format!("\"fleetctl explain {name}\" tells what every machine says to it");
        return Some(Ailment::problem(name, message, remedy));
    }
    None
}

fn of_state(
    state: &wire::UnitState,
    unit: Option<&wire::Unit>,
    legends: &Machines,
) -> Option<Ailment> {
    let (name, at) = (&state.name, legends.legend(&state.machine_id, false));
    let journal = format!("see \"fleetctl logs {name}\"");
    if !state.problem.is_empty() {
        let message = format!("{name} cannot run on {at}: {}", without_name(&state.problem, name));
        return Some(Ailment::problem(name, message, remedy(state)));
    }
    // How what was stopped has ended is nobody's trouble.
    let is_wanted = unit.is_none_or(|unit| unit.desired() == Some(TargetState::Launched));
    if is_wanted && state.systemd_active_state == "failed" {
        let how = [state.result.as_str(), state.exit.as_str()].join(", ");
        let how = how.trim_matches([',', ' ']).to_owned();
        let message = format!("{name} failed on {at}: {how}");
        let remedy = format!("{journal}; \"fleetctl start {name}\" tries again");
        return Some(Ailment::problem(name, message, remedy));
    }
    if state.restarts >= MANY_RESTARTS {
        let message = format!("{name} was restarted {} times on {at}", state.restarts);
        return Some(Ailment::warning(name, message, journal));
    }
    match unit {
        Some(unit) if !state.hash.is_empty() && unit.hash != state.hash => {
            let (old, new) = (short_hash(&state.hash), short_hash(&unit.hash));
            let message = format!("{name} on {at} still has the file {old} instead of {new}");
            let remedy = "if it stays so, see the log of the fleetd on that machine";
            Some(Ailment::warning(name, message, remedy))
        }
        _ => None,
    }
}

/// What to do about a unit that its machine has a problem with.
fn remedy(state: &wire::UnitState) -> &'static str {
    let starts_another = [".timer", ".socket", ".path"].iter().any(|it| state.name.ends_with(it));
    if starts_another && state.systemd_load_state == "loaded" {
        return "load what it starts on that machine: MachineOf= in [X-Fleet] keeps both \
                together";
    }
    "change its unit file, then \"fleetctl apply FILE\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(patient: &Patient) -> String {
        patient.ailments().iter().map(|it| it.text(Colour::Off)).collect()
    }

    fn machine(id: &str, version: &str) -> wire::Machine {
        let (id, version) = (id.into(), version.into());
        wire::Machine { id, version, ..wire::Machine::default() }
    }

    #[test]
    fn a_healthy_cluster_has_no_ailment() {
        let unit = wire::Unit {
            name: "web.service".into(),
            desired_state: "launched".into(),
            machine_id: "m1".into(),
            hash: "ab".into(),
            ..wire::Unit::default()
        };
        let state = wire::UnitState {
            name: "web.service".into(),
            machine_id: "m1".into(),
            hash: "ab".into(),
            systemd_active_state: "active".into(),
            restarts: MANY_RESTARTS - 1,
            ..wire::UnitState::default()
        };
        let asleep = wire::Unit {
            name: "asleep.service".into(),
            desired_state: "inactive".into(),
            reason: "nobody wants it".into(),
            ..wire::Unit::default()
        };
        let (units, states) = (vec![unit, asleep], vec![state]);
        let machines = vec![machine("m1", "1"), machine("m2", "1")];
        assert_eq!(told(&Patient { units, states, machines }), "");
    }

    #[test]
    fn what_failed_and_was_stopped_is_no_ailment() {
        let patient = |desired: &str| Patient {
            units: vec![wire::Unit {
                name: "web.service".into(),
                desired_state: desired.into(),
                machine_id: "m1".into(),
                ..wire::Unit::default()
            }],
            states: vec![wire::UnitState {
                name: "web.service".into(),
                machine_id: "m1".into(),
                systemd_active_state: "failed".into(),
                ..wire::UnitState::default()
            }],
            machines: vec![machine("m1", "1")],
        };
        assert_eq!(told(&patient("loaded")), "");
        assert!(told(&patient("launched")).contains("failed on m1"));
    }

    #[test]
    fn every_ailment_has_a_sentence_and_a_remedy() {
        let unit = |name: &str, reason: &str, problem: &str, unknown_for| wire::Unit {
            name: name.into(),
            desired_state: "launched".into(),
            hash: "0123456789".into(),
            reason: reason.into(),
            problem: problem.into(),
            unknown_for,
            ..wire::Unit::default()
        };
        let state = |name: &str, active: &str, restarts, problem: &str| wire::UnitState {
            name: name.into(),
            machine_id: "m1".into(),
            hash: "abcdef0123".into(),
            systemd_active_state: active.into(),
            result: "exit-code".into(),
            restarts,
            problem: problem.into(),
            ..wire::UnitState::default()
        };
        let units = vec![
            unit("lost.service", "no machine fits", "", None),
            unit("broken.service", "", "no section", None),
            wire::Unit { machine_id: "m9".into(), ..unit("away.service", "", "", Some(7)) },
            wire::Unit { machine_id: "m1".into(), ..unit("old.service", "", "", None) },
        ];
        let states = vec![
            state("bad.service", "failed", 0, ""),
            state("loop.service", "active", MANY_RESTARTS, ""),
            state("unfit.service", "", 0, "PrivateNetwork= needs systemd"),
            state("old.service", "active", 0, ""),
            wire::UnitState {
                systemd_load_state: "loaded".into(),
                ..state("tick.timer", "inactive", 0, "tick.timer: tick.service is not there")
            },
        ];
        let drained = wire::Machine { intent: "drained".into(), ..machine("m2", "2") };
        let patient = Patient { units, states, machines: vec![machine("m1", "1"), drained] };
        insta::assert_snapshot!(told(&patient), @r#"
        problem: nothing is known of away.service for 7s: m9 is not present
           help: see whether that machine is up, and the log of its fleetd
        problem: bad.service failed on m1: exit-code
           help: see "fleetctl logs bad.service"; "fleetctl start bad.service" tries again
        problem: broken.service cannot be understood: no section
           help: submit it again with --replace, or "fleetctl destroy broken.service"
        problem: lost.service has no machine: no machine fits
           help: "fleetctl explain lost.service" tells what every machine says to it
        problem: tick.timer cannot run on m1: tick.service is not there
           help: load what it starts on that machine: MachineOf= in [X-Fleet] keeps both together
        problem: unfit.service cannot run on m1: PrivateNetwork= needs systemd
           help: change its unit file, then "fleetctl apply FILE"
        warning: machines run different versions of fleetd: 1, 2
           help: bring all to one; "fleetctl list-machines --fields machine,version" shows them
        warning: loop.service was restarted 5 times on m1
           help: see "fleetctl logs loop.service"
        warning: m2 is drained
           help: "fleetctl machine uncordon m2" when the work on it is done
        warning: old.service on m1 still has the file abcdef0 instead of 0123456
           help: if it stays so, see the log of the fleetd on that machine
        "#);
        insta::assert_snapshot!(told(&Patient::default()), @r"
        problem: no machine is present, so nothing can run
           help: start fleetd on a machine, and see its log: it may not reach the store
        ");
        let cordoned = wire::Machine { cordoned: true, ..machine("m1", "1") };
        let patient = Patient { machines: vec![cordoned], ..Patient::default() };
        assert!(told(&patient).contains("every machine is cordoned"));
    }
}
