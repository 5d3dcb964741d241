//! Health checks by an agent with scripted results, in simulated time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::testing::FakeManager;
use fleet_agent::{
    Agent, AgentConfig, Clock, HealthProber, MemoryState, Shutdown, ShutdownTrigger,
};
use fleet_core::health::{Health, HealthTarget};
use fleet_core::{ActiveState, Generation, TargetState, Timestamp, UnitState};
use fleet_store::registry::{ExpectUnit, MachineRecord, NewUnit};
use fleet_store::{MemoryStore, Mirror, Registry};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::time::Instant;

use crate::support::name;
use crate::wait::wait_until;

/// A clock of tokio's time, which tests pause.
struct TokioClock(Instant);

#[async_trait]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.0.elapsed().as_millis();
        Timestamp::from_millis(u64::try_from(elapsed).unwrap())
    }

    async fn sleep_until(&self, at: Timestamp) {
        wait(at.since(self.now())).await;
    }
}

async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A prober with one result for all checks. `None` lets checks hang.
#[derive(Default)]
struct Script {
    result: Mutex<Option<Result<(), String>>>,
    calls: AtomicUsize,
    running: AtomicUsize,
}

impl Script {
    fn set(&self, result: Result<(), &str>) {
        *self.result.lock().unwrap() = Some(result.map_err(str::to_owned));
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

/// Counts a running check, also if it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl HealthProber for Script {
    async fn probe(&self, target: &HealthTarget, timeout: Duration) -> Result<(), String> {
        assert_eq!((target.to_string().as_str(), timeout.as_secs()), ("tcp://127.0.0.1:1", 2));
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        let _running = Running(&self.running);
        let result = self.result.lock().unwrap().clone();
        match result {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
}

/// A machine with its agent. Units are global, so no engine is needed.
struct Machine {
    registry: Registry,
    mirror: Mirror,
    manager: Arc<FakeManager>,
    script: Arc<Script>,
    clock: Arc<TokioClock>,
    /// The running daemon. Dropping it ends all its tasks.
    daemon: Option<(ShutdownTrigger, Agent)>,
}

const CHECK: &str = "HealthCheck=tcp://127.0.0.1:1\nHealthTimeout=2s\nHealthInterval=2s\n";

impl Machine {
    async fn start() -> Self {
        let registry = Registry::new(Arc::new(MemoryStore::new()), "/health");
        let mirror = Mirror::start(&registry);
        let (manager, script) = (FakeManager::new(), Arc::new(Script::default()));
        let clock = Arc::new(TokioClock(Instant::now()));
        let mut machine = Self { registry, mirror, manager, script, clock, daemon: None };
        machine.start_daemon().await;
        machine
    }

    async fn start_daemon(&mut self) {
        let (trigger, shutdown): (_, Shutdown) = ShutdownTrigger::new();
        let record = MachineRecord::new("m1".parse().unwrap());
        let (mirror, manager) = (Mirror::start(&self.registry), self.manager.clone());
        let (registry, state) = (self.registry.clone(), Arc::new(MemoryState::default()));
        let mut config = AgentConfig::new(record, "token", registry, mirror, manager, state);
        (config.clock, config.prober) = (self.clock.clone(), self.script.clone());
        let mut agent = Agent::start(config, &shutdown);
        agent.joined().await;
        self.daemon = Some((trigger, agent));
    }

    async fn put(&self, unit: &str, options: &str) {
        let text = format!("[Service]\nExecStart=/bin/{unit}\n[X-Fleet]\nGlobal=true\n{options}");
        let file = UnitFile::parse(text).unwrap();
        let unit = NewUnit { name: name(unit), file, desired: TargetState::Launched };
        self.registry.put_unit(unit, ExpectUnit::Any).await.unwrap();
    }

    fn state(&self, unit: &str) -> Option<UnitState> {
        self.mirror.snapshot().state(unit, "m1").map(|state| (**state).clone())
    }

    /// Waits until this health is published for the active unit.
    async fn wait_health(&self, unit: &str, expected: Option<Health>) -> UnitState {
        let mut found = None;
        wait_until(&format!("{unit}: {expected:?}"), async || {
            let state = self.state(unit);
            found = state.filter(|it| it.systemd.active == ActiveState::Active);
            found.as_ref().is_some_and(|state| state.health == expected)
        })
        .await;
        found.unwrap()
    }

    async fn wait_inactive(&self, unit: &str) -> UnitState {
        let mut found = None;
        wait_until(&format!("{unit} has ended"), async || {
            found = self.state(unit).filter(|it| it.systemd.active.has_ended());
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

fn unhealthy(message: &str) -> Option<Health> {
    Some(Health::Unhealthy { message: message.to_owned() })
}

#[tokio::test(start_paused = true)]
async fn health_is_published_when_it_changes() {
    let machine = Machine::start().await;
    machine.script.set(Err("connection refused"));
    machine.put("a.service", CHECK).await;
    machine.put("plain.service", "").await;
    machine.wait_health("plain.service", None).await;
    machine.wait_health("a.service", Some(Health::Starting)).await;
    let began = machine.clock.now();
    assert_eq!(machine.script.calls(), 0, "the first check waits a moment");
    machine.wait_health("a.service", unhealthy("connection refused")).await;
    assert_eq!(machine.script.calls(), 3);
    let took = machine.clock.now().since(began).as_secs();
    assert!((4..=6).contains(&took), "{took}");
    // The message stays, so that an unhealthy unit causes no writes.
    machine.script.set(Err("503"));
    let revision = machine.mirror.snapshot().revision;
    wait_until("checks go on", async || machine.script.calls() == 10).await;
    assert_eq!(machine.mirror.snapshot().revision, revision);
    machine.script.set(Ok(()));
    machine.wait_health("a.service", Some(Health::Healthy)).await;
    let revision = machine.mirror.snapshot().revision;
    wait_until("checks go on", async || machine.script.calls() == 20).await;
    assert_eq!(machine.mirror.snapshot().revision, revision);
}

#[tokio::test(start_paused = true)]
async fn new_run_begins_with_starting() {
    let mut machine = Machine::start().await;
    machine.script.set(Ok(()));
    machine.put("a.service", CHECK).await;
    machine.wait_health("a.service", Some(Health::Healthy)).await;
    // A requested restart.
    machine.registry.request_restart(&name("a.service")).await.unwrap();
    let mut first = None;
    wait_until("the new run is published", async || {
        let state = machine.state("a.service").filter(|it| it.generation > Generation(0));
        first = state.filter(|it| it.systemd.active == ActiveState::Active);
        first.is_some()
    })
    .await;
    assert_eq!(first.unwrap().health, Some(Health::Starting));
    machine.wait_health("a.service", Some(Health::Healthy)).await;
    // A new daemon begins again too.
    machine.daemon = None;
    machine.script.set(Err("down"));
    machine.start_daemon().await;
    machine.wait_health("a.service", Some(Health::Starting)).await;
    machine.wait_health("a.service", unhealthy("down")).await;
}

#[tokio::test(start_paused = true)]
async fn end_of_a_unit_ends_its_checks() {
    let machine = Machine::start().await;
    machine.script.set(Ok(()));
    machine.put("a.service", CHECK).await;
    machine.put("b.service", CHECK).await;
    for unit in ["a.service", "b.service"] {
        machine.wait_health(unit, Some(Health::Healthy)).await;
    }
    machine.manager.crash(&name("a.service"));
    assert_eq!(machine.wait_inactive("a.service").await.health, None);
    let unit: UnitName = name("b.service");
    machine.registry.set_desired(&unit, TargetState::Loaded).await.unwrap();
    assert_eq!(machine.wait_inactive("b.service").await.health, None);
    let calls = machine.script.calls();
    wait(Duration::from_secs(600)).await;
    assert_eq!(machine.script.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn concurrent_checks_are_limited_and_aborted() {
    let machine = Machine::start().await;
    let units: Vec<String> = (0..20).map(|number| format!("u{number}.service")).collect();
    for unit in &units {
        machine.put(unit, CHECK).await;
    }
    wait_until("the limit is reached", async || machine.script.running() == 16).await;
    wait(Duration::from_secs(600)).await;
    assert_eq!((machine.script.running(), machine.script.calls()), (16, 16));
    for unit in &units {
        machine.registry.set_desired(&name(unit), TargetState::Loaded).await.unwrap();
    }
    wait_until("all checks are aborted", async || machine.script.running() == 0).await;
}
