//! What the API costs under load: whole listings, writes of many clients, many who follow, and
//! lines that come by way of another daemon.
//!
//! `cargo bench -p fleet-http --bench load` prints one JSON line for each figure, with its goal.
//! Server and clients are in one process and share its processors, so the server alone is faster
//! than this. With `-- unix:///run/fleet.sock` it asks the daemon that listens there, in a process
//! of its own: on a cluster without units, of which it leaves none behind, and that lets it open
//! the connections, which takes `LimitNOFILE=` of more than 2,048.

mod following;
mod passing_on;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_http::Endpoint;
use fleet_store::{EmbeddedStore, MemoryStore};
use futures_util::future::join_all;

use crate::server::{Server, name, upload};

/// How many clients write at once, and how often each.
const WRITERS: usize = 64;
const WRITES: usize = 100;

/// How often a list is asked for.
const LISTS: usize = 20;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench").peekable();
    // cargo also builds this to test that it builds; then there is nothing to measure.
    if args.peek().is_some_and(|arg| arg == "--test") {
        return;
    }
    let there: Option<Endpoint> = args.next().map(|url| url.parse().expect("a URL"));
    let server = async |store| match &there {
        Some(endpoint) => Server::there(endpoint),
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
    if there.is_none() {
        passing_on::passing_on().await;
    }
}

/// All units, page by page: by a client that reads what it gets, and by one that reads no more of
/// it than how to ask for the next page.
async fn listing(server: &Server, count: usize) {
    server.fill(count).await;
    let client = server.client();
    let mut best = Duration::MAX;
    for _ in 0..LISTS {
        let start = Instant::now();
        let units = client.units().await.expect("a list");
        best = best.min(start.elapsed());
        assert_eq!(units.len(), count, "units that are there");
    }
    // Five milliseconds for a thousand, and as much for each further thousand.
    let goal = || Goal::AtMost(count as f64 / 200.0);
    tell(&format!("list of {count} units"), millis(best), "ms", goal());
    let (mut best, before) = (Duration::MAX, server.worked());
    for _ in 0..LISTS {
        let mut wire = server.wire().await;
        let start = Instant::now();
        wire.list().await;
        best = best.min(start.elapsed());
    }
    let worked = (server.worked() - before) / LISTS as u32;
    tell("the same, not parsed by the client", millis(best), "ms", goal());
    tell(&format!("processor time of that, {}", server.whose()), millis(worked), "ms", Goal::None);
}

/// Writes of many clients to a store on a disk, each of a unit of its own.
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
    tell("PUTs, seen by reads", rate, "per second", Goal::AtLeast(2000.0));
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
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
