//! Verdicts for observations, as tables.

use super::*;

const ACTIVE: Goal = Goal::Active { generation: 0 };

fn unit(desired: &str, machine: &str) -> wire::UnitEntity {
    wire::UnitEntity {
        name: "web.service".into(),
        desired_state: desired.into(),
        machine_id: machine.into(),
        hash: "new".into(),
        ..wire::UnitEntity::default()
    }
}

fn state(machine: &str, asked: &str, active: &str, sub: &str) -> wire::UnitStateEntity {
    wire::UnitStateEntity {
        name: "web.service".into(),
        machine_id: machine.into(),
        hash: "new".into(),
        requested_state: asked.into(),
        systemd_load_state: "loaded".into(),
        systemd_active_state: active.into(),
        systemd_sub_state: sub.into(),
        ..wire::UnitStateEntity::default()
    }
}

fn evaluate_states(
    goal: Goal,
    unit: Option<wire::UnitEntity>,
    states: &[wire::UnitStateEntity],
) -> String {
    evaluate(goal, &Observation { unit, states: states.to_vec(), ..Observation::default() })
}

fn evaluate(goal: Goal, observation: &Observation) -> String {
    match goal.evaluate(observation) {
        Verdict::Reached => "reached".into(),
        Verdict::Running(_) => "runs".into(),
        Verdict::PartlyReached(text) => format!("enough: {text}"),
        Verdict::Skipped(text) => format!("no start: {text}"),
        Verdict::Pending(text) => format!("pending: {text}"),
        Verdict::Held(text) => format!("held: {text}"),
        Verdict::Stuck(text) => format!("stuck: {text}"),
        Verdict::Failed { text, machine: None } => format!("failed: {text}"),
        Verdict::Failed { text, machine: Some(machine) } => format!("failed at {machine}: {text}"),
    }
}

#[test]
fn start_ends_when_the_unit_is_active() {
    let launched = || Some(unit("launched", "m1"));
    let run = |active, sub| state("m1", "launched", active, sub);
    let with = |result: &str, exit: &str, state: wire::UnitStateEntity| wire::UnitStateEntity {
        result: result.into(),
        exit: exit.into(),
        ..state
    };
    let because = |problem: &str, state: wire::UnitStateEntity| wire::UnitStateEntity {
        problem: problem.into(),
        ..state
    };
    for (states, expected) in [
        (vec![], "pending: m1 has not loaded it yet"),
        (vec![state("m1", "loaded", "inactive", "dead")], "pending: m1 has not started it yet"),
        (vec![state("m2", "launched", "active", "running")], "pending: m1 has not loaded it yet"),
        (vec![run("activating", "start-pre")], "pending: it is activating (start-pre) on m1"),
        (vec![run("inactive", "dead")], "pending: it is inactive (dead) on m1"),
        (vec![run("active", "running")], "runs"),
        (vec![run("active", "exited")], "reached"),
        (vec![run("reloading", "reload")], "reached"),
        (vec![with("success", "", run("inactive", "dead"))], "reached"),
        (
            vec![with("exit-code", "exited with status 3", run("failed", "failed"))],
            "failed at m1: failed on m1: exited with status 3, result exit-code",
        ),
        (
            vec![with("timeout", "", run("failed", "failed"))],
            "failed at m1: failed on m1: result timeout",
        ),
        (
            vec![with("exit-code", "exited with status 1", run("activating", "auto-restart"))],
            "stuck: m1 keeps restarting it: exited with status 1, result exit-code",
        ),
        (
            vec![because("cannot run /x", run("activating", "auto-restart"))],
            "stuck: m1 keeps restarting it: cannot run /x",
        ),
        (
            vec![with(
                "exec-condition",
                "",
                because("its A=b does not hold", run("inactive", "dead")),
            )],
            "no start: on m1, but was skipped: its A=b does not hold",
        ),
    ] {
        assert_eq!(evaluate_states(ACTIVE, launched(), &states), expected, "{states:?}");
    }
}

#[test]
fn states_of_earlier_runs_do_not_count() {
    let failed = state("m1", "launched", "failed", "failed");
    let restarted = wire::UnitEntity { generation: 2, ..unit("launched", "m1") };
    let before = wire::UnitStateEntity { generation: 1, ..failed.clone() };
    let expected = "pending: m1 has not started it yet";
    assert_eq!(
        evaluate_states(ACTIVE, Some(restarted.clone()), std::slice::from_ref(&before)),
        expected
    );
    // The response to the restart may arrive before the unit shows the new generation.
    let unit_before = wire::UnitEntity { generation: 1, ..restarted };
    let goal = Goal::Active { generation: 2 };
    assert_eq!(evaluate_states(goal, Some(unit_before), &[before]), expected);

    let old_file = wire::UnitStateEntity {
        hash: "old".into(),
        ..state("m1", "launched", "active", "running")
    };
    let expected = "pending: m1 has not loaded its present file yet";
    assert_eq!(evaluate_states(ACTIVE, Some(unit("launched", "m1")), &[old_file]), expected);
}

#[test]
fn unplaced_unit_gives_its_reason() {
    let waiting = || unit("launched", "");
    assert_eq!(evaluate_states(ACTIVE, Some(waiting()), &[]), "pending: it has no machine yet");
    let refused = wire::UnitEntity { reason: "no machine is present".into(), ..waiting() };
    for goal in [ACTIVE, Goal::Loaded] {
        let desired = if goal == ACTIVE { "launched" } else { "loaded" };
        let refused = wire::UnitEntity { desired_state: desired.into(), ..refused.clone() };
        assert_eq!(evaluate_states(goal, Some(refused), &[]), "stuck: no machine is present");
    }
}

#[test]
fn problem_on_the_machine_is_reported() {
    let problem = |state: wire::UnitStateEntity| wire::UnitStateEntity {
        problem: "PrivateTmp= is not supported".into(),
        ..state
    };
    let errored = wire::UnitStateEntity {
        systemd_load_state: "error".into(),
        ..state("m1", "inactive", "inactive", "dead")
    };
    let bad = wire::UnitStateEntity {
        systemd_load_state: "bad-setting".into(),
        ..state("m1", "loaded", "inactive", "dead")
    };
    for (state, expected) in [
        (
            problem(state("m1", "loaded", "inactive", "dead")),
            "stuck: m1: PrivateTmp= is not supported",
        ),
        (
            problem(state("m1", "launched", "inactive", "dead")),
            "failed at m1: not started on m1: PrivateTmp= is not supported",
        ),
        (
            wire::UnitStateEntity {
                problem: "waits for db.service (StartAfter=), which is activating on m2".into(),
                ..state("m1", "loaded", "inactive", "dead")
            },
            "held: on m1 it waits for db.service (StartAfter=), which is activating on m2",
        ),
        (problem(state("m1", "launched", "active", "running")), "runs"),
        (errored.clone(), "failed at m1: not loaded on m1: error"),
        (problem(errored), "stuck: m1: PrivateTmp= is not supported"),
        (bad.clone(), "failed at m1: not loaded on m1: bad-setting"),
        (problem(bad), "failed at m1: not loaded on m1: bad-setting: PrivateTmp= is not supported"),
    ] {
        assert_eq!(evaluate_states(ACTIVE, Some(unit("launched", "m1")), &[state]), expected);
    }
}

/// An external unit may come up, so the wait must not end at once.
#[test]
fn start_that_waits_for_an_external_unit_is_stuck() {
    let waits = wire::UnitStateEntity {
        problem: "waits for db.service: nothing is at /run/db".into(),
        ..state("m1", "launched", "inactive", "dead")
    };
    let observation = Observation {
        unit: Some(unit("launched", "m1")),
        states: vec![waits],
        ..Observation::default()
    };
    let verdict = Goal::Active { generation: 0 }.evaluate(&observation);
    let text = "on m1 it waits for db.service: nothing is at /run/db";
    assert_eq!(verdict, Verdict::Stuck(text.into()));
}

#[test]
fn load_ends_when_the_machine_has_the_unit() {
    let loaded = || Some(unit("loaded", "m1"));
    for (states, expected) in [
        (vec![], "pending: m1 has not loaded it yet"),
        (vec![state("m1", "loaded", "inactive", "dead")], "reached"),
        (vec![state("m1", "launched", "active", "running")], "pending: m1 has not stopped it yet"),
    ] {
        assert_eq!(evaluate_states(Goal::Loaded, loaded(), &states), expected, "{states:?}");
    }
}

#[test]
fn stop_ends_when_the_unit_runs_nowhere() {
    let down = || state("m1", "loaded", "inactive", "dead");
    let up = || state("m1", "launched", "active", "running");
    let stopping = || state("m1", "loaded", "deactivating", "stop-sigterm");
    for (goal, unit, states, expected) in [
        (
            Goal::Stopped,
            Some(unit("loaded", "m1")),
            vec![up()],
            "pending: it is still active (running) on m1",
        ),
        (
            Goal::Stopped,
            Some(unit("loaded", "m1")),
            vec![stopping()],
            "pending: it is still deactivating (stop-sigterm) on m1",
        ),
        (Goal::Stopped, Some(unit("loaded", "m1")), vec![down()], "reached"),
        (Goal::Stopped, Some(unit("loaded", "m1")), vec![], "pending: m1 has not loaded it yet"),
        // The unit never had a machine, and is no longer to run: there is nothing to stop.
        (Goal::Stopped, Some(unit("loaded", "")), vec![], "reached"),
        (Goal::Unplaced, Some(unit("inactive", "m1")), vec![], "pending: it is still placed on m1"),
        (
            Goal::Unplaced,
            Some(unit("inactive", "")),
            vec![down()],
            "pending: it is still inactive (dead) on m1",
        ),
        (Goal::Unplaced, Some(unit("inactive", "")), vec![], "reached"),
        (
            Goal::Gone,
            Some(unit("launched", "m1")),
            vec![up()],
            "pending: the cluster still knows it",
        ),
        (Goal::Gone, None, vec![up()], "pending: it is still active (running) on m1"),
        (Goal::Gone, None, vec![], "reached"),
    ] {
        assert_eq!(evaluate_states(goal, unit, &states), expected, "{goal:?} {states:?}");
    }
}

#[test]
fn changed_desired_state_ends_the_wait() {
    for (goal, desired, expected) in [
        (ACTIVE, "loaded", "stuck: its desired state is loaded, not launched"),
        (Goal::Stopped, "launched", "stuck: its desired state is launched, not loaded"),
        (Goal::Unplaced, "launched", "stuck: its desired state is launched, not inactive"),
    ] {
        assert_eq!(evaluate_states(goal, Some(unit(desired, "m1")), &[]), expected);
    }
    for goal in [ACTIVE, Goal::Loaded, Goal::Stopped, Goal::Unplaced] {
        assert_eq!(evaluate_states(goal, None, &[]), "failed: it was destroyed meanwhile");
    }
    let broken = wire::UnitEntity { problem: "its text is gone".into(), ..unit("", "") };
    assert_eq!(evaluate_states(ACTIVE, Some(broken), &[]), "failed: its text is gone");
}

#[test]
fn global_unit_must_be_on_all_eligible_machines() {
    let up = |machine| state(machine, "launched", "active", "running");
    let failed = |machine| state(machine, "launched", "failed", "failed");
    let observation = |eligible: &[&str], states: &[wire::UnitStateEntity]| Observation {
        unit: Some(wire::UnitEntity { global: true, ..unit("launched", "") }),
        states: states.to_vec(),
        eligible: eligible.iter().map(|id| (*id).to_owned()).collect(),
    };
    for (eligible, states, expected) in [
        (&["m1", "m2"] as &[&str], vec![up("m1"), up("m2")], "runs"),
        (&["m1", "m2"], vec![up("m1")], "enough: on 1 of 2 machines; not on m2"),
        (&["m1", "m2"], vec![failed("m2"), up("m1")], "failed at m2: failed on m2"),
        (&["m1", "m2"], vec![], "pending: no machine has loaded it yet"),
        (&[], vec![], "stuck: no present machine fits it"),
        (
            &["m1"],
            vec![state("m1", "loaded", "inactive", "dead")],
            "pending: m1 has not started it yet",
        ),
    ] {
        assert_eq!(evaluate(ACTIVE, &observation(eligible, &states)), expected, "{eligible:?}");
    }
}
