//! Rollouts: their operations, and a campaign with many of them. Few other writers interfere, so
//! that most rollouts reach their end.

use std::time::Duration;

use fleet_core::rollout::{
    CountOrPercent, Member, MemberId, OnFailure, Rollout, RolloutId, RolloutPhase, RolloutRequest,
    RolloutStrategy, UnitTarget,
};
use fleet_core::{Generation, Snapshot, TargetState};
use fleet_store::registry::{MemberFiles, NewRollout, RolloutFiles};
use fleet_store::{Registry, RegistryError};
use fleet_unitfile::{UnitFile, UnitName};

use crate::campaign::run_all;
use crate::cluster::Cluster;
use crate::operation::{OnMachine, OnUnit, Operation};
use crate::rng::Rng;
use crate::units::{self, EXITS, HANGS, file, name, own_requirement, with_variant};

/// An operation on rollouts.
#[derive(Debug)]
pub(crate) enum RolloutOperation {
    /// Starts a rollout of these units to a variant of their files.
    Start { units: Vec<UnitName>, variant: usize, strategy: RolloutStrategy },
    /// Sends a request to one of the rollouts that have not ended or, if there is none, to the last
    /// one that has.
    Request { number: usize, request: RolloutRequest },
}

impl RolloutOperation {
    /// Draws an operation.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self::draw_of(&units::all(), rng)
    }

    /// Draws an operation on some of these units.
    fn draw_of(all: &[UnitName], rng: &mut Rng) -> Self {
        let all_requests = [
            RolloutRequest::Pause,
            RolloutRequest::Resume,
            RolloutRequest::Resume,
            RolloutRequest::Abort,
            RolloutRequest::RollBack,
        ];
        if rng.below(3) == 0 {
            return Self::Request { number: rng.below(3), request: *rng.pick(&all_requests) };
        }
        let count = 1 + rng.below(6);
        let mut members: Vec<UnitName> = Vec::new();
        for _ in 0..count {
            let unit = rng.pick(all);
            if !members.contains(unit) {
                members.push(unit.clone());
            }
        }
        let variant = *rng.pick(&[0, 1, 2, 2, EXITS, HANGS]);
        Self::Start { units: members, variant, strategy: draw_strategy(rng) }
    }

    /// Performs the operation.
    pub(crate) async fn happen(&self, cluster: &mut Cluster) {
        match self {
            Self::Start { units, variant, strategy } => {
                cluster.roll_out(units, *variant, *strategy).await;
            }
            Self::Request { number, request } => {
                let now = cluster.history.now();
                let active: Vec<RolloutId> = now.active_rollouts().map(|it| it.id).collect();
                let last = now.rollouts().last().map(|record| record.id);
                let chosen = active.get(number % active.len().max(1)).copied().or(last);
                if let Some(id) = chosen {
                    let result = cluster.registry.request_rollout(id, *request).await;
                    let is_expected = match &result {
                        Ok(_) => true,
                        Err(error) => matches!(error, RegistryError::RolloutRequest(_)),
                    };
                    assert!(is_expected, "{result:?}");
                }
            }
        }
    }
}

fn draw_strategy(rng: &mut Rng) -> RolloutStrategy {
    let mut number = |below| u32::try_from(rng.below(below)).unwrap_or(0);
    let at_once = match number(3) {
        0 => CountOrPercent::Percent(*[25, 50, 100].get(number(3) as usize).unwrap_or(&50)),
        _ => CountOrPercent::Count(1 + number(3)),
    };
    let min_available = match number(3) {
        0 => CountOrPercent::Percent(10 * number(10)),
        _ => CountOrPercent::Count(number(4)),
    };
    let seconds = |number: u32| Duration::from_secs(u64::from(number));
    RolloutStrategy {
        at_once,
        min_available,
        settle: seconds(number(6)),
        deadline: seconds(2 + number(40)),
        on_failure: if number(3) == 0 { OnFailure::Stop } else { OnFailure::Rollback },
    }
}

impl Cluster {
    /// Starts a rollout of units to a variant of their files, as the API does. Creates missing
    /// units with their usual requirement, and restarts units that have the variant already. Leaves
    /// out members of other rollouts. Returns `None` if no rollout is possible.
    pub(crate) async fn roll_out(
        &mut self,
        units: &[UnitName],
        variant: usize,
        strategy: RolloutStrategy,
    ) -> Option<RolloutId> {
        let known = self.people.snapshot();
        let new = new_rollout(units, variant, strategy, (&known, self))?;
        let stored = self.registry.create_rollout(new, &known).await;
        let (id, _) = stored.expect("the store is there, without other writers");
        self.settle().await;
        Some(id)
    }

    /// Returns the phase of a rollout.
    pub(crate) fn phase(&self, id: RolloutId) -> RolloutPhase {
        let now = self.history.now();
        now.rollout(id).expect("the rollout is stored").rollout.phase.clone()
    }
}

/// Makes a rollout for a snapshot; `None` if it would have no members, or if the strategy does not
/// fit them.
fn new_rollout(
    units: &[UnitName],
    variant: usize,
    mut strategy: RolloutStrategy,
    (known, cluster): (&Snapshot, &Cluster),
) -> Option<NewRollout> {
    let (mut members, mut files) = (Vec::new(), RolloutFiles::default());
    for name in units {
        let unit = known.unit(name.as_str());
        if known.rollout_of(name).is_some() || known.fault(name.as_str()).is_some() {
            continue;
        }
        let from = unit.map(|unit| UnitTarget::of(unit));
        let old = unit.map(|unit| unit.file.clone());
        let new: UnitFile = match &old {
            Some(old) => with_variant(old, variant),
            None => file(own_requirement(name), variant),
        };
        let same = UnitTarget {
            hash: new.hash(),
            desired: TargetState::Launched,
            generation: unit.map_or(Generation::ZERO, |unit| unit.generation),
        };
        let to = match unit.filter(|_| from == Some(same)) {
            Some(unit) => {
                let generation =
                    Registry::restart_generation(unit, &cluster.people, known.revision);
                UnitTarget { generation, ..same }
            }
            None => same,
        };
        let is_global = match unit {
            Some(unit) => unit.is_global(),
            None => own_requirement(name).contains("Global"),
        };
        let machines = known.machines().filter(|machine| {
            unit.is_some_and(|unit| unit.is_global() && unit.requirements.admits(machine))
        });
        let on_machines = machines.map(|machine| MemberId {
            machine: Some(machine.id.clone()),
            ..MemberId::from(name.clone())
        });
        let ids: Vec<MemberId> =
            if is_global { on_machines.collect() } else { vec![MemberId::from(name.clone())] };
        let both = MemberFiles { from: old, to: new };
        files.members.extend(std::iter::repeat_n(both, ids.len()));
        members.extend(ids.into_iter().map(|id| Member::new(id, from, to)));
    }
    // Nothing can be restored after a restart.
    if members.iter().all(|member| member.from.is_some_and(|from| from.hash == member.to.hash)) {
        strategy.on_failure = OnFailure::Stop;
    }
    let rollout = Rollout::new(members, strategy).ok()?;
    Some(NewRollout { rollout, files })
}

/// Default number of seeds.
const RUNS: u64 = 100;

/// Number of operations before a cluster is healed.
const LENGTH: usize = 60;

/// Units of the campaign: a group, and a global unit.
const GROUP: [&str; 6] =
    ["a.service", "c.service", "d@1.service", "d@2.service", "l.socket", "h.service"];

// Holds: I-3, I-27, I-29
#[test]
fn rollouts_hold_under_random_faults() {
    run_all(RUNS, story);
}

async fn story(seed: u64, log: &mut Vec<String>) {
    let mut rng = Rng::new(seed);
    let machines = 2 + rng.below(3);
    let mut cluster = Cluster::start(machines).await;
    let group = GROUP.map(name);
    for unit in &group {
        cluster.launch(unit.as_str(), own_requirement(unit)).await;
    }
    cluster.wait(Duration::from_secs(3)).await;
    for _ in 0..LENGTH {
        let operation = draw(&mut rng, machines, &group);
        log.push(operation.to_string());
        operation.happen(&mut cluster).await;
        cluster.settle().await;
    }
    log.push("all is healed".to_owned());
    cluster.heal_and_rest().await;
    cluster.resume_rollouts().await;
}

/// Draws an operation of the campaign.
fn draw(rng: &mut Rng, machines: usize, group: &[UnitName]) -> Operation {
    let machine = rng.below(machines);
    let on = |what| Operation::OnMachine { machine, what };
    match rng.below(24) {
        0..6 => Operation::Rollout(RolloutOperation::draw_of(group, rng)),
        6 => on(OnMachine::Crash),
        7 => on(OnMachine::End),
        8 | 9 => on(OnMachine::Boot),
        10 => on(if rng.below(2) == 0 { OnMachine::Reboot } else { OnMachine::CutWatches }),
        11 => on(OnMachine::Away(rng.below(3) == 0)),
        12 => on(OnMachine::Delay(Duration::from_millis(1 << rng.below(13)))),
        13 => on(OnMachine::Delay(Duration::ZERO)),
        14 => on(match rng.below(3) {
            0 => OnMachine::FailNext(1 + rng.below(3)),
            1 => OnMachine::LoseAnswers(1 + rng.below(2)),
            _ => OnMachine::LoseRequests(1 + rng.below(2)),
        }),
        15 => {
            let unit = rng.pick(group).clone();
            let what = *rng.pick(&[OnUnit::Kill, OnUnit::Exit(1), OnUnit::FailStart, OnUnit::Mend]);
            on(OnMachine::Unit { unit, what })
        }
        16 if rng.below(2) == 0 => {
            let unit = rng.pick(group).clone();
            let requirement = own_requirement(&unit).to_owned();
            let variant = rng.below(3);
            Operation::Submit { unit, requirement, variant, desired: TargetState::Launched }
        }
        _ => Operation::Wait(Duration::from_millis(1 << rng.below(15))),
    }
}
