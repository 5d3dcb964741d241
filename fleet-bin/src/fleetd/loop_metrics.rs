//! Metrics of the daemon's engine and agents.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fleet_agent::{AgentMetrics, EngineObserver, wall_time};
use fleet_core::{ActiveState, MachineId};
use fleet_http::Metrics;
use fleet_http::prometheus_client::collector::Collector;
use fleet_http::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use fleet_http::prometheus_client::metrics::MetricType;
use fleet_http::prometheus_client::metrics::counter::{ConstCounter, Counter};
use fleet_http::prometheus_client::metrics::family::Family;
use fleet_http::prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use fleet_http::prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use fleet_scheduler::{Step, StepAction};
use fleet_store::{Mirror, RegistryError};

type Kind = Vec<(&'static str, &'static str)>;

/// Metrics of the daemon's engine, named as in version 1.
pub(crate) struct EngineMetrics {
    leader_start_time: Gauge,
    tasks: Family<Kind, Counter>,
    task_failures: Family<Kind, Counter>,
    passes: Counter,
    pass_failures: Family<Kind, Counter>,
    durations: Histogram,
}

impl EngineMetrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counters = Self {
            leader_start_time: Gauge::default(),
            tasks: Family::default(),
            task_failures: Family::default(),
            passes: Counter::default(),
            pass_failures: Family::default(),
            // From one millisecond, the resolution of the clock, to sixteen seconds.
            durations: Histogram::new(exponential_buckets(0.001, 4.0, 8)),
        };
        counters.init_labels();
        metrics.register(|registry| {
            let help = "Unix time at which this daemon became leader; 0 if it is not";
            registry.register("engine_leader_start_time", help, counters.leader_start_time.clone());
            let help = "Placement changes written, by type";
            registry.register("engine_task_count", help, counters.tasks.clone());
            let help = "Placement changes that the store refused, by type";
            registry.register("engine_task_failure_count", help, counters.task_failures.clone());
            let help = "Reconciliation passes of the engine";
            registry.register("engine_reconcile_count", help, counters.passes.clone());
            let help = "Failed reconciliation passes of the engine, by type";
            let failures = counters.pass_failures.clone();
            registry.register("engine_reconcile_failure_count", help, failures);
            let help = "Duration of a pass until its writes are visible, in seconds";
            registry.register("engine_reconcile_duration_second", help, counters.durations.clone());
        });
        counters
    }

    /// Creates the counters of all labels, so that they exist from the beginning.
    fn init_labels(&self) {
        for kind in [PLACE, MOVE, REMOVE] {
            self.tasks.get_or_create_owned(&vec![("type", kind)]);
            self.task_failures.get_or_create_owned(&vec![("type", kind)]);
        }
        for kind in [CONFLICT, DEPOSED, RUN] {
            self.pass_failures.get_or_create_owned(&vec![("type", kind)]);
        }
    }
}

/// Types of placement changes, named as in version 1 where it had them.
const PLACE: &str = "attemptscheduleunit";
const MOVE: &str = "moveunit";
const REMOVE: &str = "unscheduleunit";

/// Types of failed reconciliation passes.
const CONFLICT: &str = "conflict";
const DEPOSED: &str = "deposed";
const RUN: &str = "run";

impl EngineObserver for EngineMetrics {
    fn on_leadership(&self, leads: bool) {
        let now = i64::try_from(wall_time().as_millis() / 1000).unwrap_or(i64::MAX);
        self.leader_start_time.set(if leads { now } else { 0 });
    }

    fn on_steps(&self, steps: &[Step], written: bool) {
        let family = if written { &self.tasks } else { &self.task_failures };
        for step in steps {
            let kind = match step.action {
                StepAction::Place { .. } => PLACE,
                StepAction::Move { .. } => MOVE,
                StepAction::Remove { .. } => REMOVE,
            };
            family.get_or_create_owned(&vec![("type", kind)]).inc();
        }
    }

    fn on_pass(&self, took: Duration, error: Option<&RegistryError>) {
        self.passes.inc();
        self.durations.observe(took.as_secs_f64());
        if let Some(error) = error {
            let kind = match error {
                RegistryError::Conflict => CONFLICT,
                RegistryError::Deposed { .. } => DEPOSED,
                _ => RUN,
            };
            self.pass_failures.get_or_create_owned(&vec![("type", kind)]).inc();
        }
    }
}

/// Registers metrics of this daemon's agents and of the units on their machines.
pub(crate) fn register_agents(
    metrics: &Metrics,
    agents: Vec<AgentMetrics>,
    mirror: Mirror,
    machines: Vec<MachineId>,
) {
    let agents = Box::new(AgentCollector { agents, mirror, machines });
    metrics.register(|registry| registry.register_collector(agents));
}

/// Collects metrics of this daemon's agents when they are requested.
struct AgentCollector {
    agents: Vec<AgentMetrics>,
    mirror: Mirror,
    machines: Vec<MachineId>,
}

impl fmt::Debug for AgentCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCollector").field("machines", &self.machines).finish_non_exhaustive()
    }
}

impl AgentCollector {
    fn units(&self) -> BTreeMap<&'static str, i64> {
        // Each state exists from the beginning.
        let mut counts: BTreeMap<_, _> =
            ActiveState::ALL.iter().map(|state| (state.as_str(), 0)).collect();
        let snapshot = self.mirror.snapshot();
        let here = snapshot.states().filter(|state| self.machines.contains(&state.machine));
        for state in here {
            *counts.entry(state.systemd.active.as_str()).or_default() += 1;
        }
        counts
    }
}

impl Collector for AgentCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Units on the machines of this daemon, by last reported ActiveState";
        let gauge = MetricType::Gauge;
        let mut units = encoder.encode_descriptor("agent_units", help, None, gauge)?;
        for (active, count) in self.units() {
            let labels = [("active", active)];
            ConstGauge::new(count).encode(units.encode_family(&labels)?)?;
        }
        let sum = |of: fn(&AgentMetrics) -> u64| self.agents.iter().map(of).sum::<u64>();
        let (failures, retries) = (sum(AgentMetrics::failures), sum(AgentMetrics::retries));
        let counters = [
            ("agent_task_failures", "Failed tasks of agents", failures),
            ("agent_retries", "Failed tasks of agents that are retried", retries),
        ];
        for (name, help, count) in counters {
            let counter = MetricType::Counter;
            let metric = encoder.encode_descriptor(name, help, None, counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        Ok(())
    }
}
