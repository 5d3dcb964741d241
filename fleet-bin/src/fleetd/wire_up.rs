//! Assembles a daemon. Only this module selects the store and the service manager.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::journal::JournalReader;
use fleet_agent::native::{Tracking, check_unit};
use fleet_agent::watchdog::{Heartbeat, Watchdog};
use fleet_agent::{
    Agent, AgentConfig, DiskState, Engine, EngineConfig, NativeManager, ServiceError,
    ServiceManager, Shutdown, ShutdownTrigger, SystemdManager,
};
use fleet_core::manager::{ManagerInfo, ManagerVerdict};
use fleet_core::{Strictness, Timestamp};
use fleet_http::{Api, Listener, Metrics, Peers, ServerLimits, serve_with_limits};
use fleet_store::mirror::StoreIdentity;
use fleet_store::registry::{Lineage, MachineRecord};
use fleet_store::{EmbeddedStore, Layout, MemoryStore, Mirror, Registry, Store, StoreError};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::task::JoinSet;

use super::config::{Config, ServiceManagerKind, StoreKind};
#[cfg(feature = "etcd")]
use super::etcd;
use super::journals::{LocalJournals, LocalMachine};
use super::loop_metrics::EngineMetrics;
use super::offline::StorePolicy;
use super::other_managers::{EarlierManager, refuse_running_units, remember};
use super::{Context as _, StartError, identity, loop_metrics, other_managers};
#[cfg(feature = "etcd")]
use fleet_store::EtcdStore;

/// Components of a daemon.
pub(crate) struct DaemonParts {
    pub(crate) store: StoreKind,
    pub(crate) service_manager: ServiceManagerKind,
    pub(crate) data_dir: PathBuf,
    pub(crate) machines: Vec<MachineSetup>,
    pub(crate) listeners: Vec<Listener>,
    /// Clients of other daemons.
    pub(crate) peers: Peers,
    pub(crate) engine: bool,
    pub(crate) agent_ttl: Duration,
    pub(crate) engine_ttl: Duration,
    pub(crate) token_limit: u16,
    pub(crate) strictness: Strictness,
}

/// A machine managed by this daemon.
pub(crate) struct MachineSetup {
    pub(crate) machine: MachineRecord,
    pub(crate) token: String,
    /// Directory of its service manager.
    pub(crate) directory: PathBuf,
    /// Directory for files that are only valid until the next boot.
    pub(crate) runtime_dir: PathBuf,
    pub(crate) store_policy: StorePolicy,
}

impl MachineSetup {
    fn state(&self) -> DiskState {
        DiskState::new(&self.directory, &self.runtime_dir)
    }
}

/// A running daemon.
pub(crate) struct RunningDaemon {
    pub(crate) registry: Registry,
    pub(crate) mirror: Mirror,
    managers: Vec<Manager>,
    agents: Vec<Agent>,
    loops: JoinSet<()>,
    watchdog: Watchdog,
    shutdown: ShutdownTrigger,
}

impl DaemonParts {
    /// Starts all components. If one of them fails to start, stops the others again. Units that
    /// already run keep running.
    pub(crate) async fn start(self) -> Result<RunningDaemon, StartError> {
        let metrics = Metrics::new();
        let registry = open_registry(&self.store, &self.data_dir).await?;
        let store = metrics.metered_store(registry.store().clone());
        let registry = Registry::new(store, registry.layout().prefix());
        let managers = self.open_managers().await?; // locks the directories of the machines
        let protected = self.protected_lineage().await?;
        if protected.is_none() {
            identity::ensure_lineage(&registry).await?;
        }
        let mirror = Mirror::start_expecting(&registry, protected);
        let (trigger, shutdown) = ShutdownTrigger::new();
        let mut running = RunningDaemon {
            agents: self.start_agents(&registry, &mirror, &managers, &shutdown),
            registry,
            mirror,
            managers,
            loops: JoinSet::new(),
            watchdog: Watchdog::default(),
            shutdown: trigger,
        };
        let counters = EngineMetrics::new(&metrics);
        self.start_engine(&mut running, &shutdown, counters);
        let agents = running.agents.iter().map(|agent| agent.metrics().clone()).collect();
        let machines = self.machines.iter().map(|setup| setup.machine.id.clone()).collect();
        loop_metrics::register_agents(&metrics, agents, running.mirror.clone(), machines);
        self.serve(&mut running, &shutdown, metrics);
        Ok(running)
    }

    /// Returns the lineage that the store must continue. Only a daemon with one machine has one.
    async fn protected_lineage(&self) -> Result<Option<Lineage>, StartError> {
        for setup in &self.machines {
            let (state, machine) = (setup.state(), &setup.machine.id);
            if let Some(lineage) = setup.store_policy.protected_lineage(&state, machine).await? {
                return Ok(Some(lineage));
            }
        }
        Ok(None)
    }

    async fn open_managers(&self) -> Result<Vec<Manager>, StartError> {
        let opened = join_all(self.machines.iter().map(|setup| self.open_manager(setup)));
        let opened: Vec<Manager> = opened.await.into_iter().collect::<Result<_, _>>()?;
        // All machines of a daemon use the same method, so it is logged once.
        if let Some(tracking) = opened.iter().find_map(Manager::tracking) {
            tracing::info!("tracking processes of units {tracking}");
        }
        Ok(opened)
    }

    async fn open_manager(&self, setup: &MachineSetup) -> Result<Manager, StartError> {
        let selected = EarlierManager::of(&self.service_manager)?;
        refuse_running_units(&setup.directory, &selected).await?;
        let manager = self.open_selected_manager(setup).await?;
        remember(&setup.directory, &selected);
        Ok(manager)
    }

    async fn open_selected_manager(&self, setup: &MachineSetup) -> Result<Manager, StartError> {
        match &self.service_manager {
            ServiceManagerKind::Native(settings) => {
                let manager = NativeManager::open(settings.config(&setup.directory)).await;
                let what =
                    || format!("cannot load the state of units in {}", setup.directory.display());
                Ok(Manager::Native(manager.context(what)?))
            }
            ServiceManagerKind::FleetInit(socket) => {
                Ok(Manager::other(other_managers::open_fleet_init(socket, &setup.directory).await?))
            }
            ServiceManagerKind::Systemd(settings) => {
                let manager = SystemdManager::open(other_managers::systemd_config(settings)?);
                let what = || "cannot use systemd to run units".to_owned();
                Ok(Manager::other(manager.await.context(what)?))
            }
        }
    }

    fn start_agents(
        &self,
        registry: &Registry,
        mirror: &Mirror,
        managers: &[Manager],
        shutdown: &Shutdown,
    ) -> Vec<Agent> {
        let agents = self.machines.iter().zip(managers).map(|(setup, manager)| {
            let (machine, token) = (setup.machine.clone(), setup.token.clone());
            let (registry, mirror) = (registry.clone(), mirror.clone());
            let LocalMachine { manager, journals } = manager.local_machine();
            let state = Arc::new(setup.state());
            let mut config = AgentConfig::new(machine, token, registry, mirror, manager, state);
            config.ttl = self.agent_ttl;
            config.journals = Some(journals);
            Agent::start(config, shutdown)
        });
        agents.collect()
    }

    fn start_engine(
        &self,
        running: &mut RunningDaemon,
        shutdown: &Shutdown,
        observer: EngineMetrics,
    ) {
        let Some(first) = self.machines.first().filter(|_| self.engine) else { return };
        let (registry, mirror) = (running.registry.clone(), running.mirror.clone());
        let mut config = EngineConfig::new(first.machine.id.clone(), registry, mirror);
        (config.ttl, config.presence_ttl) = (self.engine_ttl, self.agent_ttl);
        let engine = Engine::new(config);
        let engine = running.agents.iter().take(1).fold(engine, Engine::with_presence_of);
        let engine = engine.with_observer(Arc::new(observer));
        let engine = running.watchdog.monitor(&engine.heartbeat(), engine.run(shutdown.clone()));
        running.loops.spawn(engine);
    }

    fn serve(self, running: &mut RunningDaemon, shutdown: &Shutdown, metrics: Metrics) {
        let ids = self.machines.iter().map(|setup| setup.machine.id.clone());
        let machines = ids.zip(running.managers.iter().map(Manager::local_machine));
        let api = Api::new(running.registry.clone(), running.mirror.clone())
            .with_journals(Arc::new(LocalJournals::new(machines)))
            .with_peers(self.peers)
            .with_metrics(metrics)
            .with_page_size(self.token_limit)
            .with_strictness(self.strictness)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_join_problem(running.join_problem())
            .with_unit_checker(Arc::new(check_unit_file));
        let router = api.router();
        let limits = limits(self.listeners.len());
        for listener in self.listeners {
            let (router, mut shutdown) = (router.clone(), shutdown.clone());
            let done = async move { shutdown.wait().await };
            let serving = serve_with_limits(listener, router, limits, done);
            let serving = running.watchdog.monitor(&Heartbeat::new("api"), serving);
            running.loops.spawn(serving);
        }
    }
}

/// Checks a unit file as this service manager does. systemd only ignores what it does not know.
fn check_unit_file(manager: &ManagerInfo, unit: &UnitName, file: &UnitFile) -> ManagerVerdict {
    match manager {
        ManagerInfo::Systemd => ManagerVerdict::default(),
        ManagerInfo::Native(settings) => check_unit(settings, unit, file),
    }
}

/// Returns the limits for clients of a listener. All listeners together use at most half of the
/// open file limit. The other half remains for the store, the units and their logs.
fn limits(listeners: usize) -> ServerLimits {
    let limits = ServerLimits::default();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok());
    let most = half.map_or(limits.connections, |half| half / listeners.max(1));
    if most < limits.connections {
        tracing::info!(
            "each address of the API accepts at most {most} connections, because fleetd can open \
             only {} files: raise LimitNOFILE= of the service of fleetd",
            files.unwrap_or_default()
        );
    }
    limits.with_connections(limits.connections.min(most))
}

/// Service manager of a machine.
enum Manager {
    /// A manager inside this daemon, which can stop its units when the daemon ends.
    Native(Arc<NativeManager>),
    Other {
        manager: Arc<dyn ServiceManager>,
        journals: Arc<dyn JournalReader>,
    },
}

impl Manager {
    fn other<M: ServiceManager + JournalReader>(manager: Arc<M>) -> Self {
        Self::Other { manager: manager.clone(), journals: manager }
    }

    fn local_machine(&self) -> LocalMachine {
        let (manager, journals): (_, Arc<dyn JournalReader>) = match self {
            Self::Native(manager) => (self.shared(), manager.clone()),
            Self::Other { journals, .. } => (self.shared(), journals.clone()),
        };
        LocalMachine { manager, journals }
    }

    fn shared(&self) -> Arc<dyn ServiceManager> {
        match self {
            Self::Native(manager) => manager.clone(),
            Self::Other { manager, .. } => manager.clone(),
        }
    }

    /// Returns the process tracking method, if this daemon runs the units itself.
    fn tracking(&self) -> Option<Tracking> {
        match self {
            Self::Native(manager) => Some(manager.tracking()),
            Self::Other { .. } => None,
        }
    }

    async fn end_units(&self) -> Result<(), ServiceError> {
        match self {
            Self::Native(manager) => manager.shutdown().await,
            Self::Other { .. } => Ok(()), // The units belong to the machine, not to the daemon
        }
    }
}

/// Reads and checks the files that the settings of the store name.
pub(crate) fn check_store_files(kind: &StoreKind) -> Result<(), StartError> {
    match kind {
        #[cfg(feature = "etcd")]
        StoreKind::Etcd(settings) => etcd::config(settings).map(drop),
        StoreKind::Embedded | StoreKind::Memory => Ok(()),
    }
}

/// Opens the configured store.
pub(crate) async fn open_registry(
    kind: &StoreKind,
    data_dir: &Path,
) -> Result<Registry, StartError> {
    let store: Arc<dyn Store> = match kind {
        #[cfg(feature = "etcd")]
        StoreKind::Etcd(settings) => {
            let config = etcd::config(settings)?;
            Arc::new(
                EtcdStore::new(&config)
                    .context(|| "cannot set up the connection to etcd".to_owned())?,
            )
        }
        StoreKind::Memory => Arc::new(MemoryStore::new()),
        StoreKind::Embedded => {
            let path = Config::store_file(data_dir);
            let opened = EmbeddedStore::open(&path).await;
            let names_it = matches!(opened, Err(StoreError::InUse { .. } | StoreError::Format(_)));
            let name = if names_it { String::new() } else { format!(" {}", path.display()) };
            Arc::new(opened.context(|| format!("cannot open the store{name}"))?)
        }
    };
    let prefix = match kind {
        #[cfg(feature = "etcd")]
        StoreKind::Etcd(settings) => &settings.key_prefix,
        StoreKind::Embedded | StoreKind::Memory => Layout::DEFAULT_PREFIX,
    };
    Ok(Registry::new(store, prefix))
}

impl RunningDaemon {
    /// Waits until all machines of this daemon are present in the cluster.
    pub(crate) async fn joined(&mut self) {
        for agent in &mut self.agents {
            agent.joined().await;
        }
    }

    /// Returns a function that returns why a machine of this daemon could not join the cluster.
    fn join_problem(&self) -> Arc<dyn Fn() -> Option<String> + Send + Sync> {
        let problems: Vec<_> = self.agents.iter().map(Agent::join_problem).collect();
        Arc::new(move || problems.iter().find_map(|problem| problem.borrow().clone()))
    }

    /// Updates the record of this daemon's machine.
    pub(crate) fn describe(&self, machine: &MachineRecord) {
        self.agents.iter().for_each(|agent| agent.describe(machine.clone()));
    }

    /// Pings all loops. Returns the names of those that have not responded to the previous ping, or
    /// that have been busy for too long.
    pub(crate) fn stalled(&self, now: Timestamp) -> Vec<&'static str> {
        let agents = self.agents.iter().map(Agent::watchdog);
        agents.chain([&self.watchdog]).flat_map(|watchdog| watchdog.check(now)).collect()
    }

    /// Returns a status text.
    pub(crate) fn status(&self) -> String {
        let present = self.agents.iter().all(Agent::is_present);
        let (machines, units) = {
            let snapshot = self.mirror.snapshot();
            (snapshot.machines().len(), snapshot.units().len())
        };
        if self.mirror.store_identity() == StoreIdentity::Other {
            return "the store was emptied or replaced; running units are left alone; restore it, \
                    or accept it with \"fleetd accept-store\", then restart fleetd"
                .to_owned();
        }
        match (present, self.mirror.is_current()) {
            (true, true) => format!("in the cluster (machines: {machines}, units: {units})"),
            (false, true) => match (self.join_problem())() {
                None => "not yet in the cluster; running units are left alone".to_owned(),
                Some(problem) => {
                    format!("not in the cluster; running units are left alone; {problem}")
                }
            },
            (_, false) => "store unreachable; running units are left alone".to_owned(),
        }
    }

    /// Waits until the engine, a server or an agent ends without a shutdown. Returns the error with
    /// which the daemon must then exit, because it is useless without that component.
    pub(crate) async fn wait_failed(&mut self) -> StartError {
        let loops = async {
            match self.loops.join_next().await {
                Some(result) => result,
                None => std::future::pending().await,
            }
        };
        let agents: FuturesUnordered<_> = self.agents.iter_mut().map(Agent::broken).collect();
        let agents = async {
            match agents.into_future().await {
                (Some(result), _) => result,
                (None, _) => std::future::pending().await,
            }
        };
        let result = tokio::select! { result = loops => result, result = agents => result };
        match result {
            Err(error) => StartError::new(format!(
                "fleetd must exit, because one of its tasks failed: {error}"
            )),
            Ok(()) => {
                StartError::new("fleetd must exit, because one of its tasks ended unexpectedly")
            }
        }
    }

    /// Stops all loops, and leaves the units running.
    pub(crate) async fn end(mut self) {
        self.end_loops().await;
    }

    /// Stops all units of this daemon's machines, then all loops.
    pub(crate) async fn end_with_units(mut self) -> Result<(), StartError> {
        self.shutdown.fire();
        self.end_agents().await; // Otherwise they would restart the units stopped here
        let ended = join_all(self.managers.iter().map(Manager::end_units)).await;
        self.end_loops().await;
        let ended: Result<(), _> = ended.into_iter().collect();
        ended.context(|| "cannot stop all units".to_owned())
    }

    async fn end_loops(&mut self) {
        self.shutdown.fire();
        self.end_agents().await;
        while let Some(result) = self.loops.join_next().await {
            if let Err(error) = result {
                tracing::error!(%error, "a task of fleetd failed while it was shutting down");
            }
        }
        self.mirror.shutdown();
    }

    async fn end_agents(&mut self) {
        for agent in self.agents.drain(..) {
            agent.ended().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::NativeSettings;
    use super::*;

    #[tokio::test]
    async fn failed_task_is_reported() {
        let wiring = DaemonParts {
            store: StoreKind::Memory,
            service_manager: ServiceManagerKind::Native(NativeSettings::default()),
            data_dir: PathBuf::new(),
            machines: Vec::new(),
            listeners: Vec::new(),
            peers: Peers::default(),
            engine: false,
            agent_ttl: Duration::from_secs(1),
            engine_ttl: Duration::from_secs(1),
            token_limit: 1,
            strictness: Strictness::Refuse,
        };
        let mut running = wiring.start().await.unwrap();
        running.loops.spawn(async { panic!("injected by the test") });
        let error = running.wait_failed().await;
        assert!(
            error.to_string().starts_with("fleetd must exit, because one of its tasks failed: "),
            "{error}"
        );
        running.end().await;
    }
}
