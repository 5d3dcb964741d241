//! A cluster: machines with their daemons around one store, and people who use it.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{Agent, AgentConfig, Engine, EngineConfig, ShutdownTrigger};
use fleet_core::{MachineId, Metadata, TargetState};
use fleet_store::testing::FaultyStore;
use fleet_store::{
    ExpectUnit, Key, Layout, MachineRecord, MemoryStore, Mirror, NewUnit, Registry, Store,
    Transaction,
};
use fleet_unitfile::UnitName;
use tokio::task::JoinSet;

use crate::history::History;
use crate::host::Host;
use crate::safety::Safety;
use crate::spy::{Author, Authors, Spy};
use crate::units::{file, name};

/// How long a machine stays present, and a leader leads, without a sign of life.
pub(crate) const TTL: Duration = Duration::from_secs(9);

/// Long enough for everything that is ready to be done, and for nothing that waits.
const MOMENT: Duration = Duration::from_millis(1);

/// How long a daemon may take to end: it may have to finish what it asks a slow store for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The longest time between two looks at what must hold.
const SLICE: Duration = Duration::from_secs(1);

/// A cluster that is looked at as time passes; what must never happen ends the test.
pub(crate) struct Cluster {
    pub(crate) hosts: Vec<Host>,
    pub(crate) history: History,
    daemons: Vec<Option<Daemon>>,
    /// For people, whose way to the store is never broken.
    pub(crate) registry: Registry,
    /// What people see of it.
    pub(crate) people: Mirror,
    /// For something that writes without knowing how.
    stranger: Arc<Spy>,
    safety: Safety,
}

/// The tasks of one daemon; they end with it, at once.
pub(crate) struct Daemon {
    loops: JoinSet<()>,
    trigger: ShutdownTrigger,
    /// What its agent sees.
    pub(crate) mirror: Mirror,
}

impl Cluster {
    /// A cluster of machines without units: `m0` and so on, in the regions north and south in turn.
    pub(crate) async fn start(machines: usize) -> Self {
        Self::start_with(machines, |_| {}).await
    }

    /// A cluster whose machines are first made as they should be.
    pub(crate) async fn start_with(machines: usize, make: impl FnOnce(&[Host])) -> Self {
        let store = Arc::new(MemoryStore::new());
        let authors = Authors::default();
        let way = |author| Arc::new(Spy { author, authors: authors.clone(), store: store.clone() });
        let host = |machine: usize| {
            let id = format!("m{machine}").parse().expect("the machine ID is well formed");
            Host::new(id, FaultyStore::new(way(Author::Daemon(machine))), store.clone())
        };
        let hosts: Vec<Host> = (0..machines).map(host).collect();
        make(&hosts);
        let registry = Registry::new(way(Author::Person), Layout::DEFAULT_PREFIX);
        let mut cluster = Self {
            people: Mirror::start(&registry),
            stranger: way(Author::Stranger),
            registry,
            daemons: hosts.iter().map(|_| None).collect(),
            safety: Safety::new(machines),
            hosts,
            history: History::start(&store, authors.clone()).await,
        };
        for machine in 0..machines {
            cluster.boot(machine);
        }
        cluster.wait(MOMENT).await;
        cluster
    }

    /// Destroys a unit that is there.
    pub(crate) async fn destroy(&self, unit: &UnitName) {
        self.registry.destroy(unit, &self.people).await.expect("it is there, and people reach it");
    }

    /// Starts the daemon of a machine, unless it runs.
    pub(crate) fn boot(&mut self, machine: usize) {
        if self.daemons[machine].is_none() {
            self.daemons[machine] = Some(Daemon::start(machine, &self.hosts[machine]));
            self.hosts[machine].set_trouble("no daemon", false);
        }
    }

    /// The daemon of a machine is killed.
    pub(crate) fn crash(&mut self, machine: usize) {
        self.hosts[machine].set_trouble("no daemon", true);
        self.daemons[machine] = None;
    }

    /// The daemon of a machine is told to end, and does.
    pub(crate) async fn end(&mut self, machine: usize) {
        self.hosts[machine].set_trouble("no daemon", true);
        let Some(mut daemon) = self.daemons[machine].take() else { return };
        daemon.trigger.fire();
        let mut waited = Duration::ZERO;
        while !daemon.has_ended() {
            assert!(waited < PATIENCE, "the daemon of m{machine} does not end");
            self.wait(MOMENT.max(waited / 2)).await;
            waited += MOMENT.max(waited / 2);
        }
    }

    /// A machine goes down and comes up without its daemon.
    pub(crate) fn reboot(&mut self, machine: usize) {
        self.crash(machine);
        self.hosts[machine].reboot();
        self.safety.rebooted(machine);
    }

    /// Lets everything be done that can be done now.
    pub(crate) async fn settle(&mut self) {
        self.wait(MOMENT).await;
    }

    /// Lets time pass, and looks after each slice of it at what must hold.
    pub(crate) async fn wait(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let slice = left.min(SLICE);
            tokio::time::sleep(slice).await;
            left -= slice;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        self.daemons.iter_mut().flatten().for_each(Daemon::assert_alive);
        let before = self.history.catch_up().await;
        let violations = self.safety.look(&self.hosts, &self.history, before);
        assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
        for (machine, daemon) in self.daemons.iter().enumerate() {
            let seen = daemon.as_ref().map(|daemon| daemon.mirror.snapshot().revision);
            self.safety.note_seen(machine, seen);
        }
    }

    /// A person submits a unit, new or not.
    pub(crate) async fn submit(
        &mut self,
        unit: &str,
        requirement: &str,
        variant: usize,
        desired: TargetState,
    ) {
        let unit = NewUnit { name: name(unit), file: file(requirement, variant), desired };
        let stored = self.registry.put_unit(unit, ExpectUnit::Any).await;
        stored.expect("the store is there and nobody else writes");
        self.settle().await;
    }

    /// A person submits a unit that is to run.
    pub(crate) async fn launch(&mut self, unit: &str, requirement: &str) {
        self.submit(unit, requirement, 0, TargetState::Launched).await;
    }

    /// The record of a unit is overwritten with something that is none.
    pub(crate) async fn damage(&mut self, unit: &str) {
        let key = self.registry.layout().key(&Key::Unit(name(unit)));
        let write = Transaction::new().put(key, "damaged");
        self.registry.store().commit(write).await.expect("the store is there");
        self.settle().await;
    }

    /// Something writes a placement that no engine has decided on.
    pub(crate) async fn place_by_force(&mut self, unit: &str, machine: usize, epoch: u64) {
        let key = Key::Placement(self.hosts[machine].id().clone(), name(unit));
        let value = format!(r#"{{"v":2,"epoch":{epoch}}}"#);
        let write = Transaction::new().put(self.registry.layout().key(&key), value);
        self.stranger.commit(write).await.expect("the store is there");
        self.settle().await;
    }

    /// The machines on which a unit is placed, by their numbers, as it is stored.
    pub(crate) async fn places(&self, unit: &str) -> Vec<usize> {
        let stored = self.stranger.read("").await.expect("the store is there");
        let is_placed = |host: &Host| {
            let key = Key::Placement(host.id().clone(), name(unit));
            let key = self.registry.layout().key(&key);
            stored.entries.iter().any(|entry| entry.key == key)
        };
        (0..self.hosts.len()).filter(|machine| is_placed(&self.hosts[*machine])).collect()
    }

    /// The machines on which a unit is active, by their numbers.
    pub(crate) fn active_on(&self, unit: &str) -> Vec<usize> {
        let runs = |host: &Host| {
            let units = host.units().into_iter().find(|found| found.unit == *unit);
            units.is_some_and(|found| found.state.main_pid.is_some())
        };
        let hosts = self.hosts.iter().enumerate().filter(|(_, host)| runs(host));
        hosts.map(|(machine, _)| machine).collect()
    }

    /// The process of a unit on a machine.
    pub(crate) fn pid(&self, machine: usize, unit: &str) -> Option<u32> {
        let units = self.hosts[machine].units().into_iter();
        units.filter(|found| found.unit == *unit).find_map(|found| found.state.main_pid)
    }

    /// How many calls the service managers have got.
    pub(crate) fn calls(&self) -> usize {
        self.hosts.iter().map(|host| host.events().len()).sum()
    }

    /// The machine on whose behalf an engine leads, if one does.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.safety.leader()
    }
}

impl Daemon {
    pub(crate) fn start(machine: usize, host: &Host) -> Self {
        let registry = Registry::new(Arc::new(host.wire().clone()), Layout::DEFAULT_PREFIX);
        // Each loop has a mirror of its own here. Which of two tasks that wait for one signal wakes
        // first is chance that no seed governs.
        let mirror = Mirror::start(&registry);
        let (trigger, shutdown) = ShutdownTrigger::new();
        let engine = Engine::new(EngineConfig {
            candidate: host.id().clone(),
            ttl: TTL,
            presence_ttl: TTL,
            registry: registry.clone(),
            mirror: Mirror::start(&registry),
            clock: Arc::new(host.clock()),
        });
        let agent = AgentConfig {
            machine: record(machine, host.id()),
            token: host.token(),
            ttl: TTL,
            registry,
            mirror: mirror.clone(),
            manager: Arc::new(host.clone()),
            state: host.notes(),
            clock: Arc::new(host.clock()),
        };
        let mut loops = JoinSet::new();
        let agent = Agent::start(agent, &shutdown);
        loops.spawn(engine.with_presence_of(&agent).run(shutdown));
        loops.spawn(agent.ended());
        Self { loops, trigger, mirror }
    }

    /// Whether all loops have ended; one that panicked hands its panic on.
    fn has_ended(&mut self) -> bool {
        while let Some(ended) = self.loops.try_join_next() {
            ended.expect("a loop ends without a panic");
        }
        self.loops.is_empty()
    }

    /// No loop ends by itself; one that panicked hands its panic on.
    fn assert_alive(&mut self) {
        match self.loops.try_join_next() {
            Some(Err(error)) if error.is_panic() => {
                std::panic::resume_unwind(error.into_panic());
            }
            ended => assert!(ended.is_none(), "a loop ended by itself"),
        }
    }
}

fn record(machine: usize, id: &MachineId) -> MachineRecord {
    let region = if machine.is_multiple_of(2) { "north" } else { "south" };
    MachineRecord {
        metadata: Metadata::from([("region".to_owned(), region.to_owned())]),
        version: "1".to_owned(),
        ..MachineRecord::new(id.clone())
    }
}
