//! Scenarios for which the rules were designed.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    DerivedState, EventKind, Exit, Graph, InitState, InitUnit, OnCleanExit, Restart, Settings,
    UnitEvent,
};

use super::config::{name, target, units};

/// A scenario.
struct Scenario {
    system: InitState,
    now: Timestamp,
}

impl Scenario {
    fn new(text: &str, goal: &str) -> Self {
        Self::with(text, goal, |_| {})
    }

    fn with(text: &str, goal: &str, change: impl FnMut(&mut InitUnit)) -> Self {
        let settings = Settings { goal: Some(target(goal)), ..Settings::default() };
        let mut all = units(text);
        all.iter_mut().for_each(change);
        let graph = Graph::strict(all, &settings).unwrap();
        let now = Timestamp::from_millis(0);
        Self { system: InitState::new(graph, &settings).unwrap(), now }
    }

    /// Returns the due actions in short form.
    fn plan(&mut self) -> String {
        let actions = self.system.next_actions(self.now);
        actions.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn send(&mut self, unit: &str, kind: EventKind) -> String {
        let incarnation = self.system.status(&name(unit)).unwrap().incarnation.unwrap();
        let event = UnitEvent { unit: name(unit), incarnation, kind };
        assert!(self.system.on_event(&event, self.now), "{kind:?} of {unit} is ignored");
        self.plan()
    }

    fn ready(&mut self, unit: &str) -> String {
        self.send(unit, EventKind::Ready)
    }

    fn gone(&mut self, unit: &str) -> String {
        self.send(unit, EventKind::AllGone)
    }

    fn fails(&mut self, unit: &str) -> String {
        let said = self.send(unit, EventKind::MainExited(Exit::Status(1)));
        let gone = self.gone(unit);
        [said, gone].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
    }

    fn goal(&mut self, goal: &str, with: &[&str]) -> String {
        let with = with.iter().map(|it| target(it)).collect();
        self.system.set_goal(Some(target(goal)), with, self.now).unwrap();
        self.plan()
    }

    fn wants(&mut self, beside: &str) -> String {
        self.system.add_extra_target(target(beside), self.now).unwrap();
        self.plan()
    }

    /// Reloads other units, none of which has a restart policy.
    fn reads(&mut self, text: &str) -> String {
        let mut all = units(text);
        all.iter_mut().for_each(never);
        let graph = Graph::strict(all, &Settings::default()).unwrap();
        self.system.reload(graph, self.now).unwrap();
        self.plan()
    }

    fn pass(&mut self, seconds: u64) -> String {
        self.now = self.now.after(Duration::from_secs(seconds));
        self.plan()
    }

    fn mask(&mut self, mask: &[&str]) -> String {
        let mask = mask.iter().map(|it| target(it)).collect();
        self.system.set_mask(mask, self.now).unwrap();
        self.plan()
    }

    fn shown(&self, unit: &str) -> String {
        let state = self.system.status(&name(unit)).unwrap();
        let left_off = matches!(state.state, DerivedState::Disabled | DerivedState::Masked);
        assert_eq!(self.system.stays_inactive(&name(unit)), Some(left_off), "{unit}");
        let flag = if state.degraded { ", degraded" } else { "" };
        format!("{:?}{flag}", state.state).replace("Target(", "(")
    }
}

fn never(unit: &mut InitUnit) {
    unit.restart = Restart::never();
}

/// A crashed dependency stops its dependents from the top. All of them must stop, although each
/// waits for its own dependents.
// Holds: G-5
#[test]
fn chain_stops_from_the_top_when_its_base_crashes() {
    let mut scenario = Scenario::new("a notified\nb notified on:a\nc notified on:b", "c");
    assert_eq!(scenario.plan(), "start a");
    assert_eq!((scenario.ready("a"), scenario.ready("b")), ("start b".into(), "start c".into()));
    scenario.ready("c");
    let crash = EventKind::MainExited(Exit::Signal(11));
    let said = scenario.send("a", crash);
    assert_eq!(
        said,
        "stop a: its main process ended with SIGSEGV; stop c: its dependency b is no longer active"
    );
    assert_eq!(scenario.gone("a"), "");
    assert_eq!(scenario.gone("c"), "stop b: its dependency a is no longer active");
    assert_eq!(scenario.gone("b"), "");
    scenario.now = Timestamp::from_millis(1000);
    assert_eq!(scenario.plan(), "start a");
    assert_eq!((scenario.ready("a"), scenario.ready("b")), ("start b".into(), "start c".into()));
}

/// A unit that waits for a blocked unit does not wait forever.
// Holds: G-15
#[test]
fn waiting_unit_starts_if_dependency_is_blocked() {
    let mut scenario = Scenario::new("a notified\nb notified on:a\nc notified wf:b", "c");
    assert_eq!(scenario.plan(), "start a");
    let said = scenario.fails("a");
    assert_eq!(said, "stop a: its main process ended with status 1; start c");
    assert_eq!(scenario.shown("b"), "Waiting(Blocked([((\"a\"), Failed)]))");
    scenario.ready("c");
    assert_eq!(scenario.shown("c"), "Active(Running), degraded");
    scenario.now = Timestamp::from_millis(1000);
    scenario.plan();
    assert_eq!((scenario.ready("a"), scenario.ready("b")), ("start b".into(), String::new()));
    assert_eq!(scenario.shown("c"), "Active(Running)");
}

#[test]
fn requisite_is_awaited_if_needed_and_blocks_otherwise() {
    let mut scenario = Scenario::new("r notified\nb notified req:r\ngoal wf:b", "goal");
    assert_eq!(scenario.plan(), "", "the requisite is not started");
    assert_eq!(scenario.shown("b"), "Waiting(Blocked([((\"r\"), Inactive)]))");
    assert_eq!(scenario.shown("goal"), "Active(Running), degraded");
    assert_eq!(scenario.wants("r"), "start r");
    assert_eq!(scenario.shown("b"), "Waiting(Dependencies([(\"r\")]))");
    assert_eq!(scenario.ready("r"), "start b");
    scenario.ready("b");
    let said = scenario.fails("r");
    assert_eq!(said, "stop r: its main process ended with status 1", "its loss stops nothing");
    scenario.send("b", EventKind::MainExited(Exit::Status(1)));
    scenario.gone("b");
    assert_eq!(scenario.pass(1), "start r");
    assert_eq!(scenario.shown("b"), "Waiting(Dependencies([(\"r\")]))");
}

#[test]
fn pulled_requisite_is_needed() {
    let mut scenario = Scenario::new("r notified\nb notified req:r pulls:r", "b");
    assert_eq!(scenario.plan(), "start r");
    assert_eq!(scenario.ready("r"), "start b");
}

/// A unit that is active but about to stop does not satisfy a waiting unit, which would lose it at
/// once.
#[test]
fn waiting_unit_waits_for_a_dependency_about_to_stop() {
    let mut scenario = Scenario::new("a notified\nb notified on:a\nw notified wf:a", "b");
    scenario.plan();
    scenario.ready("a");
    scenario.ready("b");
    assert!(scenario.system.restart(&target("a")));
    assert_eq!(scenario.plan(), "stop b: its dependency a is no longer active");
    assert_eq!(scenario.goal("b", &["w"]), "");
    assert_eq!(scenario.gone("b"), "stop a: a restart was requested");
    assert_eq!(scenario.gone("a"), "start a");
    assert_eq!(scenario.ready("a"), "start b; start w");
}

/// A failure is visible even if the restart has no delay.
#[test]
fn waiting_unit_starts_if_dependency_keeps_failing() {
    let mut all = units("a notified\nb notified wf:a");
    all[0].restart.delay = Duration::ZERO;
    let settings = Settings { goal: Some(target("b")), ..Settings::default() };
    let graph = Graph::strict(all, &settings).unwrap();
    let system = InitState::new(graph, &settings).unwrap();
    let mut scenario = Scenario { system, now: Timestamp::default() };
    scenario.plan();
    let said = scenario.fails("a");
    assert_eq!(said, "stop a: its main process ended with status 1; start b; start a");
}

/// Its result counts for the earlier request only. The unit completed without being stopped.
#[test]
fn completing_unit_restarts_if_needed_again_meanwhile() {
    let remains = |unit: &mut InitUnit| unit.run.on_clean_exit = OnCleanExit::Remain;
    let mut scenario = Scenario::with("a notified", "a", remains);
    assert_eq!(scenario.plan(), "start a");
    assert_eq!((scenario.ready("a"), scenario.send("a", EventKind::Stopping)), Default::default());
    scenario.system.set_goal(None, BTreeSet::new(), scenario.now).unwrap();
    assert_eq!(scenario.plan(), "");
    assert_eq!(scenario.goal("a", &[]), "");
    let said = scenario.send("a", EventKind::MainExited(Exit::Status(0)));
    assert_eq!(said, "stop a: a restart was requested");
    assert_eq!(scenario.gone("a"), "start a");
}

#[test]
fn changing_the_goal_restarts_nothing() {
    let mut scenario = Scenario::new("mail notified also:imap also:smtp\nother virtual", "imap");
    scenario.plan();
    scenario.ready("mail");
    assert!(scenario.system.is_coincidental(&target("smtp")));
    assert!(!scenario.system.is_coincidental(&target("imap")));
    assert_eq!(scenario.goal("smtp", &[]), "");
    assert!(scenario.system.is_coincidental(&target("imap")));
    assert_eq!(scenario.goal("other", &[]), "stop mail: nothing needs it");
    assert!(!scenario.system.is_coincidental(&target("imap")));
}

#[test]
fn extra_targets_start_and_stop_units() {
    let mut scenario = Scenario::new("a notified\nb notified wf:a\ndebug notified", "b");
    assert_eq!(scenario.plan(), "start a");
    assert_eq!(scenario.goal("b", &["debug"]), "start debug");
    assert_eq!((scenario.ready("debug"), scenario.ready("a")), (String::new(), "start b".into()));
    assert_eq!(scenario.goal("b", &[]), "stop debug: nothing needs it");
    let error = scenario.system.set_goal(None, [target("debuf")].into(), scenario.now).unwrap_err();
    assert_eq!(error.to_string(), "no unit provides the goal debuf; did you mean debug?");
}

#[test]
fn masked_unit_blocks_its_dependents() {
    let mut scenario = Scenario::new(
        "goal virtual wf:hard wf:soft wf:later\nhard notified on:db\nsoft notified wf:db\n\
         later notified ms:db\ndb notified ms:disk\ndisk oneshot",
        "goal",
    );
    assert_eq!(scenario.mask(&["db"]), "start soft");
    assert_eq!(
        (scenario.shown("db"), scenario.shown("disk")),
        ("Masked".into(), "Disabled".into())
    );
    assert_eq!(scenario.shown("hard"), "Waiting(Blocked([((\"db\"), Masked)]))");
    scenario.ready("soft");
    assert_eq!(scenario.shown("goal"), "Active(Running), degraded");
    assert_eq!(scenario.mask(&[]), "start disk");
    assert_eq!(scenario.send("disk", EventKind::MainExited(Exit::Status(0))), "start db");
    assert_eq!(scenario.ready("db"), "start hard; start later");
    scenario.ready("later");
    assert_eq!(scenario.mask(&["db"]), "stop hard: its dependency db is no longer active");
    assert_eq!(scenario.gone("hard"), "stop db: it is masked");
    assert_eq!(scenario.gone("db"), "stop disk: nothing needs it");
    assert_eq!(scenario.shown("later"), "Active(Running), degraded");
    let refused = scenario.system.set_mask(BTreeSet::from([target("goal")]), scenario.now);
    assert!(refused.is_err());
}

/// Losing a milestone stops no unit, but a start needs it again.
#[test]
fn milestone_is_checked_at_every_start() {
    let mut scenario = Scenario::new("net notified\napp notified ms:net", "app");
    scenario.plan();
    scenario.ready("net");
    scenario.ready("app");
    assert_eq!(scenario.fails("net"), "stop net: its main process ended with status 1");
    assert_eq!(scenario.shown("app"), "Active(Running), degraded");
    assert_eq!(scenario.fails("app"), "stop app: its main process ended with status 1");
    scenario.now = Timestamp::from_millis(1000);
    assert_eq!(scenario.plan(), "start net");
    assert_eq!(scenario.shown("app"), "Waiting(Dependencies([(\"net\")]))");
    assert_eq!(scenario.ready("net"), "start app");
}

/// The stronger kind counts if a unit depends on another one twice.
// Holds: X-4
#[test]
fn stronger_of_two_dependencies_counts() {
    for edges in ["wf:two on:one", "on:one wf:two", "ms:one on:one", "pulls:one on:two"] {
        let text = format!("a notified also:one also:two\nb notified {edges}");
        let mut scenario = Scenario::new(&text, "b");
        scenario.plan();
        scenario.ready("a");
        scenario.ready("b");
        let crash = EventKind::MainExited(Exit::Status(1));
        let said = scenario.send("a", crash);
        assert!(said.contains("stop b: its dependency "), "{edges}: {said}");
    }
}

#[test]
fn max_starting_prefers_units_with_most_dependents() {
    let text = "z notified\ny notified wf:z\nx notified wf:y\na notified\nb notified\n\
                goal virtual wf:a wf:b wf:x";
    let mut scenario = Scenario::new(text, "goal");
    scenario.system.set_max_starting(NonZeroU32::new(2));
    assert_eq!(scenario.plan(), "start z; start a");
    assert_eq!(scenario.shown("b"), "Waiting(Slot)");
    assert_eq!(scenario.ready("z"), "start y");
    assert_eq!(scenario.ready("a"), "start b");
}

#[test]
fn unit_needed_again_while_stopping_stops_first() {
    let mut scenario = Scenario::new("a notified\nb virtual", "a");
    scenario.plan();
    scenario.ready("a");
    assert_eq!(scenario.goal("b", &[]), "stop a: nothing needs it");
    assert_eq!(scenario.goal("a", &[]), "", "it is stopping");
    assert_eq!(scenario.gone("a"), "start a");
    assert_eq!(scenario.goal("b", &[]), "stop a: nothing needs it", "it was starting");
}

#[test]
fn failed_stop_is_shown_until_requests_change() {
    let mut scenario = Scenario::new("a notified\nb virtual\nc virtual", "a");
    scenario.plan();
    scenario.ready("a");
    scenario.goal("b", &[]);
    scenario.now = Timestamp::from_millis(90_000);
    assert_eq!(scenario.plan(), "kill a");
    scenario.gone("a");
    let shown = "Failed { cause: StopTimeout, retry: Never, stuck: false }";
    assert_eq!(scenario.shown("a"), shown, "an unneeded unit is not restarted");
    scenario.goal("c", &[]);
    assert_eq!(scenario.shown("a"), "Disabled");
}

/// Ways in which an unneeded unit becomes needed again.
const WANTED_AGAIN: [fn(&mut Scenario) -> String; 3] = [
    |scenario| scenario.goal("a", &[]),
    |scenario| scenario.wants("a"),
    |scenario| scenario.reads("a notified\nb virtual wf:a"),
];

/// Regression: the unit stayed failed, because it was needed again before its failure was dropped.
#[test]
fn unit_with_failed_stop_starts_when_needed_again() {
    for way in WANTED_AGAIN {
        let mut scenario = Scenario::with("a notified\nb virtual", "a", never);
        scenario.plan();
        scenario.ready("a");
        scenario.goal("b", &[]);
        assert_eq!(scenario.pass(90), "kill a");
        assert_eq!(scenario.gone("a"), "");
        assert_eq!(way(&mut scenario), "start a");
    }
}

#[test]
fn unkillable_unit_needed_again_starts_once_gone() {
    for way in WANTED_AGAIN {
        let mut scenario = Scenario::with("a notified\nb virtual", "a", never);
        scenario.plan();
        scenario.ready("a");
        scenario.goal("b", &[]);
        assert_eq!((scenario.pass(90).as_str(), scenario.pass(10)), ("kill a", String::new()));
        assert_eq!(way(&mut scenario), "");
        assert_eq!(scenario.gone("a"), "start a");
    }
}

/// The order of the kill and the request makes no difference.
#[test]
fn unit_needed_again_starts_for_any_stop_outcome() {
    for kill_first in [false, true] {
        let mut scenario = Scenario::with("a notified\nb virtual", "a", never);
        scenario.plan();
        scenario.ready("a");
        scenario.goal("b", &[]);
        if kill_first {
            assert_eq!(scenario.pass(90), "kill a");
            assert_eq!(scenario.goal("a", &[]), "");
        } else {
            assert_eq!(scenario.goal("a", &[]), "");
            assert_eq!(scenario.pass(90), "kill a");
        }
        assert_eq!(scenario.gone("a"), "start a");
    }
}

#[test]
fn removed_unit_stops_by_its_running_definition() {
    let mut scenario = Scenario::new("a notified\nb notified on:a\nc virtual wf:b", "c");
    scenario.plan();
    scenario.ready("a");
    scenario.ready("b");
    let (graph, _) = Graph::lenient(units("c virtual\nd virtual"), &Settings::default());
    scenario.system.reload(graph, scenario.now).unwrap();
    assert_eq!(scenario.plan(), "stop b: nothing needs it");
    assert_eq!(scenario.gone("b"), "stop a: nothing needs it", "in the order of before");
    scenario.gone("a");
    assert_eq!(scenario.system.units().collect::<Vec<_>>(), [&name("c"), &name("d")]);
}

#[test]
fn moved_target_keeps_its_dependents() {
    let mut scenario = Scenario::new("a notified also:db\nb notified\nc notified on:db", "c");
    scenario.plan();
    scenario.ready("a");
    scenario.ready("c");
    let moved = units("a notified\nb notified also:db\nc notified on:db");
    let graph = Graph::strict(moved, &Settings::default()).unwrap();
    scenario.system.reload(graph, scenario.now).unwrap();
    assert_eq!(
        scenario.plan(),
        "stop a: nothing needs it; stop c: its dependency db is no longer active; start b"
    );
    assert_eq!((scenario.gone("c"), scenario.ready("b")), (String::new(), "start c".into()));
}

#[test]
fn changed_units_are_reported_once() {
    let mut scenario = Scenario::new("a notified\nb notified on:a\nother virtual", "b");
    scenario.system.take_changed();
    scenario.plan();
    assert_eq!(scenario.system.take_changed(), [name("a")]);
    scenario.ready("a");
    assert_eq!(scenario.system.take_changed(), [name("a"), name("b")]);
    assert_eq!(scenario.system.take_changed(), []);
}
