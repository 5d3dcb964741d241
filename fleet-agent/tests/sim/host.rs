//! One machine: its service manager, its connection to the store, and a record of all calls.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::journal::{Journal, JournalReader};
use fleet_agent::testing::{Call, FakeManager};
use fleet_agent::{
    ChangeReceiver, Clock as _, Drift, ManagedUnit, MemoryState, ServiceError, ServiceManager,
};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation, KnownUnit, MachineId, Revision};
use fleet_store::testing::FaultyStore;
use fleet_store::{MemoryStore, Store as _};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::FutureExt as _;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::SimClock;
use crate::jobs;
use crate::spy::Wire;
use crate::units::{self, STOP_LIMIT, STOPPED};

/// A call to the service manager, with the state at that time.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) call: Call,
    /// Revision of the store.
    pub(crate) revision: Revision,
    /// Whether the store was out of reach of the machine.
    pub(crate) away: bool,
    /// The unit in the service manager.
    pub(crate) known: Option<KnownUnit>,
    /// Whether this starts a unit that must not run twice, and it was running on another machine.
    pub(crate) twice: bool,
    /// Whether it was refused. A call that takes time counts as accepted.
    pub(crate) refused: bool,
}

/// A machine. It outlives its daemons, and their accepted calls continue. Cloning gives another
/// handle.
#[derive(Clone)]
pub(crate) struct Host(Arc<Shared>);

struct Shared {
    id: MachineId,
    fake: Arc<FakeManager>,
    wire: Wire,
    store: Arc<MemoryStore>,
    /// Its disk.
    notes: Arc<MemoryState>,
    state: Mutex<State>,
}

struct State {
    events: Vec<Event>,
    jobs: Vec<AbortHandle>,
    troubles: BTreeSet<String>,
    well_since: Instant,
    boots: usize,
    /// Number of listings of all units.
    listings: usize,
    /// Rate of its clock, in thousandths.
    rate: u32,
    /// Milliseconds by which its wall clock is ahead.
    ahead: Arc<AtomicI64>,
    /// The other machines, if units are checked for running twice.
    others: Vec<Arc<FakeManager>>,
    /// Units whose loaded variant has a behaviour of its own.
    scripted: BTreeSet<UnitName>,
}

/// Fault: the store is out of reach.
const AWAY: &str = "away";
/// Fault: reloads of the service manager fail.
const NO_RELOAD: &str = "no reload";
/// Fault: the service manager does not limit stops.
const NO_LIMIT: &str = "no limit";
/// Fault: listings of the service manager fail.
const NO_LIST: &str = "no list";

impl Host {
    pub(crate) fn new(id: MachineId, link: FaultyStore, store: Arc<MemoryStore>) -> Self {
        let state = State {
            events: Vec::new(),
            jobs: Vec::new(),
            troubles: BTreeSet::new(),
            well_since: Instant::now(),
            boots: 1,
            listings: 0,
            rate: 1000,
            ahead: Arc::default(),
            others: Vec::new(),
            scripted: BTreeSet::new(),
        };
        let (fake, state, wire) = (FakeManager::new(), Mutex::new(state), Wire::new(link));
        let notes = Arc::default();
        Self(Arc::new(Shared { id, fake, wire, store, notes, state }))
    }

    pub(crate) fn id(&self) -> &MachineId {
        &self.0.id
    }

    /// Returns the fake service manager, for queries and interference.
    pub(crate) fn fake(&self) -> &FakeManager {
        &self.0.fake
    }

    /// Returns the machine's connection to the store.
    pub(crate) fn wire(&self) -> &Wire {
        &self.0.wire
    }

    /// Returns the fault injector of that connection.
    pub(crate) fn link(&self) -> &FaultyStore {
        self.0.wire.link()
    }

    /// Identifies this boot of the machine.
    pub(crate) fn token(&self) -> String {
        format!("{}, boot {}", self.0.id, self.lock().boots)
    }

    /// Returns the state that its daemons leave to each other.
    pub(crate) fn notes(&self) -> Arc<MemoryState> {
        self.0.notes.clone()
    }

    /// Sets the rate of its clock for later daemons.
    pub(crate) fn set_rate(&self, rate: u32) {
        self.lock().rate = rate;
    }

    /// Sets its wall clock, relative to the right time.
    pub(crate) fn set_wall(&self, seconds: i64) {
        self.lock().ahead.store(seconds * 1000, Ordering::Relaxed);
    }

    /// Checks from now on that protected units do not run twice.
    pub(crate) fn watch_others(&self, hosts: &[Self]) {
        let others = hosts.iter().filter(|host| host.id() != self.id());
        self.lock().others = others.map(|host| host.0.fake.clone()).collect();
    }

    /// Whether a call starts a protected unit that runs elsewhere.
    fn is_twice(&self, call: &Call) -> bool {
        let (Call::Start(unit, _) | Call::Restart(unit, _)) = call else { return false };
        let runs = |other: &Arc<FakeManager>| {
            let found = other.get(unit).now_or_never().expect("a fake answers at once");
            found.is_ok_and(|found| found.is_some_and(|found| found.state.main_pid.is_some()))
        };
        STOPPED.contains(&unit.as_str()) && self.lock().others.clone().iter().any(runs)
    }

    /// Kills a stopping unit after its timeout, as a service manager does.
    fn limit_stop(&self, unit: &UnitName) {
        if STOPPED.contains(&unit.as_str()) && !self.lock().troubles.contains(NO_LIMIT) {
            let (fake, unit, clock) = (self.0.fake.clone(), unit.clone(), self.clock());
            let limit = async move {
                clock.sleep(STOP_LIMIT).await;
                fake.release(&unit);
            };
            self.note_job(tokio::spawn(limit).abort_handle());
        }
    }

    /// Makes later starts of a unit behave as the variant that was loaded.
    fn follow_variant(&self, unit: &UnitName, file: &UnitFile) {
        let behaviour = units::behaviour(file);
        let scripted = &mut self.lock().scripted;
        let was_scripted = match behaviour {
            Some(_) => !scripted.insert(unit.clone()),
            None => scripted.remove(unit),
        };
        if was_scripted || behaviour.is_some() {
            self.0.fake.set_behaviour(unit, behaviour.unwrap_or_default());
        }
    }

    /// Returns the clock of its daemons.
    pub(crate) fn clock(&self) -> SimClock {
        let (rate, ahead) = {
            let state = self.lock();
            (state.rate, state.ahead.clone())
        };
        SimClock::new(rate, self.token(), ahead)
    }

    /// Reboots the machine: its units and pending calls are gone.
    pub(crate) fn reboot(&self) {
        let mut state = self.lock();
        state.boots += 1;
        state.jobs.drain(..).for_each(|job| job.abort());
        drop(state);
        self.0.fake.reboot();
    }

    /// Returns all calls so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Returns the number of listings of all units.
    pub(crate) fn listings(&self) -> usize {
        self.lock().listings
    }

    /// Returns the units that the service manager knows.
    pub(crate) fn units(&self) -> Vec<ManagedUnit> {
        let units = self.0.fake.list().now_or_never();
        units.expect("a fake answers at once").expect("a fake does not refuse to answer")
    }

    /// Disconnects the machine from the store, or connects it again.
    pub(crate) fn set_unreachable(&self, away: bool) {
        self.link().set_unreachable(away);
        self.set_trouble(AWAY, away);
    }

    /// Makes reloads fail from now on, or succeed again.
    pub(crate) fn refuse_reloads(&self, refuse: bool) {
        self.set_trouble(NO_RELOAD, refuse);
    }

    /// Lets stops take any time from now on, or limits them again.
    pub(crate) fn limit_no_stop(&self, endless: bool) {
        self.set_trouble(NO_LIMIT, endless);
    }

    /// Makes listings fail from now on, or succeed again.
    pub(crate) fn refuse_lists(&self, refuse: bool) {
        self.set_trouble(NO_LIST, refuse);
    }

    /// Records a fault of the machine, or its end.
    pub(crate) fn set_trouble(&self, trouble: &str, lasts: bool) {
        let mut state = self.lock();
        if lasts {
            state.troubles.insert(trouble.to_owned());
        } else {
            state.troubles.remove(trouble);
        }
        state.well_since = Instant::now();
    }

    /// Ends all faults. The daemon has to be started separately.
    pub(crate) fn heal(&self) {
        self.set_unreachable(false);
        self.link().set_delay(Duration::ZERO);
        self.link().fail_next(0);
        self.link().lose_responses(0);
        self.link().lose_requests(0);
        self.set_wall(0);
        for unit in units::all().into_iter().chain(jobs::names()) {
            self.0.fake.release(&unit);
            self.0.fake.clear_failures(&unit);
        }
        self.lock().troubles.clear();
        self.disturb();
    }

    /// Records an event from which the machine needs a moment to recover.
    pub(crate) fn disturb(&self) {
        self.lock().well_since = Instant::now();
    }

    /// Whether the machine has had no fault for at least this time.
    pub(crate) fn is_well_for(&self, time: Duration) -> bool {
        let state = self.lock();
        state.troubles.is_empty() && state.well_since.elapsed() >= time
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_job(&self, job: AbortHandle) {
        let jobs = &mut self.lock().jobs;
        jobs.retain(|job| !job.is_finished());
        jobs.push(job);
    }

    async fn known(&self, unit: &UnitName) -> Option<KnownUnit> {
        let found = self.0.fake.get(unit).await.expect("a fake does not refuse to answer");
        found.map(|unit| unit.known)
    }

    async fn record(&self, call: Call, known: Option<KnownUnit>, refused: bool) {
        let listing = self.0.store.read("nothing").await;
        let revision = listing.expect("a store in memory can be read").revision;
        let twice = self.is_twice(&call);
        let mut state = self.lock();
        let away = state.troubles.contains(AWAY);
        state.events.push(Event { call, revision, away, known, twice, refused });
    }

    /// Runs a daemon's call, which continues if its caller is dropped.
    async fn job<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let job = tokio::spawn(work);
        self.note_job(job.abort_handle());
        match job.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => std::future::pending().await, // the machine went down meanwhile
        }
    }

    /// Runs a call about one unit.
    async fn unit_job<F>(
        &self,
        unit: &UnitName,
        call: Call,
        work: impl FnOnce(Arc<FakeManager>, UnitName) -> F + Send + 'static,
    ) -> Result<(), ServiceError>
    where
        F: Future<Output = Result<(), ServiceError>> + Send,
    {
        let (host, unit) = (self.clone(), unit.clone());
        let job = async move {
            let known = host.known(&unit).await;
            host.record(call, known, false).await;
            work(host.0.fake.clone(), unit).await
        };
        self.job(job).await
    }
}

#[async_trait]
impl ServiceManager for Host {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let (host, unit, file) = (self.clone(), unit.clone(), file.clone());
        let job = async move {
            let known = host.known(&unit).await;
            let result = host.0.fake.load(&unit, &file, epoch).await;
            if result.is_ok() {
                host.follow_variant(&unit, &file);
            }
            let call = Call::Load { unit, hash: file.hash(), epoch };
            host.record(call, known, result.is_err()).await;
            result
        };
        self.job(job).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        let refused = self.lock().troubles.contains(NO_RELOAD);
        self.record(Call::Reload, None, refused).await;
        if refused {
            return Err(ServiceError::Unavailable("the test wants it so".to_owned()));
        }
        self.0.fake.reload().await
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let call = Call::Unload(unit.clone());
        self.limit_stop(unit);
        self.unit_job(unit, call, |fake, unit| async move { fake.unload(&unit).await }).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let call = Call::Start(unit.clone(), generation);
        let start = move |fake: Arc<FakeManager>, unit: UnitName| async move {
            fake.start(&unit, generation).await
        };
        self.unit_job(unit, call, start).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let call = Call::Restart(unit.clone(), generation);
        self.limit_stop(unit);
        let restart = move |fake: Arc<FakeManager>, unit: UnitName| async move {
            fake.restart(&unit, generation).await
        };
        self.unit_job(unit, call, restart).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let call = Call::Stop(unit.clone());
        self.limit_stop(unit);
        self.unit_job(unit, call, |fake, unit| async move { fake.stop(&unit).await }).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.0.fake.get(unit).await
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.lock().listings += 1;
        if self.lock().troubles.contains(NO_LIST) {
            return Err(ServiceError::Unavailable("the test wants it so".to_owned()));
        }
        self.0.fake.list().await
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        self.0.fake.drift(unit).await
    }

    async fn stop_timeout(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        self.0.fake.stop_timeout(unit).await
    }

    fn changes(&self) -> ChangeReceiver {
        self.0.fake.changes()
    }
}

#[async_trait]
impl JournalReader for Host {
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        self.0.fake.journal(unit, query).await
    }
}
