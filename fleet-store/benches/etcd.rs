//! Cost of the etcd store compared with etcd itself.
//!
//! `cargo bench -p fleet-store --features etcd --bench etcd` starts its own etcd and prints one
//! JSON line for each figure. The same run also measures the client library alone: one endpoint,
//! one stream, and no checks.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions, KvClient, WatchOptions, WatchStream};
use fleet_store::{EtcdConfig, EtcdStore, Store as _, Transaction, Watch};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// Number of watched changes, and of consecutive writes.
const CHANGES: usize = 3000;

/// Number of keys in a read.
const LISTED: usize = 10_000;

#[tokio::main]
async fn main() {
    // cargo also runs this as a test, which only has to build.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let server = Server::start();
    let store = EtcdStore::new(&EtcdConfig::new([server.url.clone()])).expect("a good URL");
    wait_ready(&store).await;
    let raw = Raw::connect(&server.url).await;
    watching(&store, &raw).await;
    writing(&store, &raw).await;
    listing(&store, &raw).await;
}

/// An etcd that is killed when dropped.
struct Server {
    url: String,
    process: Child,
    _home: TempDir,
}

impl Server {
    fn start() -> Self {
        let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [url, peer] =
            held.map(|listener| format!("http://{}", listener.local_addr().expect("it is bound")));
        let home = tempfile::tempdir().expect("a directory for etcd");
        let log = File::create(home.path().join("log")).expect("a log for etcd");
        let process = Command::new("etcd")
            .arg(format!("--data-dir={}", home.path().join("data").display()))
            .args([format!("--listen-client-urls={url}"), format!("--listen-peer-urls={peer}")])
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd is installed (Debian: etcd-server)");
        Self { url, process, _home: home }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

async fn wait_ready(store: &EtcdStore) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.read("").await.is_err() {
        assert!(Instant::now() < deadline, "etcd does not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Measures the delivery of changes by a bare watch and by the store's.
async fn watching(store: &EtcdStore, raw: &Raw) {
    let revision = store.read("").await.expect("etcd responds").revision;
    let watch = store.watch("", revision).await.expect("etcd responds");
    let (mut ours, mut bare) = (arrivals(watch), bare_arrivals(raw.watch().await));
    let (mut behind, mut whole, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CHANGES {
        let start = Instant::now();
        raw.put().await;
        let (ours, bare) = (ours.recv().await, bare.recv().await);
        let (ours, bare) = (ours.expect("a change"), bare.expect("a change"));
        behind.push(ours.saturating_duration_since(bare));
        whole.push(ours - start);
        floor.push(bare - start);
    }
    report("watch_behind_raw", &mut behind);
    report("watch_from_put", &mut whole);
    report("watch_from_put_raw", &mut floor);
}

fn arrivals(mut watch: Watch) -> mpsc::UnboundedReceiver<Instant> {
    let (sender, receiver) = mpsc::unbounded_channel();
    drop(tokio::spawn(async move {
        while watch.next().await.is_ok() && sender.send(Instant::now()).is_ok() {}
    }));
    receiver
}

fn bare_arrivals(mut stream: WatchStream) -> mpsc::UnboundedReceiver<Instant> {
    let (sender, receiver) = mpsc::unbounded_channel();
    drop(tokio::spawn(async move {
        while stream.message().await.is_ok_and(|answer| answer.is_some())
            && sender.send(Instant::now()).is_ok()
        {}
    }));
    receiver
}

async fn writing(store: &EtcdStore, raw: &Raw) {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..CHANGES {
        let start = Instant::now();
        raw.put().await;
        bare.push(start.elapsed());
        let start = Instant::now();
        store.commit(Transaction::new().put("key", "value")).await.expect("etcd responds");
        ours.push(start.elapsed());
    }
    report("commit", &mut ours);
    report("commit_raw", &mut bare);
}

async fn listing(store: &EtcdStore, raw: &Raw) {
    let keys: Vec<String> = (0..LISTED).map(|i| format!("list/{i:06}")).collect();
    for keys in keys.chunks(Transaction::MAX_OPERATIONS) {
        let puts = keys.iter().fold(Transaction::new(), |t, key| t.put(key, vec![7; 300]));
        store.commit(puts).await.expect("etcd responds");
    }
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        let start = Instant::now();
        raw.list().await;
        bare.push(start.elapsed());
        let start = Instant::now();
        let listing = store.read("list/").await.expect("etcd responds");
        assert_eq!(listing.entries.len(), LISTED);
        ours.push(start.elapsed());
    }
    report("list_10000", &mut ours);
    report("list_10000_raw", &mut bare);
}

fn report(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    let (p50, p99) = (at(50), at(99));
    let line = format!("{{\"figure\":\"{name}\",\"p50_ms\":{p50:.3},\"p99_ms\":{p99:.3}}}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("stdout is writable");
}

/// The client library alone.
struct Raw(Client);

impl Raw {
    async fn connect(url: &str) -> Self {
        Self(Client::connect([url], None).await.expect("a good URL"))
    }

    fn kv(&self) -> KvClient {
        self.0.kv_client().max_decoding_message_size(64 << 20)
    }

    async fn put(&self) {
        self.kv().put("key", "value", None).await.expect("etcd responds");
    }

    async fn list(&self) {
        let all = GetOptions::new().with_prefix();
        self.kv().get("list/", Some(all)).await.expect("etcd responds");
    }

    async fn watch(&self) -> WatchStream {
        let all = WatchOptions::new().with_all_keys();
        let opened = self.0.watch_client().watch("", Some(all)).await;
        let mut stream = opened.expect("etcd responds");
        stream.message().await.expect("etcd responds"); // the watch has started
        stream
    }
}
