//! Test server on a memory store. Tests play the daemon's agent and engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::{JournalQuery, Since};
use fleet_core::unit::LoadState;
use fleet_core::{
    ActiveState, Epoch, Generation, MachineId, Metadata, Placement, Reason, Revision, SystemdState,
    TargetState, UnitState,
};
use fleet_http::server::{JournalError, JournalStream};
use fleet_http::{
    Api, AuthPolicy, Client, Journals, ListenAddress, Listener, Metrics, ServerLimits,
    serve_with_limits,
};
use fleet_store::registry::{
    Key, MachineRecord, PlacementWrites, Presence, RemovePlacement, SetPlacement,
};
use fleet_store::testing::FaultyStore;
use fleet_store::{Commit, Layout, MemoryStore, Mirror, Registry, Store, Transaction};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::http::{self, HttpResponse};

/// Time limit for waiting; longer than any test.
pub(crate) const TTL: Duration = Duration::from_secs(3600);

/// A server and its dependencies.
pub(crate) struct Server {
    pub(crate) registry: Registry,
    pub(crate) mirror: Mirror,
    pub(crate) store: FaultyStore,
    pub(crate) at: ListenAddress,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    folder: TempDir,
}

impl Server {
    /// Starts a server on a unix socket with a page size of 100.
    pub(crate) async fn start() -> Self {
        Self::start_with(|api| api).await
    }

    /// Starts a server with a modified configuration.
    pub(crate) async fn start_with(set: impl FnOnce(Api) -> Api) -> Self {
        let server = Self::start_unread(working_store(), set).await;
        server.mirror.wait_current().await.unwrap();
        server
    }

    /// Starts a server that may not have read its store yet.
    pub(crate) async fn start_unread(store: FaultyStore, set: impl FnOnce(Api) -> Api) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
        Self::start_on(store, folder, &listen, ServerLimits::default(), set).await
    }

    /// Starts a server on a free TCP port.
    pub(crate) async fn start_on_tcp() -> Self {
        Self::start_on_tcp_within(ServerLimits::default()).await
    }

    /// Starts a server on a TCP port with other limits.
    pub(crate) async fn start_on_tcp_within(limits: ServerLimits) -> Self {
        let listen = "tcp://127.0.0.1:0".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server = Self::start_on(working_store(), folder, &listen, limits, |api| api).await;
        server.mirror.wait_current().await.unwrap();
        server
    }

    /// Starts a server on a port with authentication.
    pub(crate) async fn start_with_auth(
        listen: &str,
        auth: &AuthPolicy,
        limits: ServerLimits,
    ) -> Self {
        let listener = Listener::bind_with_auth(&listen.parse().unwrap(), auth).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server = Self::serve(working_store(), folder, listener, limits, |api| api);
        server.mirror.wait_current().await.unwrap();
        server
    }

    /// Starts another server of the same cluster.
    pub(crate) async fn beside(other: &Self, set: impl FnOnce(Api) -> Api) -> Self {
        let server = Self::start_unread(other.store.clone(), set).await;
        server.mirror.wait_current().await.unwrap();
        server
    }

    /// Starts another server of the same cluster, with authentication.
    pub(crate) async fn beside_with_auth(
        other: &Self,
        auth: &AuthPolicy,
        set: impl FnOnce(Api) -> Api,
    ) -> Self {
        let at = "https://127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind_with_auth(&at, auth).await.unwrap();
        let (store, folder) = (other.store.clone(), tempfile::tempdir().unwrap());
        let server = Self::serve(store, folder, listener, ServerLimits::default(), set);
        server.mirror.wait_current().await.unwrap();
        server
    }

    /// Returns a directory that lives as long as the server.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a server on a unix socket with other limits.
    pub(crate) async fn start_within(limits: ServerLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
        let server = Self::start_on(working_store(), folder, &listen, limits, |api| api).await;
        server.mirror.wait_current().await.unwrap();
        server
    }

    pub(crate) async fn start_on(
        store: FaultyStore,
        folder: TempDir,
        listen: &ListenAddress,
        limits: ServerLimits,
        set: impl FnOnce(Api) -> Api,
    ) -> Self {
        let listener = Listener::bind(listen).await.unwrap();
        Self::serve(store, folder, listener, limits, set)
    }

    fn serve(
        store: FaultyStore,
        folder: TempDir,
        listener: Listener,
        limits: ServerLimits,
        set: impl FnOnce(Api) -> Api,
    ) -> Self {
        let registry = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
        let mirror = Mirror::start(&registry);
        let metrics = Metrics::new();
        let metered = metrics.metered_store(Arc::new(store.clone()));
        let api = Api::new(Registry::new(metered, Layout::DEFAULT_PREFIX), mirror.clone())
            .with_journals(Arc::new(GeneratedJournals))
            .with_metrics(metrics)
            .with_version("1.2.3");
        let api = set(api);
        let at = listener.local_address().clone();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _dropped = stopped.await;
        };
        let serving = tokio::spawn(serve_with_limits(listener, api.router(), limits, shutdown));
        Self { registry, mirror, store, at, stop, serving, folder }
    }

    /// Shuts the server down and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(http::DEADLINE, self.serving).await.unwrap().unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.at.to_string().parse().unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.call("GET", path, "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> HttpResponse {
        let json = [("Content-Type", "application/json")];
        http::request(&self.at, "PUT", path, &json, body).await
    }

    /// Sends a request with default headers.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> HttpResponse {
        http::request(&self.at, method, path, &[], body).await
    }

    /// Creates units that run `sleep`.
    pub(crate) async fn sleepers(&self, names: &[&str], desired: &str) {
        for name in names {
            let options = r#"[{"section":"Service","name":"ExecStart","value":"/bin/sleep 1d"}]"#;
            let body = format!(r#"{{"desiredState":"{desired}","options":{options}}}"#);
            let response = self.put(&format!("/fleet/v1/units/{name}"), &body).await;
            assert_eq!(response.to_string(), "201", "{name}");
        }
    }

    /// Makes a machine present.
    pub(crate) async fn machine(&self, id: &str, metadata: &[(&str, &str)]) -> Presence {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let record = MachineRecord {
            address: Some("10.0.0.7".parse().unwrap()),
            metadata: metadata.iter().map(pair).collect::<Metadata>(),
            version: "1.2.3".to_owned(),
            ..MachineRecord::new(id.parse().unwrap())
        };
        let presence = self.registry.join(record, "token", TTL).await.unwrap();
        let joined = |mirror: &Mirror| mirror.snapshot().machine(id).is_some();
        self.wait_until(joined).await;
        presence
    }

    /// Writes placements and reasons, like an engine.
    pub(crate) async fn decide(&self, placements: &[(&str, &str)], reasons: &[(&str, Reason)]) {
        let engine: MachineId = "engine".parse().unwrap();
        let leader = self.registry.campaign(&engine, TTL).await.unwrap().unwrap();
        let place = |(unit, machine): &(&str, &str)| SetPlacement {
            unit: name(unit),
            machine: machine.parse().unwrap(),
            epoch: Epoch(1),
            previous: None,
        };
        let writes = PlacementWrites {
            set: placements.iter().map(place).collect(),
            reasons: reasons.iter().map(|(unit, why)| (name(unit), Some(why.clone()))).collect(),
            ..PlacementWrites::default()
        };
        let revision = leader.commit(&writes).await.unwrap();
        leader.resign().await.unwrap();
        self.settle(revision).await;
    }

    /// Removes a unit's placement.
    pub(crate) async fn unplace(&self, unit: &str, machine: &str) {
        let engine: MachineId = "engine".parse().unwrap();
        let leader = self.registry.campaign(&engine, TTL).await.unwrap().unwrap();
        let previous = Placement { machine: machine.parse().unwrap(), epoch: Epoch(1) };
        let unplace = vec![RemovePlacement { unit: name(unit), previous }];
        let writes = PlacementWrites { remove: unplace, ..PlacementWrites::default() };
        let revision = leader.commit(&writes).await.unwrap();
        leader.resign().await.unwrap();
        self.settle(revision).await;
    }

    /// Publishes a unit state.
    pub(crate) async fn publish(&self, presence: &Presence, state: UnitState) {
        let revision = presence.publish_states(&[state], &[]).await.unwrap();
        self.settle(revision).await;
    }

    /// Overwrites a unit's record with invalid bytes.
    pub(crate) async fn damage(&self, unit: &str) {
        let key = self.registry.layout().key(&Key::Unit(name(unit)));
        let commit = self.store.commit(Transaction::new().put(key, "damage")).await.unwrap();
        let Commit::Applied(revision) = commit else { panic!("conflict") };
        self.settle(revision).await;
    }

    pub(crate) async fn settle(&self, revision: Revision) {
        self.mirror.wait_for(revision).await.unwrap();
    }

    pub(crate) async fn wait_until(&self, reached: impl Fn(&Mirror) -> bool) {
        let mut progress = self.mirror.subscribe();
        let reached = progress.wait_for(|_| reached(&self.mirror));
        drop(tokio::time::timeout(http::DEADLINE, reached).await.unwrap().unwrap());
    }
}

/// Returns a store that does not fail yet.
pub(crate) fn working_store() -> FaultyStore {
    FaultyStore::new(Arc::new(MemoryStore::new()))
}

pub(crate) fn name(text: &str) -> UnitName {
    UnitName::parse(text).unwrap()
}

/// Returns the state of a running unit.
pub(crate) fn running(unit: &str, machine: &str) -> UnitState {
    let systemd = SystemdState {
        main_pid: Some(4711),
        ..SystemdState::new(LoadState::Loaded, ActiveState::Active, "running")
    };
    UnitState {
        unit: name(unit),
        machine: machine.parse().unwrap(),
        hash: "5b4e7d2f0a1c3e5d7f90112233445566778899aa".parse().unwrap(),
        requested: TargetState::Launched,
        epoch: Epoch(1),
        generation: Generation::ZERO,
        systemd,
        problem: None,
        health: None,
        output: Vec::new(),
    }
}

/// Generated journals: those of `m1` are local, others are not.
struct GeneratedJournals;

/// Journals fail after this number of lines.
pub(crate) const BREAKS: u32 = 7;

#[async_trait]
impl Journals for GeneratedJournals {
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        match machine.as_str() {
            "m1" if unit.as_str() == "unloaded.service" => {
                let (unit, machine) = (unit.clone(), machine.clone());
                return Err(JournalError::NotLoaded { unit, machine });
            }
            "m1" => {}
            "m0" => {
                let (unit, machine) = (unit.clone(), machine.clone());
                return Err(JournalError::NotLoaded { unit, machine });
            }
            "m2" => return Err(JournalError::Failed("the disk is on fire".into())),
            _ => return Err(JournalError::NotLocal { machine: machine.clone() }),
        }
        let (unit, lines) = (unit.clone(), query.lines.unwrap_or(12));
        let age = match query.since {
            Some(Since::Age(age)) => format!(", at most {age:?} old"),
            _ => String::new(),
        };
        let there = stream::iter(1..=lines).map(move |n| Ok(format!("{unit} {n}{age}").into()));
        if lines == BREAKS as usize {
            let cut = stream::once(async { Err(JournalError::Failed("cut".into())) });
            return Ok(there.chain(cut).boxed());
        }
        match query.follow {
            true => Ok(there.chain(stream::pending()).boxed()),
            false => Ok(there.boxed()),
        }
    }
}
