//! A cluster that uses the two custom backends. It works like `fleetd`, but with all machines in
//! one process.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::journal::JournalReader as _;
use fleet_agent::{
    Agent, AgentConfig, Engine, EngineConfig, MemoryState, Shutdown, ShutdownTrigger,
};
use fleet_core::journal::JournalQuery;
use fleet_core::{ActiveState, MachineId, Snapshot, TargetState, Unit};
use fleet_store::registry::{ExpectUnit, MachineRecord, NewUnit};
use fleet_store::{Layout, Mirror, Registry};
use fleet_unitfile::UnitFile;
use tokio::task::JoinHandle;

use crate::service_manager::{TaskMachine, TaskManager};
use crate::store::OwnStore;

/// Time to live of a machine's presence and of the leader lease.
const TTL: Duration = Duration::from_secs(1);

/// Timeout for everything that must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// A cluster of several machines. The engine runs on the first of them.
///
/// The registry writes to the store. The mirror follows the store and serves all reads. In a real
/// cluster, each host's daemon has its own registry and mirror, and all daemons share one store.
pub(crate) struct Cluster {
    registry: Registry,
    mirror: Mirror,
    machines: BTreeMap<MachineId, (Arc<TaskMachine>, Agent)>,
    engine: JoinHandle<()>,
    trigger: ShutdownTrigger,
}

impl Cluster {
    /// Starts machines with these IDs.
    pub(crate) fn start(ids: &[&str]) -> Self {
        let ids: Vec<MachineId> =
            ids.iter().map(|id| id.parse().expect("the IDs are valid")).collect();
        let registry = Registry::new(OwnStore::open(), Layout::DEFAULT_PREFIX);
        let mirror = Mirror::start(&registry);
        let (trigger, shutdown) = ShutdownTrigger::new();
        let mut config = EngineConfig::new(ids[0].clone(), registry.clone(), mirror.clone());
        (config.ttl, config.presence_ttl) = (TTL, TTL);
        let engine = Engine::new(config);
        let engine = tokio::spawn(engine.run(shutdown.clone()));
        let start = |id: MachineId| (id.clone(), start_machine(id, &registry, &mirror, &shutdown));
        let machines = ids.into_iter().map(start).collect();
        Self { registry, mirror, machines, engine, trigger }
    }

    /// Submits a unit with the desired state launched. Production code first checks the unit with
    /// `Requirements::parse`, in order to report errors. This example does not, because an invalid
    /// unit does no harm to the cluster.
    pub(crate) async fn submit(&self, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
        let (name, file) = (name.parse()?, UnitFile::parse(text)?);
        let unit = NewUnit { name, file, desired: TargetState::Launched };
        let revision = self.registry.put_unit(unit, ExpectUnit::Absent).await?;
        // The write is visible once the mirror has caught up.
        self.mirror.wait_for(revision).await?;
        Ok(())
    }

    /// Returns the first snapshot in which all machines are present and all units active.
    pub(crate) async fn wait_until_all_run(&self) -> Result<Arc<Snapshot>, Box<dyn Error>> {
        let mut changes = self.mirror.subscribe();
        let wait = async {
            loop {
                let snapshot = self.mirror.snapshot();
                let complete = snapshot.machines().map(|machine| &machine.id);
                if complete.eq(self.machines.keys()) && idle(&snapshot).is_empty() {
                    return Ok(snapshot);
                }
                changes.changed().await?;
            }
        };
        let late = |_| format!("these do not run: {}", idle(&self.mirror.snapshot()).join(", "));
        tokio::time::timeout(DEADLINE, wait).await.map_err(late)?
    }

    /// Returns the first lines of a unit's output on its machine.
    pub(crate) async fn output(
        &self,
        unit: &str,
        lines: usize,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        let snapshot = self.mirror.snapshot();
        let placement = snapshot.placement(unit).ok_or("the unit has no machine")?;
        let (machine, _) = self.machines.get(&placement.machine).ok_or("the machine is off")?;
        let query = JournalQuery::default().with_follow(true);
        let mut journal = TaskManager::new(machine).journal(&unit.parse()?, query).await?;
        let mut read = Vec::new();
        while read.len() < lines {
            read.push(journal.next().await.ok_or("the unit has ended")?);
        }
        Ok(read)
    }

    /// Simulates a power failure: stops the agent and all units of a machine without a clean
    /// shutdown. The other machines consider this machine absent once its lease has expired.
    pub(crate) fn power_off(&mut self, id: &str) {
        if let Some((machine, agent)) = self.machines.remove(id) {
            drop(agent);
            machine.power_off();
        }
    }

    /// Stops the engine and the agents, and then the units, because units outlive their agents.
    pub(crate) async fn end(self) {
        self.trigger.fire();
        self.engine.await.expect("the engine does not panic");
        for (machine, agent) in self.machines.into_values() {
            agent.ended().await;
            machine.power_off();
        }
        self.mirror.shutdown();
    }
}

fn start_machine(
    id: MachineId,
    registry: &Registry,
    mirror: &Mirror,
    shutdown: &Shutdown,
) -> (Arc<TaskMachine>, Agent) {
    let machine = TaskMachine::new();
    let manager = Arc::new(TaskManager::new(&machine));
    // Distinguishes this machine from another one with the same ID.
    let token = format!("the only {id}");
    let record =
        MachineRecord { version: env!("CARGO_PKG_VERSION").to_owned(), ..MachineRecord::new(id) };
    let state = Arc::new(MemoryState::default());
    let mut config =
        AgentConfig::new(record, token, registry.clone(), mirror.clone(), manager, state);
    config.ttl = TTL;
    (machine, Agent::start(config, shutdown))
}

/// Returns the machines that should run a unit. For a global unit these are all machines, because
/// the global unit of this example has no further requirements.
pub(crate) fn homes<'a>(snapshot: &'a Snapshot, unit: &Unit) -> Vec<&'a MachineId> {
    if unit.is_global() {
        return snapshot.machines().map(|machine| &machine.id).collect();
    }
    let placement = snapshot.placement(unit.name.as_str());
    placement.map(|placement| &placement.machine).into_iter().collect()
}

/// Returns the units that are not active on all their machines.
fn idle(snapshot: &Snapshot) -> Vec<&str> {
    let runs_on = |unit: &Unit, machine: &MachineId| {
        let state = snapshot.state(unit.name.as_str(), machine.as_str());
        state.is_some_and(|state| state.systemd.active == ActiveState::Active)
    };
    let idle = snapshot.units().filter(|unit| {
        let homes = homes(snapshot, unit);
        homes.is_empty() || !homes.iter().all(|machine| runs_on(unit, machine))
    });
    idle.map(|unit| unit.name.as_str()).collect()
}
