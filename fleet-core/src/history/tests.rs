//! Tests of the history of a unit.

use fleet_unitfile::UnitFile;

use super::*;
use crate::unit::{ExitStatus, LoadState};
use crate::{Epoch, Machine, Reason, Requirements, UnitState};

/// A unit in a cluster of two machines, with its history.
struct Scenario {
    unit: Unit,
    snapshot: Snapshot,
    history: UnitHistory,
    now: u64,
}

impl Scenario {
    fn new() -> Self {
        let name = "web.service".parse().expect("it is a name");
        let file = UnitFile::parse("[Service]\nExecStart=/bin/web\n").expect("it is a file");
        let unit = Unit::new(name, file, Requirements::default(), TargetState::Launched);
        let mut snapshot = Snapshot::default();
        for machine in ["m1", "m2"] {
            snapshot.put_machine(Machine::new(id(machine)));
        }
        Self { unit, snapshot, history: UnitHistory::default(), now: 1000 }
    }

    fn place(&mut self, machine: &str) {
        self.snapshot.place(self.unit.name.clone(), id(machine), Epoch(1));
    }

    fn report(&mut self, machine: &str, systemd: SystemdState) {
        self.snapshot.put_state(UnitState {
            unit: self.unit.name.clone(),
            machine: id(machine),
            hash: self.unit.hash(),
            requested: TargetState::Launched,
            epoch: Epoch(1),
            generation: self.unit.generation,
            systemd,
            problem: None,
            health: None,
            output: Vec::new(),
        });
    }

    /// Observes the unit one second after the last observation. Returns the new events.
    fn observe(&mut self, cause: Option<&str>) -> Vec<String> {
        self.now += 1;
        let before = self.history.events.clone();
        let now = Timestamp::from_millis(self.now * 1000);
        self.history.observe(&self.unit, &self.snapshot, cause, now);
        let new = self.history.events.iter().filter(|event| !before.contains(event));
        new.map(text).collect()
    }
}

fn text(event: &UnitEvent) -> String {
    let on = event.kind.machine().map_or_else(String::new, |id| format!(" [{id}]"));
    let times = if event.count == 1 { String::new() } else { format!(" ({}x)", event.count) };
    format!("{} {}{on}{times}", event.at.as_millis() / 1000, event.kind)
}

fn id(machine: &str) -> MachineId {
    machine.parse().expect("it is a machine ID")
}

fn state(active: ActiveState, since: u64, restarts: u32) -> SystemdState {
    SystemdState {
        since: Some(Timestamp::from_millis(since * 1000)),
        restarts,
        ..SystemdState::new(LoadState::Loaded, active, "sub")
    }
}

#[test]
fn life_of_a_unit_is_recorded_with_times_and_causes() {
    let mut web = Scenario::new();
    web.snapshot.put_reason(web.unit.name.clone(), Reason::NoMachines);
    assert_eq!(
        web.observe(None),
        ["1001 desired state launched", "1001 no machine: no machine is present"]
    );
    assert!(web.observe(None).is_empty(), "nothing has changed");
    web.snapshot.remove_reason("web.service");
    web.place("m1");
    web.report("m1", state(ActiveState::Activating, 50, 0));
    assert_eq!(web.observe(Some("it is wanted")), ["1003 placed: it is wanted [m1]"]);
    web.report("m1", state(ActiveState::Active, 51, 0));
    assert_eq!(web.observe(None), ["51 started [m1]"]);
    web.report(
        "m1",
        SystemdState {
            exit: Some(ExitStatus::Code(3)),
            result: Some("exit-code".to_owned()),
            ..state(ActiveState::Failed, 60, 0)
        },
    );
    assert_eq!(web.observe(None), ["60 failed: exited with status 3 [m1]"]);
    web.unit.generation = Generation(1);
    web.report("m1", state(ActiveState::Active, 70, 0));
    assert_eq!(web.observe(None), ["1006 restart requested", "70 started [m1]"]);
    web.snapshot.remove_machine("m1");
    web.snapshot.remove_state("web.service", "m1");
    assert_eq!(web.observe(None), ["1007 machine lost [m1]"]);
    web.place("m2");
    assert_eq!(
        web.observe(Some("the machine is gone")),
        ["1008 moved from m1: the machine is gone [m2]"]
    );
    web.report("m2", state(ActiveState::Active, 90, 0));
    assert_eq!(web.observe(None), ["90 started [m2]"]);
    web.unit.desired = TargetState::Inactive;
    web.report("m2", state(ActiveState::Inactive, 95, 0));
    assert_eq!(web.observe(None), ["1010 desired state inactive", "95 stopped [m2]"]);
    web.snapshot.unplace("web.service");
    assert_eq!(web.observe(Some("it is inactive")), ["1011 removed: it is inactive [m2]"]);
}

#[test]
fn crash_loop_is_one_counted_event() {
    let mut web = Scenario::new();
    web.place("m1");
    web.report("m1", state(ActiveState::Active, 10, 0));
    web.observe(None);
    for round in 1..=40 {
        web.report(
            "m1",
            state(ActiveState::Activating, 10 + round, 2 * u32::try_from(round).unwrap()),
        );
        web.observe(None);
        web.report("m1", state(ActiveState::Active, 10 + round, 2 * u32::try_from(round).unwrap()));
        web.observe(None);
    }
    let last = web.history.events.last().expect("it has events");
    assert_eq!(text(last), "50 restarted by its service manager [m1] (80x)");
    assert_eq!(web.history.events.len(), 4, "{:?}", web.history.events);
}

#[test]
fn events_are_bounded() {
    let mut web = Scenario::new();
    for round in 0..100 {
        web.place(if round % 2 == 0 { "m1" } else { "m2" });
        web.observe(Some(&"x".repeat(500)));
    }
    assert_eq!(web.history.events.len(), UnitHistory::MAX_EVENTS);
    let longest = web.history.events.iter().map(|event| event.kind.cause().len()).max();
    assert_eq!(longest, Some(UnitHistory::MAX_TEXT + 3));
}

#[test]
fn restarted_daemon_is_no_new_run() {
    let mut web = Scenario::new();
    web.place("m1");
    web.report("m1", state(ActiveState::Active, 10, 0));
    web.observe(None);
    web.snapshot.remove_machine("m1");
    web.snapshot.remove_state("web.service", "m1");
    assert_eq!(web.observe(None), ["1002 machine lost [m1]"]);
    web.snapshot.put_machine(Machine::new(id("m1")));
    assert_eq!(web.observe(None), ["1003 machine returned [m1]"]);
    // The start of the main process is a little earlier than the time at which the unit was ready.
    web.report("m1", state(ActiveState::Active, 9, 0));
    assert!(web.observe(None).is_empty());
    web.report("m1", state(ActiveState::Active, 20, 0));
    assert_eq!(web.observe(None), ["20 started [m1]"], "it has run again meanwhile");
}

#[test]
fn health_is_recorded_when_it_changes() {
    let mut web = Scenario::new();
    web.place("m1");
    let mut health = |health| {
        web.report("m1", state(ActiveState::Active, 10, 0));
        let mut state =
            web.snapshot.state("web.service", "m1").expect("it is there").as_ref().clone();
        state.health = Some(health);
        web.snapshot.put_state(state);
        web.observe(None)
    };
    assert_eq!(health(Health::Starting).len(), 3);
    assert_eq!(health(Health::Healthy), ["1002 healthy [m1]"]);
    let failed = |message: &str| Health::Unhealthy { message: message.to_owned() };
    assert_eq!(health(failed("503")), ["1003 unhealthy: 503 [m1]"]);
    assert!(health(failed("503")).is_empty());
    assert_eq!(health(Health::Healthy), ["1005 healthy [m1]"]);
}
