//! Cost of one change for a leading engine of a large cluster.
//!
//! `cargo bench -p fleet-agent --bench wake` prints one JSON line per figure: the median time to
//! read the delta from the mirror and to plan from it, in microseconds. Each line also has the time
//! to plan from the whole snapshot, from the same run. The store is in memory, and its time is not
//! counted.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_agent::testing::Planner;
use fleet_core::{Epoch, MachineId, Revision, TargetState};
use fleet_scheduler::{Plan, StepAction, plan};
use fleet_store::registry::{
    ExpectUnit, Leadership, MachineRecord, NewUnit, PlacementWrites, SetPlacement,
};
use fleet_store::{Layout, MemoryStore, Mirror, Registry};
use fleet_unitfile::UnitFile;

const UNITS: usize = 10_000;
const MACHINES: usize = 100;
const CHANGES: usize = 200;
const LEASE: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() {
    // cargo also builds this as a test, where there is nothing to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    for waiting in [0, 100] {
        let mut engine = Engine::start(waiting).await;
        engine.measure(waiting).await;
    }
}

/// The measured parts of an engine, and their inputs.
struct Engine {
    registry: Registry,
    mirror: Mirror,
    leader: Leadership,
    planner: Planner,
}

impl Engine {
    /// Creates an engine that has planned the whole cluster.
    async fn start(waiting: usize) -> Self {
        let registry = Registry::new(Arc::new(MemoryStore::new()), Layout::DEFAULT_PREFIX);
        for number in 0..MACHINES {
            let record = MachineRecord::new(machine(number));
            registry.join(record, "token", LEASE).await.expect("a write");
        }
        for number in 0..UNITS - waiting {
            put(&registry, &format!("unit-{number:05}"), "Restart=on-failure\n").await;
        }
        for number in 0..waiting {
            let wish = format!("[X-Fleet]\nMachineMetadata=rack=r{number}\n");
            put(&registry, &format!("picky-{number:05}"), &wish).await;
        }
        let leader = registry.campaign(&machine(0), LEASE).await.expect("a store");
        let leader = leader.expect("there is no other leader");
        let mirror = Mirror::start(&registry);
        mirror.wait_current().await.expect("it runs");
        let mut engine = Self { registry, mirror, leader, planner: Planner::new() };
        let (_, plan) = engine.wake();
        engine.carry_out(&plan).await;
        engine.wake();
        engine
    }

    async fn measure(&mut self, waiting: usize) {
        let (mut came, mut echoed, mut restarted, mut whole) = (vec![], vec![], vec![], vec![]);
        for number in 0..CHANGES {
            let revision = put(&self.registry, &format!("new-{number:05}"), "").await;
            self.mirror.wait_for(revision).await.expect("it runs");
            let (took, plan) = self.wake();
            came.push(took);
            self.carry_out(&plan).await;
            echoed.push(self.wake().0);
            let unit = format!("new-{number:05}.service").parse().expect("a name");
            let (revision, _) = self.registry.request_restart(&unit).await.expect("a write");
            self.mirror.wait_for(revision).await.expect("it runs");
            restarted.push(self.wake().0);
            whole.push(self.whole());
        }
        let whole = median(whole);
        report("wake_for_a_new_unit_us", waiting, median(came), whole);
        report("wake_for_its_placement_us", waiting, median(echoed), whole);
        report("wake_for_its_restart_us", waiting, median(restarted), whole);
    }

    /// Measures reading the delta and planning from it.
    fn wake(&mut self) -> (Duration, Plan) {
        let begin = Instant::now();
        let delta = self.mirror.delta_since(self.planner.revision());
        let plan = self.planner.follow(&delta).clone();
        (begin.elapsed(), plan)
    }

    /// Measures a plan from the whole snapshot.
    fn whole(&self) -> Duration {
        let snapshot = self.mirror.snapshot();
        let begin = Instant::now();
        let plan = plan(&snapshot);
        let took = begin.elapsed();
        assert!(plan.is_empty());
        took
    }

    async fn carry_out(&self, plan: &Plan) {
        let place = plan.steps.iter().map(|step| match &step.action {
            StepAction::Place { machine } => SetPlacement {
                unit: step.unit.clone(),
                machine: machine.clone(),
                epoch: Epoch(plan.based_on.0),
                previous: None,
            },
            other => panic!("{other:?} in a cluster that only grows"),
        });
        let writes = PlacementWrites { set: place.collect(), ..PlacementWrites::default() };
        let revision = self.leader.commit(&writes).await.expect("it leads");
        self.mirror.wait_for(revision).await.expect("it runs");
    }
}

async fn put(registry: &Registry, name: &str, rest: &str) -> Revision {
    let unit = NewUnit {
        name: format!("{name}.service").parse().expect("a name"),
        file: UnitFile::parse(format!("[Service]\nExecStart=/usr/bin/serve\n{rest}"))
            .expect("a unit file"),
        desired: TargetState::Launched,
    };
    registry.put_unit(unit, ExpectUnit::Absent).await.expect("a write")
}

fn machine(number: usize) -> MachineId {
    format!("m{number:04}").parse().expect("an ID")
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn report(figure: &str, waiting: usize, value: f64, from_the_whole: f64) {
    let line = serde_json::json!({
        "figure": figure, "units": UNITS, "waiting": waiting,
        "value": value.round(), "from_the_whole": from_the_whole.round(),
    });
    // A closed stdout does not end the benchmark.
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}
