//! Operations on a cluster: user actions, faults, and the passing of time.

use std::fmt;
use std::time::Duration;

use fleet_core::rebalancing::RebalanceLimits;
use fleet_core::{Intent, TargetState};
use fleet_store::RegistryError;
use fleet_unitfile::UnitName;

use crate::cluster::Cluster;
use crate::jobs::{self, JobOperation};
use crate::rng::Rng;
use crate::rollouts::RolloutOperation;
use crate::units::{self, Workload};

/// One operation. `Display` gives one line.
#[derive(Debug)]
pub(crate) enum Operation {
    Submit { unit: UnitName, requirement: String, variant: usize, desired: TargetState },
    Desire { unit: UnitName, desired: TargetState },
    RequestRestart { unit: UnitName },
    Destroy { unit: UnitName },
    Damage { unit: UnitName },
    OnMachine { machine: usize, what: OnMachine },
    Intend { machine: usize, intent: Option<Intent> },
    Rebalance { limits: Option<RebalanceLimits> },
    Rollout(RolloutOperation),
    Job(JobOperation),
    StoreAway(bool),
    Wait(Duration),
}

/// An operation on one machine or its daemon.
#[derive(Debug)]
pub(crate) enum OnMachine {
    Crash,
    End,
    Boot,
    Reboot,
    Away(bool),
    Delay(Duration),
    CutWatches,
    FailNext(usize),
    LoseAnswers(usize),
    LoseRequests(usize),
    RefuseReloads(bool),
    Unit { unit: UnitName, what: OnUnit },
}

/// An operation on one unit of one machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OnUnit {
    Kill,
    Exit(i32),
    FailLoad,
    FailStart,
    Mend,
    HangStop,
    Release,
}

impl Operation {
    /// Draws an operation.
    pub(crate) fn draw(rng: &mut Rng, machines: usize, workload: Workload) -> Self {
        match rng.below(25) {
            0..5 => Self::draw_submit(rng, workload),
            5..8 => {
                let desired = *rng.pick(&[
                    TargetState::Launched,
                    TargetState::Launched,
                    TargetState::Loaded,
                    TargetState::Inactive,
                ]);
                Self::Desire { unit: draw_unit(rng), desired }
            }
            8 => Self::RequestRestart { unit: draw_unit(rng) },
            9 => match rng.below(4) {
                0 => Self::Damage { unit: draw_unit(rng) },
                _ => Self::Destroy { unit: draw_unit(rng) },
            },
            10 if rng.below(3) == 0 => Self::StoreAway(rng.below(2) == 0),
            20 => Self::draw_intend(rng, machines),
            21 => Self::Rebalance { limits: draw_limits(rng) },
            22 | 23 => Self::Rollout(RolloutOperation::draw(rng)),
            24 => jobs::draw(rng, machines),
            10..17 => Self::OnMachine { machine: rng.below(machines), what: OnMachine::draw(rng) },
            _ => Self::Wait(Duration::from_millis(1 << rng.below(15))),
        }
    }

    /// Draws a request to drain or to use a machine.
    pub(crate) fn draw_intend(rng: &mut Rng, machines: usize) -> Self {
        Self::Intend { machine: rng.below(machines), intent: draw_intent(rng) }
    }

    fn draw_submit(rng: &mut Rng, workload: Workload) -> Self {
        let unit = draw_unit(rng);
        let requirement = workload(&unit, rng);
        let desired = match rng.below(6) {
            0 => TargetState::Inactive,
            1 => TargetState::Loaded,
            _ => TargetState::Launched,
        };
        Self::Submit { unit, requirement, variant: rng.below(3), desired }
    }

    /// Performs the operation.
    pub(crate) async fn happen(&self, cluster: &mut Cluster) {
        let registry = cluster.registry.clone();
        match self {
            Self::Submit { unit, requirement, variant, desired } => {
                cluster.submit(unit.as_str(), requirement, *variant, *desired).await;
            }
            Self::Desire { unit, desired } => {
                accept(registry.set_desired(unit, *desired).await);
            }
            Self::RequestRestart { unit } => accept(registry.request_restart(unit).await),
            Self::Destroy { unit } => accept(registry.destroy(unit, &cluster.people).await),
            Self::Damage { unit } => {
                if cluster.history.now().unit(unit.as_str()).is_some() {
                    cluster.damage(unit.as_str()).await;
                }
            }
            Self::Intend { machine, intent } => {
                let machine = cluster.hosts[*machine].id().clone();
                accept(registry.set_intent(&machine, *intent).await);
            }
            Self::Rebalance { limits: Some(limits) } => {
                accept(registry.request_rebalancing(*limits).await);
            }
            Self::Rebalance { limits: None } => accept(registry.end_rebalancing().await),
            Self::Rollout(operation) => operation.happen(cluster).await,
            Self::Job(operation) => operation.happen(cluster).await,
            Self::OnMachine { machine, what } => what.happen(cluster, *machine).await,
            Self::StoreAway(away) => {
                cluster.hosts.iter().for_each(|host| host.set_unreachable(*away));
            }
            Self::Wait(time) => cluster.wait(*time).await,
        }
    }
}

fn draw_unit(rng: &mut Rng) -> UnitName {
    rng.pick(&units::all()).clone()
}

fn draw_intent(rng: &mut Rng) -> Option<Intent> {
    let min_available = u32::try_from(rng.below(3)).unwrap_or(0);
    *rng.pick(&[None, None, Some(Intent::Cordoned), Some(Intent::Drained { min_available })])
}

fn draw_limits(rng: &mut Rng) -> Option<RebalanceLimits> {
    let mut number = |below| u32::try_from(rng.below(below)).unwrap_or(0);
    let (at_once, gain, min_available) = (1 + number(3), number(2), number(3));
    let most = Some(number(8)).filter(|most| *most > 0);
    let limits = RebalanceLimits { max_in_flight: at_once, gain, min_available, max_moves: most };
    (number(6) > 0).then_some(limits)
}

/// Users may refer to missing or unreadable units.
pub(crate) fn accept<T: fmt::Debug>(result: Result<T, RegistryError>) {
    let refused = |error: &RegistryError| {
        matches!(error, RegistryError::NotFound { .. } | RegistryError::Value { .. })
    };
    assert!(result.as_ref().err().is_none_or(refused), "{result:?}");
}

impl OnMachine {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(18) {
            0 => Self::Crash,
            1 => Self::End,
            2 | 3 => Self::Boot,
            4 => Self::Reboot,
            5 => Self::Away(true),
            6 | 7 => Self::Away(false),
            8 => Self::Delay(Duration::from_millis(1 << rng.below(15))),
            9 => Self::Delay(Duration::ZERO),
            10 => Self::CutWatches,
            11 => Self::FailNext(1 + rng.below(3)),
            12 => Self::LoseAnswers(1 + rng.below(2)),
            13 => Self::LoseRequests(1 + rng.below(2)),
            14 => Self::RefuseReloads(rng.below(3) == 0),
            _ => Self::Unit { unit: draw_unit(rng), what: OnUnit::draw(rng) },
        }
    }

    async fn happen(&self, cluster: &mut Cluster, machine: usize) {
        let host = cluster.hosts[machine].clone();
        match self {
            Self::Crash => cluster.crash(machine),
            Self::End => cluster.end(machine).await,
            Self::Boot => cluster.boot(machine),
            Self::Reboot => cluster.reboot(machine),
            Self::Away(away) => host.set_unreachable(*away),
            Self::Delay(delay) => {
                host.link().set_delay(*delay);
                host.set_trouble("slow", !delay.is_zero());
            }
            Self::CutWatches => host.link().cut_watches(),
            Self::FailNext(calls) => host.link().fail_next(*calls),
            Self::LoseAnswers(commits) => host.link().lose_responses(*commits),
            Self::LoseRequests(commits) => host.link().lose_requests(*commits),
            Self::RefuseReloads(refuse) => host.refuse_reloads(*refuse),
            Self::Unit { unit, what } => what.happen(&host, unit),
        }
        host.disturb();
    }
}

impl OnUnit {
    fn draw(rng: &mut Rng) -> Self {
        let all = [
            Self::Kill,
            Self::Exit(0),
            Self::Exit(1),
            Self::FailLoad,
            Self::FailStart,
            Self::Mend,
            Self::HangStop,
            Self::Release,
        ];
        *rng.pick(&all)
    }

    pub(crate) fn happen(self, host: &crate::host::Host, unit: &UnitName) {
        let fake = host.fake();
        match self {
            Self::Kill => fake.crash(unit),
            Self::Exit(code) => fake.exit(unit, code),
            Self::FailLoad => fake.fail_load(unit, "the test wants it so"),
            Self::FailStart => fake.fail_start(unit, "the test wants it so"),
            Self::Mend => fake.clear_failures(unit),
            Self::HangStop => fake.hang_stop(unit),
            Self::Release => fake.release(unit),
        }
        match self {
            Self::FailLoad => host.set_trouble(&format!("loading {unit}"), true),
            Self::Mend => host.set_trouble(&format!("loading {unit}"), false),
            Self::HangStop => host.set_trouble(&format!("stopping {unit}"), true),
            Self::Release => host.set_trouble(&format!("stopping {unit}"), false),
            _ => {}
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnMachine { machine, what } => write!(f, "m{machine}: {what:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}
