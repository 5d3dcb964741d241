//! The engine and the agents of a test's cluster: they do at once what is wanted, except where the
//! test says otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fleet_core::{
    ActiveState, Epoch, ExitStatus, Generation, LoadState, MachineId, Metadata, Reason, Snapshot,
    SystemdState, TargetState, Unit, UnitState,
};
use fleet_store::{
    Leadership, MachineRecord, Mirror, Place, PlacementWrites, Presence, Registry, Unplace,
};
use fleet_unitfile::UnitName;

/// Longer than any test.
const TTL: Duration = Duration::from_secs(3600);

/// What a unit does that is no good unit. Every other one gets the first machine and runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// No machine takes it.
    Unplaceable,
    /// It is placed, and its machine never says anything of it.
    Ignored,
    /// It goes on starting.
    Starting,
    /// It fails each time it is started, except from this generation on.
    FailingBefore(u64),
    /// It does its work and ends.
    Finishing,
    /// Its machine cannot do what it asks for.
    Unsupported,
}

/// The roles of units, which a test may change as it goes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Play(Arc<Mutex<BTreeMap<String, Role>>>);

impl Play {
    /// Gives a unit its role, from the next change of the cluster on.
    pub(crate) fn cast(&self, unit: &str, role: Role) {
        self.0.lock().unwrap().insert(unit.to_owned(), role);
    }

    fn role(&self, unit: &str) -> Option<Role> {
        self.0.lock().unwrap().get(unit).copied()
    }
}

/// Engine and agents in one.
pub(crate) struct Puppet {
    mirror: Mirror,
    leadership: Leadership,
    machines: Vec<(MachineId, Presence)>,
    play: Play,
}

impl Puppet {
    /// Makes the machines present.
    pub(crate) async fn join(
        registry: &Registry,
        mirror: &Mirror,
        ids: &[&str],
        play: Play,
    ) -> Self {
        let engine: MachineId = "engine".parse().unwrap();
        let leadership = registry.campaign(&engine, TTL).await.unwrap().unwrap();
        let mut machines = Vec::new();
        for (at, id) in (1..).zip(ids) {
            let id: MachineId = id.parse().unwrap();
            let record = MachineRecord {
                address: Some(format!("10.0.0.{at}").parse().unwrap()),
                metadata: Metadata::from([("rack".to_owned(), format!("r{at}"))]),
                version: "1.2.3".to_owned(),
                ..MachineRecord::new(id.clone())
            };
            machines.push((id, registry.join(record, "token", TTL).await.unwrap()));
        }
        let mut progress = mirror.subscribe();
        let all_there = |_: &_| mirror.snapshot().machines().len() == ids.len();
        drop(progress.wait_for(all_there).await.unwrap());
        Self { mirror: mirror.clone(), leadership, machines, play }
    }

    /// Follows the cluster until it is dropped.
    pub(crate) async fn run(self) {
        let mut progress = self.mirror.subscribe();
        loop {
            let seen = progress.borrow_and_update().revision;
            let snapshot = self.mirror.wait_for(seen).await.unwrap();
            self.decide(&snapshot).await;
            for (id, presence) in &self.machines {
                self.act(&snapshot, id, presence).await;
            }
            if progress.changed().await.is_err() {
                return;
            }
        }
    }

    async fn decide(&self, snapshot: &Snapshot) {
        let mut writes = PlacementWrites::default();
        for unit in snapshot.units().filter(|unit| !unit.is_global()) {
            let was = snapshot.placement(unit.name.as_str()).cloned();
            let refused = self.play.role(unit.name.as_str()) == Some(Role::Unplaceable);
            match (unit.is_wanted(), was, self.machines.first()) {
                (true, None, Some((machine, _))) if !refused => {
                    let epoch = Epoch(snapshot.revision.0);
                    let (unit, machine) = (unit.name.clone(), machine.clone());
                    writes.place.push(Place { unit, machine, epoch, was: None });
                }
                (true, None, _) if snapshot.reason(unit.name.as_str()).is_none() => {
                    writes.reasons.push((unit.name.clone(), Some(Reason::NoMachines)));
                }
                (false, Some(was), _) => {
                    writes.unplace.push(Unplace { unit: unit.name.clone(), was });
                }
                _ => {}
            }
        }
        if !writes.is_empty() {
            // Where somebody was faster, the next look shows it.
            drop(self.leadership.commit(&writes).await);
        }
    }

    async fn act(&self, snapshot: &Snapshot, machine: &MachineId, presence: &Presence) {
        let wanted = |unit: &&Arc<Unit>| unit.is_wanted() && is_here(snapshot, unit, machine);
        let states: Vec<UnitState> = snapshot
            .units()
            .filter(wanted)
            .filter_map(|unit| self.state(snapshot, unit, machine))
            .filter(|new| {
                snapshot.state(new.unit.as_str(), machine.as_str()).is_none_or(|old| **old != *new)
            })
            .collect();
        let is_gone = |state: &&Arc<UnitState>| {
            let unit = snapshot.unit(state.unit.as_str());
            let is_wanted = unit.is_some_and(|it| it.is_wanted() && is_here(snapshot, it, machine));
            state.machine == *machine && !is_wanted
        };
        let gone: Vec<UnitName> =
            snapshot.states().filter(is_gone).map(|state| state.unit.clone()).collect();
        if !states.is_empty() || !gone.is_empty() {
            presence.publish_states(&states, &gone).await.unwrap();
        }
    }

    fn state(&self, snapshot: &Snapshot, unit: &Unit, machine: &MachineId) -> Option<UnitState> {
        let role = self.play.role(unit.name.as_str());
        let placement = snapshot.placement(unit.name.as_str());
        let mut state = UnitState {
            unit: unit.name.clone(),
            machine: machine.clone(),
            hash: unit.hash(),
            asked: unit.desired,
            epoch: placement.map_or(Epoch::ZERO, |placement| placement.epoch),
            generation: Generation::ZERO,
            systemd: SystemdState::loaded(),
            problem: None,
        };
        match role {
            Some(Role::Ignored) => return None,
            Some(Role::Unsupported) => {
                state.asked = TargetState::Inactive;
                state.systemd.load = LoadState::BadSetting;
                state.problem = Some("PrivateNetwork= needs systemd".to_owned());
            }
            _ if unit.desired == TargetState::Launched => {
                state.generation = unit.generation;
                state.systemd = launched(role, unit.generation);
            }
            _ => {}
        }
        Some(state)
    }
}

fn is_here(snapshot: &Snapshot, unit: &Unit, machine: &MachineId) -> bool {
    if !unit.is_global() {
        let placement = snapshot.placement(unit.name.as_str());
        return placement.is_some_and(|placement| placement.machine == *machine);
    }
    let metadata = snapshot.machine(machine.as_str()).map(|machine| &machine.metadata);
    let mut demands = unit.requirements.metadata.iter();
    demands.all(|(key, wanted)| {
        metadata.and_then(|it| it.get(key)).is_some_and(|value| wanted.contains(value))
    })
}

fn launched(role: Option<Role>, generation: Generation) -> SystemdState {
    let state = |active, sub| SystemdState::new(LoadState::Loaded, active, sub);
    match role {
        Some(Role::Starting) => state(ActiveState::Activating, "start-pre"),
        Some(Role::FailingBefore(healed)) if generation.0 < healed => SystemdState {
            result: Some("exit-code".to_owned()),
            exit: Some(ExitStatus::Code(3)),
            ..state(ActiveState::Failed, "failed")
        },
        Some(Role::Finishing) => SystemdState {
            result: Some("success".to_owned()),
            exit: Some(ExitStatus::Code(0)),
            ..state(ActiveState::Inactive, "dead")
        },
        _ => SystemdState { main_pid: Some(4711), ..state(ActiveState::Active, "running") },
    }
}
