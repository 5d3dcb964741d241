//! Members as observed in a snapshot of the cluster.

use fleet_core::health::Health;
use fleet_core::rollout::{
    Member, MemberId, MemberState, Rollout, RolloutId, RolloutRecord, RolloutStrategy, UnitTarget,
};
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{
    ActiveState, Epoch, Generation, Machine, MachineId, Requirements, Snapshot, Strictness,
    SystemdState, TargetState, Unit, UnitState,
};
use fleet_unitfile::UnitFile;

fn machine() -> MachineId {
    "m1".parse().unwrap()
}

fn unit(text: &str, generation: u64) -> Unit {
    let name = "web.service".parse().unwrap();
    let file = UnitFile::parse(format!("[Service]\nExecStart=/bin/web\n{text}")).unwrap();
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    let unit = Unit::new(name, file, parsed.requirements, TargetState::Launched);
    Unit { generation: Generation(generation), ..unit }
}

/// The state of a unit that runs on m1.
fn running(unit: &Unit) -> UnitState {
    UnitState {
        unit: unit.name.clone(),
        machine: machine(),
        hash: unit.hash(),
        requested: TargetState::Launched,
        epoch: if unit.is_global() { Epoch::ZERO } else { Epoch(7) },
        generation: unit.generation,
        systemd: SystemdState::new(LoadState::Loaded, ActiveState::Active, "running"),
        problem: None,
        health: None,
        output: Vec::new(),
    }
}

fn cluster(unit: &Unit, state: Option<UnitState>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.put_machine(Machine::new(machine()));
    snapshot.put_unit(unit.clone());
    if !unit.is_global() {
        snapshot.place(unit.name.clone(), machine(), Epoch(7));
    }
    state.into_iter().for_each(|state| snapshot.put_state(state));
    snapshot
}

fn ended(active: ActiveState, result: &str, exit: i32) -> SystemdState {
    SystemdState {
        result: Some(result.to_owned()),
        exit: Some(ExitStatus::Code(exit)),
        ..SystemdState::new(LoadState::Loaded, active, "dead")
    }
}

#[test]
fn only_reports_about_the_present_target_count() {
    let plain = unit("", 3);
    let checked = unit("[X-Fleet]\nHealthCheck=tcp://127.0.0.1:80\n", 3);
    let with = |change: fn(&mut UnitState)| {
        let mut state = running(&plain);
        change(&mut state);
        (&plain, Some(state))
    };
    let health =
        |health: Option<Health>| (&checked, Some(UnitState { health, ..running(&checked) }));
    let unhealthy = Health::Unhealthy { message: "no answer".to_owned() };
    let cases = [
        ("no report", (&plain, None)),
        ("active", with(|_| {})),
        ("another file", with(|state| state.hash = unit("Nice=1\n", 0).hash())),
        ("older generation", with(|state| state.generation = Generation(2))),
        ("later generation", with(|state| state.generation = Generation(4))),
        ("another placement", with(|state| state.epoch = Epoch(6))),
        ("only loaded", with(|state| state.requested = TargetState::Loaded)),
        ("activating", with(|state| state.systemd.active = ActiveState::Activating)),
        ("failed", with(|state| state.systemd = ended(ActiveState::Failed, "exit-code", 3))),
        ("completed", with(|state| state.systemd = ended(ActiveState::Inactive, "success", 0))),
        ("never ran", with(|state| state.systemd = SystemdState::loaded())),
        ("not loaded", with(|state| state.systemd.load = LoadState::BadSetting)),
        ("unknown health", health(None)),
        ("starting", health(Some(Health::Starting))),
        ("healthy", health(Some(Health::Healthy))),
        ("unhealthy", health(Some(unhealthy))),
    ];
    let line = |(case, (unit, state)): (&str, (&Unit, Option<UnitState>))| {
        let member = Member::new(unit.name.clone().into(), None, UnitTarget::of(unit));
        let rollout = Rollout::new(vec![member], RolloutStrategy::default()).unwrap();
        let record = RolloutRecord { id: RolloutId(1), requested_at: None, rollout };
        let snapshot = cluster(unit, state);
        let seen = record.observer(&snapshot).observe(&record.rollout.members[0]);
        assert_eq!(seen.current, Some(UnitTarget::of(unit)));
        format!("{case}: {:?}, healthy: {}\n", seen.state, seen.is_healthy())
    };
    insta::assert_snapshot!(cases.into_iter().map(line).collect::<String>(), @r#"
    no report: NotYet, healthy: false
    active: Active { healthy: true }, healthy: true
    another file: NotYet, healthy: false
    older generation: NotYet, healthy: false
    later generation: Active { healthy: true }, healthy: true
    another placement: NotYet, healthy: false
    only loaded: NotYet, healthy: false
    activating: NotYet, healthy: false
    failed: Failed { reason: "its process exited with status 3 on m1" }, healthy: false
    completed: Active { healthy: true }, healthy: true
    never ran: NotYet, healthy: false
    not loaded: Failed { reason: "its file is bad-setting on m1" }, healthy: false
    unknown health: Active { healthy: false }, healthy: false
    starting: Active { healthy: false }, healthy: false
    healthy: Active { healthy: true }, healthy: true
    unhealthy: Active { healthy: false }, healthy: false
    "#);
}

/// A rollout of a global unit on m1 and m2, with the states of both members.
fn global_rollout(old: &Unit, new: &Unit, states: [MemberState; 2]) -> RolloutRecord {
    let member = |(at, state): (&str, MemberState)| {
        let id = MemberId { unit: old.name.clone(), machine: Some(at.parse().unwrap()) };
        let member = Member::new(id, Some(UnitTarget::of(old)), UnitTarget::of(new));
        Member { state, ..member }
    };
    let members = ["m1", "m2"].into_iter().zip(states).map(member).collect();
    let rollout = Rollout::new(members, RolloutStrategy::default()).unwrap();
    RolloutRecord { id: RolloutId(1), requested_at: None, rollout }
}

#[test]
fn global_unit_has_the_target_of_its_member() {
    use MemberState::{Pending, Restored, Restoring, Superseded, Updated, Updating};
    let old = unit("[X-Fleet]\nGlobal=true\n", 0);
    let new = unit("Nice=1\n[X-Fleet]\nGlobal=true\n", 0);
    let mut lines = String::new();
    for states in [
        [Pending, Pending],
        [Pending, Updating],
        [Updated, Pending],
        [Updated, Restoring],
        [Restored, Restored],
        [Superseded, Superseded],
    ] {
        let record = global_rollout(&old, &new, states);
        for (word, stored) in [("old", &old), ("new", &new)] {
            let mut snapshot = cluster(stored, Some(running(&old)));
            snapshot.put_rollout(record.clone());
            let seen = record.observer(&snapshot).observe(&record.rollout.members[0]);
            let target = match seen.current {
                None => "no target",
                Some(target) if target == UnitTarget::of(&new) => "the new file",
                Some(_) => "the old file",
            };
            let held = if snapshot.holds_update(stored, &machine()) { ", held" } else { "" };
            let states = states.map(MemberState::as_str).join(", ");
            lines += &format!("{states}; {word} file stored: {target}{held}\n");
        }
    }
    insta::assert_snapshot!(lines, @r"
    pending, pending; old file stored: the old file
    pending, pending; new file stored: no target
    pending, updating; old file stored: no target
    pending, updating; new file stored: the old file, held
    updated, pending; old file stored: no target
    updated, pending; new file stored: the new file
    updated, restoring; old file stored: the new file, held
    updated, restoring; new file stored: no target
    restored, restored; old file stored: the old file
    restored, restored; new file stored: no target
    superseded, superseded; old file stored: no target
    superseded, superseded; new file stored: no target
    ");
    let record = global_rollout(&old, &new, [Updated, Updated]);
    let mut snapshot = cluster(&new, Some(running(&new)));
    let observe =
        |snapshot: &Snapshot| record.observer(snapshot).observe(&record.rollout.members[0]).current;
    assert_eq!(observe(&snapshot), Some(UnitTarget::of(&new)));
    snapshot.remove_machine("m1");
    assert_eq!(observe(&snapshot), None, "the machine has left");
}
