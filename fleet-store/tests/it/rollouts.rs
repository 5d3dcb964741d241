//! Rollouts: clients store and control them, and the leader carries them out.

use fleet_core::rollout::{
    Member, MemberId, Rollout, RolloutAction, RolloutId, RolloutPhase, RolloutRecord,
    RolloutRequest, RolloutStrategy, UnitTarget,
};
use fleet_core::{Generation, Revision, Snapshot, TargetState};
use fleet_store::registry::{
    DeferredFile, ExpectUnit, Leadership, MemberFiles, NewRollout, NewUnit, RolloutFiles,
    RolloutStep,
};
use fleet_store::{Mirror, Registry, RegistryError};
use fleet_unitfile::UnitFile;
use std::sync::Arc;

use crate::support::{TTL, id, mirror, name, registry, soon, unit};

fn file(version: u32) -> UnitFile {
    UnitFile::parse(format!("[Service]\nExecStart=/bin/sleep {version}\n")).unwrap()
}

fn target(version: u32) -> UnitTarget {
    let (hash, desired) = (file(version).hash(), TargetState::Launched);
    UnitTarget { hash, desired, generation: Generation::ZERO }
}

fn new_rollout(units: &[&str]) -> NewRollout {
    let member = |unit: &&str| Member::new(MemberId::from(name(unit)), Some(target(1)), target(2));
    let rollout = Rollout::new(units.iter().map(member).collect(), RolloutStrategy::default());
    let files = MemberFiles { from: Some(file(1)), to: file(2) };
    let deferred = vec![DeferredFile { name: name("web@.service"), from: file(1), to: file(2) }];
    let files = RolloutFiles { members: vec![files; units.len()], deferred };
    NewRollout { rollout: rollout.unwrap(), files }
}

/// A cluster with two instances, their template and a leader.
struct World {
    registry: Registry,
    mirror: Mirror,
    leader: Leadership,
}

const UNITS: [&str; 2] = ["web@1.service", "web@2.service"];

impl World {
    async fn new() -> Self {
        let registry = registry();
        for unit in UNITS {
            let unit = NewUnit { name: name(unit), file: file(1), desired: TargetState::Launched };
            registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
        }
        let (template, desired) = (name("web@.service"), TargetState::Inactive);
        let template = NewUnit { name: template, file: file(1), desired };
        registry.put_unit(template, ExpectUnit::Absent).await.unwrap();
        let mirror = mirror(&registry).await;
        let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
        Self { registry, mirror, leader }
    }

    async fn create(&self) -> RolloutId {
        let seen = self.mirror.snapshot();
        let created = self.registry.create_rollout(new_rollout(&UNITS), &seen).await;
        let (id, revision) = created.unwrap();
        self.seen(revision).await;
        id
    }

    async fn seen(&self, revision: Revision) -> Arc<Snapshot> {
        soon(self.mirror.wait_for(revision)).await.unwrap()
    }

    fn version(&self, unit: &str) -> Option<u32> {
        let snapshot = self.mirror.snapshot();
        let hash = snapshot.unit(unit)?.hash();
        (1..=3).find(|version| file(*version).hash() == hash)
    }

    async fn advance(
        &self,
        id: RolloutId,
        phase: RolloutPhase,
        actions: &[RolloutAction],
    ) -> Result<(), RegistryError> {
        let snapshot = self.mirror.snapshot();
        let seen = snapshot.rollout(id).unwrap();
        let mut next = RolloutRecord::clone(seen);
        next.rollout.phase = phase;
        let files = self.registry.rollout_files(id).await?;
        let (files, snapshot) = (Some(&files), &*snapshot);
        let step = RolloutStep { seen, next: &next, actions, files, snapshot };
        let revision = self.leader.advance_rollout(&step, &self.mirror).await?;
        self.seen(revision).await;
        Ok(())
    }

    async fn put(&self, unit_name: &str, version: u32) {
        let text = String::from_utf8(file(version).source().to_vec()).unwrap();
        let unit = unit(unit_name, &text, TargetState::Launched);
        let revision = self.registry.put_unit(unit, ExpectUnit::Present).await.unwrap();
        self.seen(revision).await;
    }
}

#[tokio::test(start_paused = true)]
async fn leader_writes_units_and_then_the_template() {
    let world = World::new().await;
    let rollout = world.create().await;
    assert_eq!(rollout, RolloutId(1));
    let update = |member| RolloutAction::Update { member };
    world.advance(rollout, RolloutPhase::Running, &[update(1)]).await.unwrap();
    assert_eq!(UNITS.map(|unit| world.version(unit)), [Some(1), Some(2)]);
    world.advance(rollout, RolloutPhase::Running, &[update(0)]).await.unwrap();
    assert_eq!(world.version("web@.service"), Some(1), "the template comes last");
    let back = RolloutAction::Restore { member: 1 };
    world.advance(rollout, RolloutPhase::Running, &[back]).await.unwrap();
    assert_eq!(UNITS.map(|unit| world.version(unit)), [Some(2), Some(1)]);
    world.advance(rollout, RolloutPhase::Completed, &[]).await.unwrap();
    assert_eq!(world.version("web@.service"), Some(2));
    let files = world.registry.rollout_files(rollout).await;
    assert!(matches!(files, Err(RegistryError::NoRollout { .. })), "{files:?}");
}

#[tokio::test(start_paused = true)]
async fn completed_rollout_keeps_a_changed_template() {
    let world = World::new().await;
    let rollout = world.create().await;
    world.put("web@.service", 3).await;
    world.advance(rollout, RolloutPhase::Completed, &[]).await.unwrap();
    assert_eq!(world.version("web@.service"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn step_is_refused_after_other_writers() {
    let world = World::new().await;
    let rollout = world.create().await;
    let stale = world.mirror.snapshot();
    let seen = stale.rollout(rollout).unwrap();
    let actions = [RolloutAction::Update { member: 0 }];
    let files = world.registry.rollout_files(rollout).await.unwrap();
    let step =
        RolloutStep { seen, next: seen, actions: &actions, files: Some(&files), snapshot: &stale };
    // Another client has changed the unit.
    world.put("web@1.service", 3).await;
    let refused = world.leader.advance_rollout(&step, &world.mirror).await;
    assert!(matches!(refused, Err(RegistryError::Conflict)), "{refused:?}");
    // The rollout was paused.
    let actions = [RolloutAction::Update { member: 1 }];
    let step = RolloutStep { actions: &actions, ..step };
    world.registry.request_rollout(rollout, RolloutRequest::Pause).await.unwrap();
    let refused = world.leader.advance_rollout(&step, &world.mirror).await;
    assert!(matches!(refused, Err(RegistryError::Conflict)), "{refused:?}");
    // Another engine leads.
    world.registry.request_rollout(rollout, RolloutRequest::Resume).await.unwrap();
    world.registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let refused = world.leader.advance_rollout(&step, &world.mirror).await;
    assert!(matches!(refused, Err(RegistryError::Deposed { .. })), "{refused:?}");
    assert_eq!(world.version("web@2.service"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn requests_follow_the_phase() {
    let world = World::new().await;
    let rollout = world.create().await;
    let request = async |request| {
        let result = world.registry.request_rollout(rollout, request).await;
        result.map(|(record, _)| record.rollout.phase.to_string()).map_err(|it| it.to_string())
    };
    let mut lines = String::new();
    for (name, it) in [
        ("resume", RolloutRequest::Resume),
        ("pause", RolloutRequest::Pause),
        ("pause", RolloutRequest::Pause),
        ("abort", RolloutRequest::Abort),
        ("resume", RolloutRequest::Resume),
    ] {
        let (Ok(text) | Err(text)) = request(it).await;
        lines += &format!("{name}: {text}\n");
    }
    insta::assert_snapshot!(lines, @r"
    resume: running
    pause: paused: resume or abort it
    pause: paused: resume or abort it
    abort: aborted on request: each member keeps the version that it has
    resume: cannot resume a rollout that is aborted: start another one
    ");
    let missing = world.registry.request_rollout(RolloutId(7), RolloutRequest::Pause).await;
    assert_eq!(missing.unwrap_err().to_string(), "rollout 7 does not exist");
}

#[tokio::test(start_paused = true)]
async fn oldest_ended_rollouts_are_deleted() {
    let world = World::new().await;
    let open = world.create().await;
    for _ in 0..12 {
        let rollout = world.create().await;
        let aborted = world.registry.request_rollout(rollout, RolloutRequest::Abort).await;
        world.seen(aborted.unwrap().1).await;
    }
    world.create().await;
    let snapshot = world.mirror.snapshot();
    let left: Vec<u64> = snapshot.rollouts().map(|record| record.id.0).collect();
    assert_eq!(left, [open.0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    let keys = world.registry.store().read("/fleet/rollouts/").await.unwrap().entries;
    let files = keys.iter().filter(|entry| entry.key.ends_with("/files")).count();
    assert_eq!(files, 2, "ended rollouts have no files");
}
