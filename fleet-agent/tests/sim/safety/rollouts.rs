//! Rollouts: their batches and available members (I-27), their end (I-29), and the authors and
//! causes of their writes (I-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::rollout::{
    Member, MemberId, MemberState, RolloutId, RolloutPhase, RolloutRecord, UnitTarget,
};
use fleet_core::{Revision, Snapshot, TargetState};
use fleet_store::registry::Key;
use fleet_unitfile::UnitName;

use crate::history::{History, Moment};
use crate::spy::Author;

/// State of the checks of rollouts.
#[derive(Default)]
pub(super) struct Rollouts {
    active: BTreeMap<RolloutId, Progress>,
    /// Rollouts whose unit files are stored.
    files: BTreeSet<RolloutId>,
    /// The cluster at the last revision that was checked.
    before: Arc<Snapshot>,
}

/// The leader's term, according to the store.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) leader: Option<Author>,
    /// Revision of its election.
    pub(super) elected: Revision,
}

/// Progress of a rollout that has not ended.
#[derive(Default)]
struct Progress {
    /// Last revision in which a leader wrote the rollout or one of its units. Each later decision
    /// is based on this revision or a later one.
    written: Revision,
    /// Members that another writer may have changed, or whose machine was absent.
    touched: BTreeSet<MemberId>,
    /// Members that were healthy since their update.
    confirmed: BTreeSet<MemberId>,
}

/// A rollout at one revision, with the cluster before.
#[derive(Clone, Copy)]
struct Step<'a> {
    moment: &'a Moment,
    before: &'a Snapshot,
    record: &'a RolloutRecord,
    history: &'a History,
    term: Term,
}

impl Rollouts {
    /// Returns the violations of a revision.
    pub(super) fn check(&mut self, moment: &Moment, history: &History, term: Term) -> Vec<String> {
        let before = std::mem::replace(&mut self.before, moment.snapshot.clone());
        let mut violations = authority(moment, term);
        for (key, deleted) in &moment.written {
            match key {
                Key::Rollout(id) => violations.extend(self.on_record(*id, moment, &before)),
                Key::RolloutFiles(id) if *deleted => drop(self.files.remove(id)),
                Key::RolloutFiles(id) => drop(self.files.insert(*id)),
                _ => {}
            }
        }
        violations.extend(unexplained(moment, &before));
        for (id, progress) in &mut self.active {
            let Some(record) = moment.snapshot.rollout(*id) else { continue };
            let step = Step { moment, before: &before, record, history, term };
            violations.extend(progress.follow(&step).into_iter().map(|text| {
                let phase = record.rollout.phase.as_str();
                format!("{text}, in rollout {id}, which is {phase}: {record:?}")
            }));
        }
        let has_ended = |id: &RolloutId| {
            moment.snapshot.rollout(*id).is_none_or(|record| record.rollout.phase.has_ended())
        };
        self.active.retain(|id, _| !has_ended(id));
        if !self.active.keys().eq(&self.files) {
            violations.push(format!("I-29: files of {:?} are stored", self.files));
        }
        violations
    }

    /// An ended rollout never changes, and no other one is deleted.
    fn on_record(&mut self, id: RolloutId, moment: &Moment, before: &Snapshot) -> Option<String> {
        let (was, is) = (before.rollout(id), moment.snapshot.rollout(id));
        let had_ended = was.is_some_and(|was| was.rollout.phase.has_ended());
        match (was, is) {
            (None, Some(_)) => drop(self.active.insert(id, Progress::default())),
            (Some(_), None) if !had_ended => {
                return Some(format!("I-29: rollout {id} was deleted before its end"));
            }
            (Some(was), Some(is)) if had_ended && was != is => {
                return Some(format!("I-29: rollout {id} has changed after its end: {is:?}"));
            }
            _ => {}
        }
        None
    }
}

/// Only the leading engine changes units and rollouts without a request of a user.
fn authority(moment: &Moment, term: Term) -> Vec<String> {
    let Some(author @ Author::Daemon(_)) = moment.author else { return Vec::new() };
    let is_decision = |key: &Key| {
        use Key::{Failures, Job, Rollout, Schedule, Unit};
        matches!(key, Rollout(_) | Unit(_) | Job(_) | Schedule(_) | Failures(_))
    };
    let keys = moment.written.iter().map(|(key, _)| key).filter(|key| is_decision(key));
    let text = |key| format!("I-3: {author:?} writes {key:?}, and {:?} leads", term.leader);
    keys.filter(|_| term.leader != Some(author)).map(text).collect()
}

/// A leader writes a unit only for a rollout: from the former to the new version or, in a rollback,
/// from the new to the former one.
fn unexplained(moment: &Moment, before: &Snapshot) -> Vec<String> {
    let Some(Author::Daemon(_)) = moment.author else { return Vec::new() };
    let mut violations = Vec::new();
    for (key, _) in &moment.written {
        let Key::Unit(unit) = key else { continue };
        if is_of_job(moment, before, unit) || is_of_failure(moment, before, unit) {
            continue;
        }
        let (was, is) = (target(before, unit), target(&moment.snapshot, unit));
        let explains = |record: &&Arc<RolloutRecord>| {
            let ends = |member: &Member| match record.rollout.phase {
                RolloutPhase::Running => (member.from, Some(member.to)),
                _ => (Some(member.to), member.from),
            };
            let can_write = matches!(
                record.rollout.phase,
                RolloutPhase::Running | RolloutPhase::RollingBack { .. }
            );
            let mut members = record.rollout.members.iter().filter(|it| it.id.unit == *unit);
            can_write && members.any(|member| ends(member) == (was, is))
        };
        if !moment.snapshot.rollouts().any(|record| explains(&record)) {
            violations.push(format!("I-27: no rollout changes {unit} from {was:?} to {is:?}"));
        }
    }
    violations
}

/// Whether a leader has written a unit for a job or schedule: it stops or removes a job together
/// with its end, and creates, stops or removes a run together with its schedule.
fn is_of_job(moment: &Moment, before: &Snapshot, unit: &UnitName) -> bool {
    let now = &moment.snapshot;
    let is_written = |key: &Key| moment.written.iter().any(|(written, _)| written == key);
    let has_ended = now.job(unit.as_str()).is_none_or(|job| job.state.outcome().is_some());
    let is_down = now.unit(unit.as_str()).is_none_or(|it| it.desired == TargetState::Inactive);
    if is_written(&Key::Job(unit.clone())) && has_ended && is_down {
        return true;
    }
    let is_run =
        now.unit(unit.as_str()).or(before.unit(unit.as_str())).is_some_and(|it| it.is_job());
    is_run && moment.written.iter().any(|(key, _)| matches!(key, Key::Schedule(_)))
}

/// Whether a leader has restarted a unit after a failure, together with counting the failure.
fn is_of_failure(moment: &Moment, before: &Snapshot, unit: &UnitName) -> bool {
    let now = &moment.snapshot;
    let of = |snapshot: &Snapshot| snapshot.unit(unit.as_str()).cloned();
    let is_written = moment.written.iter().any(|(key, _)| *key == Key::Failures(unit.clone()));
    let record = now.failures_of(unit.as_str()).filter(|_| is_written);
    let (Some(record), Some(was), Some(is)) = (record, of(before), of(now)) else { return false };
    was.hash() == is.hash()
        && (was.desired, is.desired) == (TargetState::Launched, TargetState::Launched)
        && was.generation < is.generation
        && is.generation == record.generation
}

fn target(snapshot: &Snapshot, unit: &UnitName) -> Option<UnitTarget> {
    snapshot.unit(unit.as_str()).map(|unit| UnitTarget::of(unit))
}

impl Progress {
    /// Follows the members to the next revision, and returns the violations.
    fn follow(&mut self, step: &Step<'_>) -> Vec<String> {
        let by_leader = matches!(step.moment.author, Some(Author::Daemon(_)));
        let mut changed = BTreeSet::new();
        for member in &step.record.rollout.members {
            let (was, is) = (step.target_before(member), step.target_now(member));
            let unit = Key::Unit(member.id.unit.clone());
            let is_written = step.moment.written.iter().any(|(key, _)| *key == unit);
            let is_absent = member.id.machine.is_some() && is.is_none();
            if is_absent || (is_written && !by_leader) {
                self.touched.insert(member.id.clone());
            }
            if was != is {
                self.confirmed.remove(&member.id);
                if by_leader && !self.touched.contains(&member.id) {
                    changed.insert(&member.id);
                }
            }
            // A machine may have the new version already.
            if step.record.observer(&step.moment.snapshot).observe(member).is_healthy() {
                self.confirmed.insert(member.id.clone());
            }
        }
        let mut violations = self.limits(step, &changed);
        violations.extend(self.final_targets(step));
        let key = Key::Rollout(step.record.id);
        let is_written = step.moment.written.iter().any(|(written, _)| *written == key);
        if by_leader && (is_written || !changed.is_empty()) {
            self.written = step.moment.snapshot.revision;
        }
        violations
    }

    /// The batch is not too large, and the leader may have seen a revision that permitted it.
    fn limits(&self, step: &Step<'_>, changed: &BTreeSet<&MemberId>) -> Vec<String> {
        let mut violations = Vec::new();
        if changed.is_empty() {
            return violations;
        }
        let rollout = &step.record.rollout;
        let updating = rollout.members.iter().filter(|member| {
            step.target_now(member) == Some(member.to)
                && !self.touched.contains(&member.id)
                && !self.confirmed.contains(&member.id)
        });
        let (updating, most) =
            (updating.count(), rollout.strategy.batch_size(rollout.members.len()));
        if rollout.phase == RolloutPhase::Running && updating > most {
            violations.push(format!("I-27: {updating} members are updated at once, not {most}"));
        }
        let earliest = self.written.max(step.term.elected);
        let mut seen = step.history.between(earliest, step.before.revision);
        if !seen.any(|seen| step.is_permitted(seen, changed)) {
            violations.push(format!("I-27: no revision from {earliest} on permits {changed:?}"));
        }
        violations
    }

    /// After the end, each member has one of its two targets: the new one if the rollout was
    /// completed, and the former one if it was rolled back.
    fn final_targets(&self, step: &Step<'_>) -> Vec<String> {
        let rollout = &step.record.rollout;
        let mut violations = Vec::new();
        for member in &rollout.members {
            if self.touched.contains(&member.id) {
                continue;
            }
            let id = &member.id;
            let target = step.target_now(member);
            let (is_from, is_to) = (target == member.from, target == Some(member.to));
            let is_expected = match rollout.phase {
                RolloutPhase::Completed => is_to,
                RolloutPhase::RolledBack { .. } => is_from,
                _ => is_from || is_to,
            };
            if !is_expected || member.state == MemberState::Superseded {
                violations.push(format!("I-29: {id} is {}, at {target:?}", member.state.as_str()));
            }
        }
        violations
    }
}

impl Step<'_> {
    fn target_now(&self, member: &Member) -> Option<UnitTarget> {
        self.record.observer(&self.moment.snapshot).observe(member).current
    }

    /// Returns the target of a member before the step. That of a global unit on one machine follows
    /// from the member's state.
    fn target_before(&self, member: &Member) -> Option<UnitTarget> {
        let record = self.before.rollout(self.record.id).map_or(self.record, |record| record);
        let mut members = record.rollout.members.iter();
        let was = members.find(|was| was.id == member.id).unwrap_or(member);
        record.observer(self.before).observe(was).current
    }

    /// Returns whether a decision that is based on this snapshot may change these members: the
    /// healthy ones among them are not needed, and all updated members are healthy if the change is
    /// an update.
    fn is_permitted(&self, seen: &Snapshot, changed: &BTreeSet<&MemberId>) -> bool {
        let Some(record) = seen.rollout(self.record.id) else { return false };
        let rollout = &record.rollout;
        let existing = rollout.members.iter().filter(|member| member.from.is_some()).count();
        let minimum = rollout.strategy.min_available.of(rollout.members.len());
        let is_update = self.record.rollout.phase == RolloutPhase::Running;
        let minimum = if is_update { minimum } else { minimum.min(existing) };
        let (mut healthy, mut taken, mut is_awaiting) = (0, 0, false);
        for member in &rollout.members {
            let found = record.observer(seen).observe(member);
            let is_healthy = found.is_healthy();
            healthy += usize::from(is_healthy);
            taken += usize::from(is_healthy && changed.contains(&member.id));
            let has_left = matches!(
                member.state,
                MemberState::Superseded | MemberState::Restoring | MemberState::Restored
            );
            is_awaiting |= !has_left && found.current == Some(member.to) && !is_healthy;
        }
        taken <= healthy.saturating_sub(minimum) && !(is_update && is_awaiting)
    }
}
