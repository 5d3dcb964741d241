//! Load benchmarks of the API: complete lists, concurrent writes, event subscribers, and journal
//! lines forwarded by another daemon.
//!
//! `cargo bench -p fleet-http --bench load` prints one JSON line per figure, with its goal. Server
//! and clients share one process and its CPUs, so the server alone is faster. With `--
//! unix:///run/fleet.sock` it measures the daemon that listens there. That needs a cluster without
//! units, and `LimitNOFILE=` above 2,048 for the connections; all created units are destroyed.

mod following;
mod forwarding;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_http::Endpoint;
use fleet_store::{EmbeddedStore, MemoryStore};
use futures_util::future::join_all;

use crate::server::{Server, name, upload};

/// Number of concurrent writers, and of writes of each.
const WRITERS: usize = 64;
const WRITES: usize = 100;

/// Number of lists per figure.
const LISTS: usize = 20;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench").peekable();
    // cargo also runs this as a test of the build, without measuring.
    if args.peek().is_some_and(|arg| arg == "--test") {
        return;
    }
    let external: Option<Endpoint> = args.next().map(|url| url.parse().expect("a URL"));
    let server = async |store| match &external {
        Some(endpoint) => Server::connect(endpoint),
        None => Server::start(store).await,
    };
    let listed = server(Arc::new(MemoryStore::new())).await;
    for units in [1000, 10_000] {
        listing(&listed, units).await;
    }
    listed.clear().await;
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(&folder.path().join("store")).await.expect("a store");
    let written = server(Arc::new(store)).await;
    writing(&written).await;
    written.clear().await;
    let followed = server(Arc::new(MemoryStore::new())).await;
    following::following(&followed).await;
    followed.clear().await;
    if external.is_none() {
        forwarding::forwarding().await;
    }
}

/// Lists all units, with the client and with a reader that only extracts the page tokens.
async fn listing(server: &Server, count: usize) {
    server.fill(count).await;
    let client = server.client();
    let mut best = Duration::MAX;
    for _ in 0..LISTS {
        let start = Instant::now();
        let units = client.units().await.expect("a list");
        best = best.min(start.elapsed());
        assert_eq!(units.len(), count, "number of units");
    }
    // Five milliseconds per thousand units.
    let goal = || Goal::AtMost(count as f64 / 200.0);
    report(&format!("list of {count} units"), millis(best), "ms", goal());
    let (mut best, before) = (Duration::MAX, server.cpu_time());
    for _ in 0..LISTS {
        let mut wire = server.wire().await;
        let start = Instant::now();
        wire.list().await;
        best = best.min(start.elapsed());
    }
    let cpu_time = (server.cpu_time() - before) / LISTS as u32;
    report("the same without decoding", millis(best), "ms", goal());
    report(&format!("CPU time of that, {}", server.scope()), millis(cpu_time), "ms", Goal::None);
}

/// Measures writes of many clients to a store on disk, each to its own units.
async fn writing(server: &Server) {
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
    report("PUTs, visible to reads", rate, "per second", Goal::AtLeast(2000.0));
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

/// Goal of a figure.
enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

#[expect(clippy::print_stdout, reason = "the figures are the output")]
fn report(figure: &str, value: f64, unit: &str, goal: Goal) {
    let goal = match goal {
        Goal::None => String::new(),
        Goal::AtMost(most) => format!(r#","at_most":{most},"met":{}"#, value <= most),
        Goal::AtLeast(least) => format!(r#","at_least":{least},"met":{}"#, value >= least),
    };
    println!(r#"{{"figure":"{figure}","value":{value:.2},"unit":"{unit}"{goal}}}"#);
}
