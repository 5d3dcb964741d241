//! Load benchmarks of the API: complete lists, concurrent writes, event subscribers, and journal
//! lines forwarded by another daemon.
//!
//! ```text
//! cargo bench -p fleet-http --bench load
//! cargo bench -p fleet-http --bench load -- unix:///run/fleet.sock
//! ```
//!
//! The first command starts a server in the benchmark's own process. Server and clients then share
//! the CPUs, so a server alone would be faster. The second command measures the daemon at this
//! address. Its cluster must have no units, because the benchmark destroys every unit. Its
//! `LimitNOFILE=` must be above 2,048, for the connections.
//!
//! The output is one JSON line per figure, with its goal.

mod following;
mod forwarding;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_http::Endpoint;
use fleet_store::{EmbeddedStore, MemoryStore};
use futures_util::future::join_all;

use crate::server::{Server, name, upload};

/// Number of concurrent writers, and number of writes by each of them.
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

/// Measures the time to list all units. Compares the client with a reader that only extracts the
/// page tokens.
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

/// Measures the rate of concurrent writes to a store on disk. Each client writes its own units.
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
