//! A cluster: machines with their daemons around one store, and its users.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent::agent::{accept_any_store, protected_lineage};
use fleet_agent::{Agent, AgentConfig, Engine, EngineConfig, ShutdownTrigger};
use fleet_core::{MachineId, Metadata, TargetState};
use fleet_store::registry::{ExpectUnit, Key, MachineRecord, NewUnit};
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, MemoryStore, Mirror, Registry, Store, Transaction};
use fleet_unitfile::UnitName;
use futures_util::FutureExt as _;
use tokio::task::JoinSet;

use crate::clock;
use crate::history::History;
use crate::host::Host;
use crate::safety::Safety;
use crate::spy::{Author, Authors, Spy};
use crate::units::{file, name};

/// Lease time of machines and leaders.
pub(crate) const TTL: Duration = Duration::from_secs(9);

/// Long enough for everything that is ready, and too short for any timer.
const MOMENT: Duration = Duration::from_millis(1);

/// Time limit for a daemon to end: it may have to finish a request to a slow store.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest time between two safety checks.
const SLICE: Duration = Duration::from_secs(1);

/// Fault: the store has another history than the machine knows.
const OTHER_STORE: &str = "other store";

/// A cluster that is checked as time passes; a violation fails the test.
pub(crate) struct Cluster {
    pub(crate) hosts: Vec<Host>,
    pub(crate) history: History,
    daemons: Vec<Option<Daemon>>,
    /// The users' registry, whose connection to the store never fails.
    pub(crate) registry: Registry,
    /// The users' view of the cluster.
    pub(crate) people: Mirror,
    /// Writes without respect for fleet's rules.
    stranger: Arc<Spy>,
    safety: Safety,
}

/// The tasks of one daemon, which are aborted with it.
pub(crate) struct Daemon {
    loops: JoinSet<()>,
    trigger: ShutdownTrigger,
    /// The agent's mirror.
    pub(crate) mirror: Mirror,
}

impl Cluster {
    /// Starts machines without units: `m0` and so on, alternately in the regions north and south.
    pub(crate) async fn start(machines: usize) -> Self {
        Self::start_with(machines, |_| {}).await
    }

    /// Starts a cluster after configuring its machines.
    pub(crate) async fn start_with(machines: usize, make: impl FnOnce(&[Host])) -> Self {
        clock::begin();
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

    /// Destroys an existing unit.
    pub(crate) async fn destroy(&self, unit: &UnitName) {
        self.registry.destroy(unit, &self.people).await.expect("it is there, and users reach it");
    }

    /// Starts the daemon of a machine, unless it runs.
    pub(crate) fn boot(&mut self, machine: usize) {
        if self.daemons[machine].is_none() {
            self.daemons[machine] = Some(Daemon::start(machine, &self.hosts[machine]));
            self.hosts[machine].set_trouble("no daemon", false);
        }
    }

    /// Kills the daemon of a machine.
    pub(crate) fn crash(&mut self, machine: usize) {
        self.hosts[machine].set_trouble("no daemon", true);
        self.daemons[machine] = None;
    }

    /// Stops the daemon of a machine, and waits for its end.
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

    /// Reboots a machine, without starting its daemon.
    pub(crate) fn reboot(&mut self, machine: usize) {
        self.crash(machine);
        self.hosts[machine].reboot();
        self.safety.rebooted(machine);
    }

    /// Runs everything that is ready to run.
    pub(crate) async fn settle(&mut self) {
        self.wait(MOMENT).await;
    }

    /// Advances the time, with a safety check after each slice.
    pub(crate) async fn wait(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let slice = left.min(SLICE);
            tokio::time::sleep(slice).await;
            left -= slice;
            self.check_safety().await;
        }
    }

    async fn check_safety(&mut self) {
        self.daemons.iter_mut().flatten().for_each(Daemon::assert_alive);
        let before = self.history.catch_up().await;
        let violations = self.safety.check(&self.hosts, &self.history, before);
        assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
        for (machine, daemon) in self.daemons.iter().enumerate() {
            let seen = daemon.as_ref().map(|daemon| daemon.mirror.snapshot().revision);
            self.safety.note_seen(machine, seen);
        }
    }

    /// Submits a unit as a user, new or existing.
    pub(crate) async fn submit(
        &mut self,
        unit: &str,
        requirement: &str,
        variant: usize,
        desired: TargetState,
    ) {
        let unit = NewUnit { name: name(unit), file: file(requirement, variant), desired };
        let stored = self.registry.put_unit(unit, ExpectUnit::Any).await;
        stored.expect("the store is there, without other writers");
        self.settle().await;
    }

    /// Submits a unit to be launched.
    pub(crate) async fn launch(&mut self, unit: &str, requirement: &str) {
        self.submit(unit, requirement, 0, TargetState::Launched).await;
    }

    /// Overwrites the record of a unit with an invalid one.
    pub(crate) async fn damage(&mut self, unit: &str) {
        let key = self.registry.layout().key(&Key::Unit(name(unit)));
        let write = Transaction::new().put(key, "damaged");
        self.registry.store().commit(write).await.expect("the store is there");
        self.settle().await;
    }

    /// Gives the store a lineage, as the first daemon of a store does.
    pub(crate) async fn begin_lineage(&mut self, id: &str) {
        let lineage = id.parse().expect("the lineage is well formed");
        self.registry.lineage(&lineage).await.expect("the store is there");
        self.settle().await;
    }

    /// Replaces the store by an empty one, with a new lineage unless `lineage` is `None`.
    pub(crate) async fn replace_store(&mut self, lineage: Option<&str>) {
        let stored = self.stranger.read("").await.expect("the store is there");
        let key = self.registry.layout().key(&Key::Lineage);
        let mut exchange = Transaction::new();
        for entry in stored.entries.into_iter().filter(|entry| entry.key != key) {
            exchange = exchange.delete(entry.key);
        }
        exchange = match lineage {
            Some(id) => exchange.put(key, format!(r#"{{"v":2,"id":"{id}"}}"#)),
            None => exchange.delete(key),
        };
        self.hosts.iter().for_each(|host| host.set_trouble(OTHER_STORE, true));
        self.stranger.commit(exchange).await.expect("the store is there");
        self.settle().await;
    }

    /// Lets the next daemon of a machine follow any store, as a person does.
    pub(crate) async fn accept_store(&mut self, machine: usize) {
        let host = &self.hosts[machine];
        let notes = host.notes();
        accept_any_store(&*notes, host.id()).await.expect("the state is in memory");
        host.set_trouble(OTHER_STORE, false);
    }

    /// Writes a placement that no engine has decided on.
    pub(crate) async fn place_by_force(&mut self, unit: &str, machine: usize, epoch: u64) {
        let key = Key::Placement(self.hosts[machine].id().clone(), name(unit));
        let value = format!(r#"{{"v":2,"epoch":{epoch}}}"#);
        let write = Transaction::new().put(self.registry.layout().key(&key), value);
        self.stranger.commit(write).await.expect("the store is there");
        self.settle().await;
    }

    /// Returns the machines with a stored placement of the unit, by number.
    pub(crate) async fn places(&self, unit: &str) -> Vec<usize> {
        let stored = self.stranger.read("").await.expect("the store is there");
        let is_placed = |host: &Host| {
            let key = Key::Placement(host.id().clone(), name(unit));
            let key = self.registry.layout().key(&key);
            stored.entries.iter().any(|entry| entry.key == key)
        };
        (0..self.hosts.len()).filter(|machine| is_placed(&self.hosts[*machine])).collect()
    }

    /// Returns the machines on which a unit is active, by number.
    pub(crate) fn active_on(&self, unit: &str) -> Vec<usize> {
        let runs = |host: &Host| {
            let units = host.units().into_iter().find(|found| found.unit == *unit);
            units.is_some_and(|found| found.state.main_pid.is_some())
        };
        let hosts = self.hosts.iter().enumerate().filter(|(_, host)| runs(host));
        hosts.map(|(machine, _)| machine).collect()
    }

    /// Returns the process of a unit on a machine.
    pub(crate) fn pid(&self, machine: usize, unit: &str) -> Option<u32> {
        let units = self.hosts[machine].units().into_iter();
        units.filter(|found| found.unit == *unit).find_map(|found| found.state.main_pid)
    }

    /// Returns the number of calls to all service managers.
    pub(crate) fn calls(&self) -> usize {
        self.hosts.iter().map(|host| host.events().len()).sum()
    }

    /// Returns the machine of the leading engine, if there is one.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.safety.leader()
    }
}

impl Daemon {
    pub(crate) fn start(machine: usize, host: &Host) -> Self {
        let registry = Registry::new(Arc::new(host.wire().clone()), Layout::DEFAULT_PREFIX);
        // Each loop has a mirror of its own here. If two tasks wait for one signal, their wake
        // order is random, and no seed controls it.
        let notes = host.notes();
        let protected = protected_lineage(&*notes, host.id());
        let protected = protected.now_or_never().expect("the state is in memory");
        let mirror = Mirror::start_expecting(&registry, protected);
        let (trigger, shutdown) = ShutdownTrigger::new();
        let own_mirror = Mirror::start(&registry);
        let mut engine = EngineConfig::new(host.id().clone(), registry.clone(), own_mirror);
        (engine.ttl, engine.presence_ttl) = (TTL, TTL);
        engine.clock = Arc::new(host.clock());
        let engine = Engine::new(engine);
        let machine = record(machine, host.id());
        let manager = Arc::new(host.clone());
        let (token, mirror_of_agent) = (host.token(), mirror.clone());
        let mut agent =
            AgentConfig::new(machine, token, registry, mirror_of_agent, manager, host.notes());
        agent.ttl = TTL;
        agent.journals = Some(Arc::new(host.clone()));
        agent.clock = Arc::new(host.clock());
        let mut loops = JoinSet::new();
        let agent = Agent::start(agent, &shutdown);
        loops.spawn(engine.with_presence_of(&agent).run(shutdown));
        loops.spawn(agent.ended());
        Self { loops, trigger, mirror }
    }

    /// Whether all loops have ended; panics are propagated.
    fn has_ended(&mut self) -> bool {
        while let Some(ended) = self.loops.try_join_next() {
            ended.expect("a loop ends without a panic");
        }
        self.loops.is_empty()
    }

    /// Asserts that no loop has ended; panics are propagated.
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
