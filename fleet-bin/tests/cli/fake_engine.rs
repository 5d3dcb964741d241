//! Engine and agents of a test cluster. They apply desired states at once, unless a unit has
//! another role.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fleet_agent::Drift;
use fleet_core::health::Health;
use fleet_core::job::JobRecord;
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{
    ActiveState, Epoch, Generation, MachineId, Metadata, Reason, Snapshot, SystemdState,
    TargetState, Timestamp, Unit, UnitState,
};
use fleet_store::registry::{
    Leadership, MachineRecord, PlacementWrites, Presence, RecordUpdate, RemovePlacement,
    SetPlacement, UnitWrite,
};
use fleet_store::{Mirror, Registry};
use fleet_unitfile::UnitName;

/// Longer than any test.
const TTL: Duration = Duration::from_secs(3600);

/// Time of all transitions of jobs: 28 November 2026, 02:00 UTC.
const JOB_TIME: Timestamp = Timestamp::from_millis(1_795_831_200_000);

/// Misbehaviour of a unit. A unit without a role runs on the first machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// No machine accepts the unit.
    Unplaceable,
    /// The unit is placed, but its machine never reports it.
    Ignored,
    /// The unit never finishes starting.
    Starting,
    /// Starts fail before this generation.
    FailingBefore(u64),
    /// The unit exits successfully.
    Finishing,
    /// The unit is stopped by hand before this generation.
    StoppedBefore(u64),
    /// A condition of the unit does not hold before this generation.
    SkippedBefore(u64),
    /// The unit waits for others, and has not run.
    Waiting,
    /// The machine does not support the unit.
    Unsupported,
}

/// Roles of units, which a test may change at any time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roles(Arc<Mutex<BTreeMap<String, Role>>>);

impl Roles {
    /// Sets the role of a unit, effective from the next change of the cluster.
    pub(crate) fn set(&self, unit: &str, role: Role) {
        self.0.lock().unwrap().insert(unit.to_owned(), role);
    }

    fn role(&self, unit: &str) -> Option<Role> {
        self.0.lock().unwrap().get(unit).copied()
    }
}

/// Engine and agents of all machines.
pub(crate) struct FakeEngine {
    mirror: Mirror,
    leadership: Leadership,
    machines: Vec<(MachineId, Presence)>,
    roles: Roles,
}

impl FakeEngine {
    /// Registers the machines.
    pub(crate) async fn join(
        registry: &Registry,
        mirror: &Mirror,
        ids: &[&str],
        roles: Roles,
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
        Self { mirror: mirror.clone(), leadership, machines, roles }
    }

    /// Follows the cluster until dropped.
    pub(crate) async fn run(self) {
        let mut progress = self.mirror.subscribe();
        loop {
            let seen = progress.borrow_and_update().revision;
            let snapshot = self.mirror.wait_for(seen).await.unwrap();
            self.decide(&snapshot).await;
            self.advance_jobs(&snapshot).await;
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
            let previous = snapshot.placement(unit.name.as_str()).cloned();
            let refused = self.roles.role(unit.name.as_str()) == Some(Role::Unplaceable);
            match (unit.is_wanted(), previous, self.machines.first()) {
                (true, None, Some((machine, _))) if !refused => {
                    let epoch = Epoch(snapshot.revision.0);
                    let (unit, machine) = (unit.name.clone(), machine.clone());
                    writes.set.push(SetPlacement { unit, machine, epoch, previous: None });
                }
                (true, None, _) if snapshot.reason(unit.name.as_str()).is_none() => {
                    writes.reasons.push((unit.name.clone(), Some(Reason::NoMachines)));
                }
                (false, Some(previous), _) => {
                    writes.remove.push(RemovePlacement { unit: unit.name.clone(), previous });
                }
                _ => {}
            }
        }
        if !writes.is_empty() {
            // After a conflict, the next iteration retries.
            drop(self.leadership.commit(&writes).await);
        }
    }

    /// Advances each job as the engine would.
    async fn advance_jobs(&self, snapshot: &Snapshot) {
        for unit in snapshot.units().filter(|unit| unit.is_job() && !unit.name.is_template()) {
            let seen = snapshot.job(unit.name.as_str()).map(|record| &**record);
            let mut next = match seen {
                Some(seen) if !seen.is_outdated(unit) => seen.clone(),
                None if unit.desired != TargetState::Launched => continue,
                Some(_) | None => JobRecord::new(unit, snapshot.revision, JOB_TIME),
            };
            let observed = next.observe(unit, snapshot);
            let settings = &unit.requirements.job.as_ref().unwrap().settings;
            let _step = next.state.advance(settings, &observed, JOB_TIME);
            let mut writes = Vec::new();
            if next.state.outcome().is_some() && unit.desired != TargetState::Inactive {
                writes.push(UnitWrite::SetDesired(unit.name.clone(), TargetState::Inactive));
            }
            if seen != Some(&next) || !writes.is_empty() {
                let (unit, next, writes) = (&unit.name, Some(&next), &writes[..]);
                let update = RecordUpdate { unit, seen, next, writes, snapshot };
                // After a conflict, the next iteration retries.
                drop(self.leadership.advance_job(&update, &self.mirror).await);
            }
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
        let role = self.roles.role(unit.name.as_str());
        let placement = snapshot.placement(unit.name.as_str());
        let mut state = UnitState {
            unit: unit.name.clone(),
            machine: machine.clone(),
            hash: unit.hash(),
            requested: unit.desired,
            epoch: placement.map_or(Epoch::ZERO, |placement| placement.epoch),
            generation: Generation::ZERO,
            systemd: SystemdState::loaded(),
            problem: None,
            health: None,
            output: Vec::new(),
        };
        match role {
            Some(Role::Ignored) => return None,
            Some(Role::Unsupported) => {
                state.requested = TargetState::Inactive;
                state.systemd.load = LoadState::BadSetting;
                state.problem = Some("PrivateNetwork= needs systemd".to_owned());
            }
            _ if unit.is_job() => {
                let attempt = snapshot.job(unit.name.as_str())?.state.current_attempt();
                state.requested = TargetState::Loaded;
                if let Some((_, attempt)) = attempt {
                    state.requested = TargetState::Launched;
                    state.generation = attempt.generation();
                    state.systemd = launched(role, Generation::ZERO);
                }
            }
            _ if unit.desired == TargetState::Launched => {
                state.generation = unit.generation;
                state.systemd = launched(role, unit.generation);
                let check = unit.requirements.health_check.as_ref();
                state.health = check.map(|check| Health::Unhealthy {
                    message: format!("{}: connection refused", check.target),
                });
                state.problem = match role {
                    _ if state.systemd.active != ActiveState::Inactive => None,
                    Some(Role::StoppedBefore(_)) => Some(Drift::Stopped.to_string()),
                    Some(Role::SkippedBefore(_)) => Some("its condition does not hold".to_owned()),
                    _ => None,
                };
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
        Some(Role::StoppedBefore(started)) if generation.0 < started => SystemdState {
            result: Some("success".to_owned()),
            ..state(ActiveState::Inactive, "dead")
        },
        Some(Role::SkippedBefore(started)) if generation.0 < started => SystemdState {
            result: Some("exec-condition".to_owned()),
            ..state(ActiveState::Inactive, "dead")
        },
        Some(Role::Waiting) => state(ActiveState::Inactive, "dead"),
        Some(Role::Finishing) => SystemdState {
            result: Some("success".to_owned()),
            exit: Some(ExitStatus::Code(0)),
            ..state(ActiveState::Inactive, "dead")
        },
        _ => SystemdState { main_pid: Some(4711), ..state(ActiveState::Active, "running") },
    }
}
