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
        let seen = member.observe(&cluster(unit, state));
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

#[test]
fn global_unit_has_the_target_of_its_member() {
    let old = unit("[X-Fleet]\nGlobal=true\n", 0);
    let new = unit("Nice=1\n[X-Fleet]\nGlobal=true\n", 0);
    let id = MemberId { unit: old.name.clone(), machine: Some(machine()) };
    let mut member = Member::new(id, Some(UnitTarget::of(&old)), UnitTarget::of(&new));
    let mut lines = String::new();
    for state in [MemberState::Pending, MemberState::Updating, MemberState::Restoring] {
        member.state = state;
        for stored in [&old, &new] {
            let mut snapshot = cluster(stored, Some(running(&old)));
            let seen = member.observe(&snapshot);
            let rollout = Rollout::new(vec![member.clone()], RolloutStrategy::default()).unwrap();
            let record = RolloutRecord { id: RolloutId(1), requested_at: None, rollout };
            snapshot.put_rollout(record);
            let word = |is_new: bool| if is_new { "new" } else { "old" };
            let is_new = seen.current == Some(UnitTarget::of(&new));
            lines += &format!(
                "{} with the {} file stored: {} file, held: {}, healthy: {}\n",
                state.as_str(),
                word(stored.hash() == new.hash()),
                word(is_new),
                snapshot.holds_update(stored, &machine()),
                seen.is_healthy()
            );
        }
    }
    insta::assert_snapshot!(lines, @r"
    pending with the old file stored: old file, held: false, healthy: true
    pending with the new file stored: old file, held: true, healthy: true
    updating with the old file stored: new file, held: true, healthy: false
    updating with the new file stored: new file, held: false, healthy: false
    restoring with the old file stored: old file, held: false, healthy: true
    restoring with the new file stored: old file, held: true, healthy: true
    ");
    let mut snapshot = cluster(&new, Some(running(&new)));
    snapshot.remove_machine("m1");
    assert_eq!(member.observe(&snapshot).current, None, "the machine has left");
    let other = unit("Nice=2\n[X-Fleet]\nGlobal=true\n", 0);
    let seen = member.observe(&cluster(&other, None));
    assert_eq!(seen.current, Some(UnitTarget::of(&other)), "another writer has changed it");
}
