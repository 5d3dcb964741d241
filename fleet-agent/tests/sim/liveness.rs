//! Liveness: once all faults have ended, the cluster converges within a fixed time, and stays so
//! (I-21, I-22, I-23), and so do rollouts (I-29) and jobs (I-28).

mod jobs;

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::rollout::{RolloutPhase, RolloutRecord, RolloutRequest};
use fleet_core::{Revision, Snapshot, SystemdState, TargetState};
use fleet_scheduler::{check, plan, share};
use fleet_unitfile::UnitName;

use crate::cluster::{Cluster, TTL};
use crate::host::Host;
use crate::safety::writes::{balanced, drained, waits_for_balance, waits_for_ups};

/// Time limit for convergence. Failures are retried after at most a minute, and then need a leader,
/// which may have to wait for the end of the previous term.
const BOUND: Duration = Duration::from_secs(120);

/// How long it must then stay unchanged.
const REST: Duration = Duration::from_secs(60);

/// Time that a rollout may need for one batch, besides its strategy.
const BATCH: Duration = Duration::from_secs(5);

/// Interval of the checks.
const STEP: Duration = Duration::from_secs(2);

impl Cluster {
    /// Heals everything, and waits until the cluster has converged and stays so.
    pub(crate) async fn heal_and_rest(&mut self) {
        for machine in 0..self.hosts.len() {
            self.hosts[machine].heal();
            self.boot(machine);
        }
        self.end_schedules().await;
        self.rest().await;
    }

    /// Resumes all rollouts, and waits until they have ended.
    pub(crate) async fn resume_rollouts(&mut self) {
        let now = self.history.now();
        for record in now.active_rollouts() {
            let resumed = self.registry.request_rollout(record.id, RolloutRequest::Resume).await;
            resumed.expect("all rollouts that have not ended are paused");
        }
        self.settle().await;
        self.rest().await;
    }

    /// Waits until the cluster has converged and stays so.
    pub(crate) async fn rest(&mut self) {
        let bound = BOUND + self.rollout_bound() + self.job_bound();
        let (mut waited, mut last) = (Duration::ZERO, None);
        // After this time without a change, all timers have expired.
        let mut calm = Duration::ZERO;
        while calm <= TTL && waited < bound {
            self.wait(STEP).await;
            waited += STEP;
            let now = Some((self.calls(), self.history.revision()));
            let is_calm = now == last && !self.awaits_jobs() && self.differences().is_empty();
            calm = if is_calm { calm + STEP } else { Duration::ZERO };
            last = now;
        }
        let differences = self.differences();
        assert!(differences.is_empty(), "after {bound:?}:\n{}", differences.join("\n"));
        self.wait(REST).await;
        let after = Some((self.calls(), self.history.revision()));
        let seen = last.map_or_else(Revision::default, |(_, revision)| revision);
        let written: Vec<_> = self.history.since(seen).map(|it| &it.written).collect();
        assert_eq!(after, last, "a cluster at rest makes calls or writes {written:?}");
    }

    /// Returns the time in which all rollouts that are not paused end.
    fn rollout_bound(&self) -> Duration {
        let now = self.history.now();
        let bound = |record: &RolloutRecord| {
            let strategy = record.rollout.strategy;
            // One more for the wait for enough healthy members, and twice for a rollback.
            let batches = 2 * (record.rollout.members.len() + 1);
            let batches = u32::try_from(batches).expect("there are few members");
            batches * (strategy.settle + strategy.deadline + BATCH)
        };
        running(&now).map(bound).sum()
    }

    /// Returns all deviations of the cluster from its desired state.
    pub(crate) fn differences(&self) -> Vec<String> {
        let now = self.history.now();
        let mut found = Vec::new();
        if self.leader().is_none() {
            found.push("no engine leads".to_owned());
        }
        found.extend(running(&now).map(|record| {
            format!("I-29: rollout {} is {}: {record:?}", record.id, record.rollout.phase)
        }));
        let plan = plan(&now);
        found.extend(plan.steps.iter().map(|step| format!("I-21: still to do: {step}")));
        let drained = drained(&now);
        found.extend(drained.iter().map(|step| format!("I-21: still to drain: {step}")));
        if let Some(order) = now.rebalancing.as_ref().filter(|_| !waits_for_ups(&now)) {
            let balanced = balanced(&now);
            found.extend(balanced.iter().map(|step| format!("I-21: still to balance: {step}")));
            let is_awaiting = order.in_flight(&now).next().is_some() || waits_for_balance(&now);
            if balanced.is_empty() && !is_awaiting {
                found.push("I-21: an order to rebalance is left over".to_owned());
            }
        }
        found.extend(check(&now, &plan).iter().map(|violation| format!("I-4: {violation}")));
        let reasons: BTreeMap<_, _> =
            now.reasons().map(|(unit, reason)| (unit.clone(), reason.clone())).collect();
        if reasons != plan.unplaced {
            found.push(format!("I-22: {reasons:?} is published, not {:?}", plan.unplaced));
        }
        if self.history.has_unused_contents() {
            found.push("the contents of former units are left over".to_owned());
        }
        found.extend(jobs::differences(&now));
        found.extend(self.hosts.iter().flat_map(|host| self.differences_of(host)));
        found
    }

    /// Returns all deviations of one machine, including those of its published states.
    fn differences_of(&self, host: &Host) -> Vec<String> {
        let (now, id) = (self.history.now(), host.id());
        if now.machine(id.as_str()).is_none() {
            return vec![format!("{id} is not present")];
        }
        let mut share = share(&now, id);
        let mut units = host.units();
        // A rollout may keep the former version of a global unit here.
        share.units.retain(|name, (unit, _)| {
            let is_held = unit.is_global() && now.holds_update(unit, id);
            let is_loaded = units.iter().any(|unit| unit.unit == *name);
            if is_held && is_loaded {
                share.undecided.insert(name.clone());
            }
            !is_held || !is_loaded
        });
        let published: BTreeMap<UnitName, SystemdState> = now
            .states()
            .filter(|state| state.machine == *id)
            .map(|state| (state.unit.clone(), state.systemd.clone()))
            .collect();
        let states: BTreeMap<_, _> =
            units.iter().map(|unit| (unit.unit.clone(), unit.state.clone())).collect();
        let mut found = Vec::new();
        if states != published {
            found.push(format!("{id}: {published:?} is published, not {states:?}"));
        }
        units.retain(|unit| !share.undecided.contains(&unit.unit));
        let has: BTreeMap<_, _> = units
            .iter()
            .map(|unit| {
                (unit.unit.clone(), (unit.known.hash, unit.known.requested, unit.known.epoch))
            })
            .collect();
        let wanted: BTreeMap<_, _> = share
            .units
            .iter()
            .map(|(name, (unit, epoch))| {
                // The record of a job decides on its state.
                let found = has.get(name).filter(|_| unit.is_job());
                let desired = found.map_or(unit.desired, |(_, requested, _)| *requested);
                (name.clone(), (unit.hash(), desired, *epoch))
            })
            .collect();
        if has != wanted {
            found.push(format!("I-21, I-23: {id} has {has:?}, not {wanted:?}"));
        }
        let late = units.iter().filter(|unit| {
            let wanted = share.units.get(&unit.unit).map(|(unit, _)| unit);
            wanted.is_some_and(|wanted| match wanted.is_job() {
                true => !jobs::is_as_recorded(&now, wanted, id, unit.known),
                false => {
                    let is_older = unit.known.generation < wanted.generation;
                    wanted.desired == TargetState::Launched && is_older
                }
            })
        });
        found.extend(late.map(|unit| format!("I-21: {} on {id} was not restarted", unit.unit)));
        found
    }
}

/// Returns the rollouts that have not ended and are not paused.
fn running(now: &Snapshot) -> impl Iterator<Item = &RolloutRecord> {
    now.active_rollouts().filter(|record| record.rollout.phase != RolloutPhase::Paused)
}
