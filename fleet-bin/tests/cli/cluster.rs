//! A cluster for a test: a memory store, the API on a unix socket, and the fake engine.

use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::journal::{JournalLine, JournalQuery, Since};
use fleet_core::{MachineId, Snapshot, Timestamp};
use fleet_http::server::{JournalError, JournalStream};
use fleet_http::{Api, Client, Journals, ListenAddress, Listener, serve};
use fleet_store::registry::Key;
use fleet_store::{Layout, Mirror, Registry, Transaction};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::fake_engine::{FakeEngine, Roles};
use crate::fleetctl::{DEADLINE, Fleetctl};
use crate::racing_store::RacingStore;

/// A cluster that stops when dropped.
pub(crate) struct Cluster {
    pub(crate) registry: Registry,
    pub(crate) mirror: Mirror,
    pub(crate) roles: Roles,
    pub(crate) store: RacingStore,
    folder: TempDir,
    at: ListenAddress,
    _tasks: JoinSet<()>,
}

impl Cluster {
    /// Starts a cluster with these machines, whose addresses are 10.0.0.1 and following.
    pub(crate) async fn start(machines: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
        let store = RacingStore::default();
        let registry = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
        registry.lineage(&"test".parse().unwrap()).await.unwrap();
        let mirror = Mirror::start(&registry);
        mirror.wait_current().await.unwrap();
        let api = Api::new(registry.clone(), mirror.clone())
            .with_journals(Arc::new(FakeJournals))
            .with_version("1.2.3");
        let listener = Listener::bind(&listen).await.unwrap();
        let roles = Roles::default();
        let engine = FakeEngine::join(&registry, &mirror, machines, roles.clone()).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, api.router(), std::future::pending()));
        tasks.spawn(engine.run());
        Self { registry, mirror, roles, store, folder, at: listen, _tasks: tasks }
    }

    /// Returns the folder with unit files, which is also the working directory of `fleetctl`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a unit file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Writes unit files of services that would sleep.
    pub(crate) fn write_sleepers(&self, names: &[&str]) {
        names.iter().for_each(|name| self.write(name, "[Service]\nExecStart=/bin/sleep 1d\n"));
    }

    /// Runs `fleetctl` with arguments separated by blanks.
    pub(crate) async fn run(&self, line: &str) -> Fleetctl {
        Fleetctl::run(self.folder(), &self.at.to_string(), line).await
    }

    pub(crate) fn endpoint(&self) -> String {
        self.at.to_string()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.at.to_string().parse().unwrap())
    }

    /// Returns the desired state of a unit; empty for an unknown one.
    pub(crate) async fn desired(&self, unit: &str) -> String {
        let name: UnitName = unit.parse().unwrap();
        self.client().unit(&name).await.unwrap().map_or_else(String::new, |it| it.desired_state)
    }

    /// Waits until the snapshot meets a condition.
    pub(crate) async fn wait_until(&self, reached: impl Fn(&Snapshot) -> bool) {
        let mut progress = self.mirror.subscribe();
        let reached = progress.wait_for(|_| reached(&self.mirror.snapshot()));
        drop(tokio::time::timeout(DEADLINE, reached).await.unwrap().unwrap());
    }

    /// Stores a rebalancing, as if the engine had just moved these units, which were up.
    pub(crate) async fn store_rebalancing(&self, from: &str, to: &str, units: &[&str]) {
        let moving = units
            .iter()
            .map(|unit| json!({"unit": unit, "from": from, "to": to, "was_active": true}));
        let moving: Vec<_> = moving.collect();
        let order = json!({
            "v": 1, "max_in_flight": 1, "gain": 0, "min_available": 0, "moved": units.len(),
            "moves": moving,
        });
        let key = self.registry.layout().key(&Key::Rebalancing);
        let order = Transaction::new().put(key, order.to_string());
        drop(self.registry.store().commit(order).await.unwrap());
        self.wait_until(|it| it.rebalancing.is_some()).await;
    }

    /// Moves units and ends the rebalancing, as the engine would.
    pub(crate) async fn carry_out(&self, from: &str, to: &str, units: &[&str]) {
        let (from, to): (MachineId, MachineId) = (from.parse().unwrap(), to.parse().unwrap());
        let layout = self.registry.layout();
        let mut end = Transaction::new().delete(layout.key(&Key::Rebalancing));
        for unit in units {
            let unit: UnitName = unit.parse().unwrap();
            let left = layout.key(&Key::Placement(from.clone(), unit.clone()));
            let placement = self.registry.store().read(&left).await.unwrap().entries.remove(0);
            let placed = layout.key(&Key::Placement(to.clone(), unit));
            end = end.delete(left).put(placed, placement.value);
        }
        drop(self.registry.store().commit(end).await.unwrap());
    }

    /// Overwrites a unit's record with invalid bytes.
    pub(crate) async fn damage(&self, unit: &str) {
        let key = self.registry.layout().key(&Key::Unit(unit.parse().unwrap()));
        let damage = Transaction::new().put(key, "damage");
        drop(self.registry.store().commit(damage).await.unwrap());
        self.wait_until(|it| it.fault(unit).is_some()).await;
    }
}

/// Control sequences in the journal of a unit: clear the screen, type input, set the window title,
/// and the same with a one-byte introducer.
pub(crate) const CONTROL_SEQUENCES: &str = "\u{1b}[2J\u{1b}[6n\u{1b}]0;mine\u{7}\u{9b}2J\r";

/// Journals with generated lines.
struct FakeJournals;

#[async_trait]
impl Journals for FakeJournals {
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        if machine.as_str() == "far" {
            return Err(JournalError::NotLocal { machine: machine.clone() });
        }
        let (unit, machine) = (unit.clone(), machine.clone());
        let unit_is_cut = unit.as_str() == "cut.service";
        let unit_is_slow = unit.as_str() == "slow.service";
        let lines = query.lines.map_or(4, |lines| lines.min(3));
        let age = match query.since {
            Some(Since::Age(age)) => format!(", at most {age:?} old"),
            _ => String::new(),
        };
        let control = if unit.as_str() == "rude.service" { CONTROL_SEQUENCES } else { "" };
        // The lines of these two units have timestamps, and alternate.
        let first = match unit.as_str() {
            "odd.service" => Some(1),
            "even.service" => Some(2),
            _ => None,
        };
        let line = move |n: usize| {
            let at = first.map(|first: u64| Timestamp::from_millis(first + 2 * n as u64));
            let text = format!("{unit} on {machine}: {n}{age}{control}");
            Ok(JournalLine::new(text).with_time(at))
        };
        let lines = stream::iter(1..=lines).map(line);
        if unit_is_cut {
            let failed = JournalError::Failed("its disk is broken".into());
            return Ok(lines.take(1).chain(stream::once(ready(Err(failed)))).boxed());
        }
        match query.follow || unit_is_slow {
            true => Ok(lines.chain(stream::pending()).boxed()),
            false => Ok(lines.boxed()),
        }
    }
}
