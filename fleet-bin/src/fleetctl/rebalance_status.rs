//! Pure: finds obstacles to the rebalancing.
//!
//! A moved unit that does not start on its new machine delays the remaining moves without limit. It
//! is reported as a problem if it cannot start without intervention, but not while it is still
//! starting.

use fleet_http::wire::{MachineEntity, PendingMove, RebalanceReport, UnitStateEntity};

use super::diagnosis::Diagnosis;
use super::format::MachineLabels;

/// Subject of these diagnoses.
const SUBJECT: &str = "rebalance";

/// Returns a problem for each moved unit that cannot start on its new machine. Adds a problem if no
/// further move is possible, so that the rebalancing itself is stuck.
pub(crate) fn rebalance_problems(
    report: &RebalanceReport,
    states: &[UnitStateEntity],
    machines: &[MachineEntity],
) -> Vec<Diagnosis> {
    let labels = MachineLabels::new(machines);
    let is_present = |id: &str| machines.iter().any(|machine| machine.id == id);
    let diagnosis = |pending: &PendingMove| {
        let PendingMove { unit, to, .. } = pending;
        let state = states.iter().find(|it| it.name == *unit && it.machine_id == *to);
        let why = match state {
            _ if !is_present(to) => "that machine is not present".to_owned(),
            Some(state) if is_stuck(state) => pending.reason.clone(),
            _ => return None,
        };
        let at = labels.label(to, false);
        let message = format!("rebalancing waits for {unit} on {at}: {why}");
        Some(Diagnosis::problem(SUBJECT, message, remedy(unit)))
    };
    let waits = Some(&report.waits).filter(|waits| report.stuck && !waits.is_empty());
    let waits = waits.map(|waits| {
        let message = format!("rebalancing is stuck: {waits}");
        let remedy = "fix this, or cancel with \"fleetctl rebalance --stop\"";
        Diagnosis::problem(SUBJECT, message, remedy)
    });
    report.under_way.iter().filter_map(diagnosis).chain(waits).collect()
}

/// Whether the unit cannot start without intervention.
fn is_stuck(state: &UnitStateEntity) -> bool {
    !state.problem.is_empty()
        || state.systemd_active_state == "failed"
        || state.systemd_sub_state == "auto-restart"
}

fn remedy(unit: &str) -> String {
    format!("see \"fleetctl logs {unit}\", or cancel with \"fleetctl rebalance --stop\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::Colour;

    fn state(unit: &str, active: &str, sub: &str, problem: &str) -> UnitStateEntity {
        UnitStateEntity {
            name: unit.into(),
            machine_id: "m2".into(),
            systemd_active_state: active.into(),
            systemd_sub_state: sub.into(),
            problem: problem.into(),
            ..UnitStateEntity::default()
        }
    }

    fn under_way(unit: &str, to: &str, reason: &str) -> PendingMove {
        let mut pending = PendingMove::default();
        (pending.unit, pending.to, pending.reason) = (unit.into(), to.into(), reason.into());
        pending
    }

    #[test]
    fn stuck_rebalancing_is_a_problem() {
        let report_text = |stuck| {
            let waits = "m1 is drained first".to_owned();
            let mut report = RebalanceReport::default();
            (report.waits, report.stuck) = (waits, stuck);
            let problems = rebalance_problems(&report, &[], &[]);
            problems.iter().map(|it| it.text(Colour::Off)).collect::<String>()
        };
        assert_eq!(report_text(false), "");
        insta::assert_snapshot!(report_text(true), @r#"
        problem: rebalancing is stuck: m1 is drained first
           help: fix this, or cancel with "fleetctl rebalance --stop"
        "#);
    }

    #[test]
    fn only_units_that_cannot_start_are_problems() {
        let under_way = vec![
            under_way("away.service", "m9", "its machine has not reported it yet"),
            under_way("bad.service", "m2", "it is failed (failed)"),
            under_way("l.service", "m2", "it is activating (auto-restart)"),
            under_way("new.service", "m2", "its machine has not reported it yet"),
            under_way("odd.service", "m2", "PrivateNetwork= needs systemd"),
            under_way("slow.service", "m2", "it is activating (start-pre)"),
        ];
        let states = [
            state("bad.service", "failed", "failed", ""),
            state("l.service", "activating", "auto-restart", ""),
            state("odd.service", "inactive", "dead", "PrivateNetwork= needs systemd"),
            state("slow.service", "activating", "start-pre", ""),
            UnitStateEntity {
                machine_id: "m1".into(),
                ..state("new.service", "failed", "failed", "on the machine that it left")
            },
        ];
        let machines =
            ["m1", "m2"].map(|id| MachineEntity { id: id.into(), ..MachineEntity::default() });
        let mut report = RebalanceReport::default();
        report.under_way = under_way;
        let text: String = rebalance_problems(&report, &states, &machines)
            .iter()
            .map(|it| it.text(Colour::Off))
            .filter_map(|text| text.lines().next().map(|line| format!("{line}\n")))
            .collect();
        insta::assert_snapshot!(text, @"
        problem: rebalancing waits for away.service on m9: that machine is not present
        problem: rebalancing waits for bad.service on m2: it is failed (failed)
        problem: rebalancing waits for l.service on m2: it is activating (auto-restart)
        problem: rebalancing waits for odd.service on m2: PrivateNetwork= needs systemd
        ");
    }
}
