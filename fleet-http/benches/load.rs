//! What the API costs under load: whole listings, writes of many clients, many who follow, and
//! lines that come by way of another daemon.
//!
//! `cargo bench -p fleet-http --bench load` prints one JSON line for each figure, with its goal.
//! Server and clients are in one process and share its processors, so the server alone is faster
//! than this.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fleet_core::{MachineId, Strictness, TargetState};
use fleet_http::{
    Api, Client, Endpoint, EventOptions, Events, JournalError, JournalOptions, JournalQuery,
    JournalStream, Journals, Listen, Listener, Metrics, Peers, UnitUpload, serve,
};
use fleet_store::{
    EmbeddedStore, ExpectUnit, Layout, MachineRecord, MemoryStore, Mirror, NewUnit, Registry, Store,
};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::sync::broadcast;

/// How many clients write at once, and how often each.
const WRITERS: usize = 64;
const WRITES: usize = 100;

/// How many follow events, and how many of them read nothing.
const FOLLOWERS: usize = 1000;
const SLOW: usize = 200;

#[tokio::main]
async fn main() {
    // cargo also builds this to test that it builds; then there is nothing to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    for units in [1000, 10_000] {
        listing(units).await;
    }
    writing().await;
    following().await;
    passing_on().await;
}

/// All units, page by page, by a client that reads what it gets.
async fn listing(count: usize) {
    let server = Server::start(Arc::new(MemoryStore::new())).await;
    server.fill(count).await;
    let client = server.client();
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        assert_eq!(client.units().await.expect("a list").len(), count);
        best = best.min(start.elapsed());
    }
    // Five milliseconds for a thousand, and as much for each further thousand.
    let goal = Goal::AtMost(count as f64 / 200.0);
    tell(&format!("list of {count} units"), best.as_secs_f64() * 1e3, "ms", goal);
}

/// Writes of many clients to a store on a disk, each of a unit of its own.
async fn writing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(&folder.path().join("store")).await.expect("a store");
    let server = Server::start(Arc::new(store)).await;
    let start = Instant::now();
    let write = async |writer: usize| {
        let client = server.client();
        for turn in 0..WRITES {
            let put = client.put_unit(&name(&format!("w{writer}-{turn}")), &upload()).await;
            put.expect("a write");
        }
    };
    join_all((0..WRITERS).map(write)).await;
    let rate = (WRITERS * WRITES) as f64 / start.elapsed().as_secs_f64();
    tell("PUTs, seen by reads", rate, "per second", Goal::AtLeast(2000.0));
}

/// How long it takes until all who follow and read have heard of a write, and what they cost.
async fn following() {
    let server = Server::start(Arc::new(MemoryStore::new())).await;
    let before = memory();
    let open =
        || async { server.client().events(&EventOptions::default()).await.expect("a stream") };
    let slow = join_all((0..SLOW).map(|_| open())).await;
    let mut quick = join_all((SLOW..FOLLOWERS).map(|_| open())).await;
    let client = server.client();
    let mut took = Vec::new();
    for turn in 0..100 {
        let unit = name(&format!("f{turn}"));
        let start = Instant::now();
        client.put_unit(&unit, &upload()).await.expect("a write");
        join_all(quick.iter_mut().map(|events| wait_for(events, &unit))).await;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    tell("until 800 who read have heard, median", millis(took[50]), "ms", Goal::None);
    tell("until 800 who read have heard, longest", millis(took[99]), "ms", Goal::None);
    let cost = memory().saturating_sub(before) as f64 / 1024.0;
    tell("memory of 1,000 who follow, both ends", cost, "MiB", Goal::AtMost(100.0));
    drop(slow);
}

/// How long a line takes from the daemon of its machine, by way of another, to who follows.
async fn passing_on() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (said, _) = broadcast::channel(1);
    let there = Server::start_with(store.clone(), Arc::new(Said(said.clone()))).await;
    let record = MachineRecord { api: there.endpoint.to_string(), ..MachineRecord::new(machine()) };
    let joined = there.registry.join(record, "token", Duration::from_secs(3600)).await;
    let _presence = joined.expect("a machine");
    let here = Server::start(store).await;
    here.fill(1).await;
    let options = JournalOptions {
        machine: Some(machine().to_string()),
        follow: true,
        ..JournalOptions::default()
    };
    let mut lines = here.client().journal(&name("u0"), &options).await.expect("a journal");
    let mut took = Vec::new();
    for number in 0..1000 {
        let start = Instant::now();
        said.send(number.to_string()).expect("one who listens");
        assert_eq!(lines.next_line().await.expect("a line"), Some(number.to_string()));
        took.push(start.elapsed());
    }
    took.sort_unstable();
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    tell("until a line over two daemons has come, median", millis(took[500]), "ms", Goal::None);
    let goal = Goal::AtMost(100.0);
    tell("until a line over two daemons has come, longest", millis(took[999]), "ms", goal);
}

fn machine() -> MachineId {
    "m1".parse().expect("an identity")
}

/// Journals of what is said.
struct Said(broadcast::Sender<String>);

#[async_trait]
impl Journals for Said {
    async fn open(
        &self,
        _: &MachineId,
        _: &UnitName,
        _: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        let next = async |mut said: broadcast::Receiver<String>| {
            said.recv().await.ok().map(|line: String| (Ok(line.into()), said))
        };
        Ok(Box::pin(futures_util::stream::unfold(self.0.subscribe(), next)))
    }
}

async fn wait_for(events: &mut Events, unit: &UnitName) {
    loop {
        let event = events.next_event().await.expect("a stream").expect("that goes on");
        if let fleet_http::wire::Event::Unit(told) = event
            && told.name == unit.as_str()
        {
            return;
        }
    }
}

/// A server on a unix socket.
struct Server {
    registry: Registry,
    mirror: Mirror,
    endpoint: Endpoint,
    _folder: TempDir,
}

impl Server {
    async fn start(store: Arc<dyn Store>) -> Self {
        Self::start_with(store, Arc::new(NoJournals)).await
    }

    async fn start_with(store: Arc<dyn Store>, journals: Arc<dyn Journals>) -> Self {
        let registry = Registry::new(store, Layout::DEFAULT_PREFIX);
        let mirror = Mirror::start(&registry);
        mirror.wait_current().await.expect("a mirror");
        let api = Api {
            registry: registry.clone(),
            mirror: mirror.clone(),
            journals,
            peers: Peers::default(),
            metrics: Metrics::new(),
            page_size: Api::PAGE_SIZE,
            strictness: Strictness::Refuse,
            version: "bench".to_owned(),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let listen = Listen::Unix(folder.path().join("fleet.sock"));
        let listener = Listener::bind(&listen).await.expect("a socket");
        tokio::spawn(serve(listener, api.router(), std::future::pending()));
        let endpoint = listen.to_string().parse().expect("an endpoint");
        Self { registry, mirror, endpoint, _folder: folder }
    }

    fn client(&self) -> Client {
        Client::new(&self.endpoint)
    }

    async fn fill(&self, count: usize) {
        for number in 0..count {
            let name = name(&format!("u{number}"));
            let new = NewUnit { name, file: file(), desired: TargetState::Inactive };
            let put = self.registry.put_unit(new, ExpectUnit::Absent).await;
            let revision = put.expect("a unit");
            if number + 1 == count {
                self.mirror.wait_for(revision).await.expect("a mirror");
            }
        }
    }
}

struct NoJournals;

#[async_trait]
impl Journals for NoJournals {
    async fn open(
        &self,
        machine: &MachineId,
        _: &UnitName,
        _: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        Err(JournalError::NotHere { machine: machine.clone() })
    }
}

fn name(text: &str) -> UnitName {
    UnitName::parse(&format!("{text}.service")).expect("a name")
}

fn file() -> UnitFile {
    let text = "[Unit]\nDescription=A web server\n[Service]\nExecStart=/usr/bin/web --port 80\n\
                Restart=on-failure\n[X-Fleet]\nMachineMetadata=disk=ssd\n";
    UnitFile::parse(text).expect("a unit file")
}

fn upload() -> UnitUpload {
    UnitUpload { file: file(), desired: Some(TargetState::Inactive), create_only: false }
}

/// How much memory this process has, in KiB.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its size");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// What a figure should be.
enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

#[expect(clippy::print_stdout, reason = "figures are what it is for")]
fn tell(what: &str, value: f64, unit: &str, goal: Goal) {
    let goal = match goal {
        Goal::None => String::new(),
        Goal::AtMost(most) => format!(r#","at_most":{most},"met":{}"#, value <= most),
        Goal::AtLeast(least) => format!(r#","at_least":{least},"met":{}"#, value >= least),
    };
    println!(r#"{{"figure":"{what}","value":{value:.2},"unit":"{unit}"{goal}}}"#);
}
