//! Latency and memory of event subscribers, some of which read nothing.

use std::time::{Duration, Instant};

use fleet_http::client::{EventOptions, Events};
use fleet_http::wire::ClusterEvent;
use fleet_unitfile::UnitName;
use futures_util::future::join_all;

use crate::server::{Server, name, upload};
use crate::{Goal, millis, report};

/// Number of subscribers that read, and number of subscribers that read nothing.
const READERS: usize = 800;
const IDLE: usize = 200;

/// Number of units written in each turn before the unit that the readers wait for. Over all turns,
/// the events exceed the buffers of a subscriber that reads nothing.
const WRITES_PER_TURN: usize = 50;

/// Measures the time until all reading subscribers have received a write: first alone, then beside
/// subscribers that read nothing. Also measures the memory of all subscribers.
pub(crate) async fn following(server: &Server) {
    let before = server.memory();
    let mut quick = streams(server, READERS).await;
    measure_latency("without others", server, &mut quick, 30).await;
    let mut slow = streams(server, IDLE).await;
    measure_latency("with 200 idle subscribers", server, &mut quick, 100).await;
    let cost = server.memory().saturating_sub(before) as f64 / 1024.0;
    let figure = format!("memory of 1,000 subscribers, {}", server.scope());
    report(&figure, cost, "MiB", Goal::AtMost(100.0));
    for events in &mut slow {
        wait_for_resync(events).await;
    }
}

/// Opens `count` event streams.
async fn streams(server: &Server, count: usize) -> Vec<Events> {
    let open = || async {
        let options = EventOptions::default();
        let mut events = server.client().events(&options).await.expect("a stream");
        wait_for_resync(&mut events).await;
        events
    };
    join_all((0..count).map(|_| open())).await
}

async fn measure_latency(setting: &str, server: &Server, quick: &mut [Events], turns: usize) {
    let client = server.client();
    let mut took = Vec::new();
    for turn in 0..turns {
        server.write(&format!("f{turn}-"), WRITES_PER_TURN).await;
        let unit = name(&format!("last{turn}"));
        let start = Instant::now();
        client.put_unit(&unit, &upload()).await.expect("a write");
        join_all(quick.iter_mut().map(|events| wait_for(events, &unit))).await;
        took.push(start.elapsed());
        client.destroy(&unit).await.expect("a write");
    }
    took.sort_unstable();
    let report_latency = |which: &str, took: Duration| {
        let figure = format!("event latency to 800 readers, {setting}, {which}");
        report(&figure, millis(took), "ms", Goal::None);
    };
    report_latency("median", took[turns / 2]);
    report_latency("longest", took[turns - 1]);
}

async fn wait_for(events: &mut Events, unit: &UnitName) {
    loop {
        match events.next_event().await.expect("a stream").expect("that goes on") {
            ClusterEvent::Unit(changed) if changed.name == unit.as_str() => return,
            // A list at this point shows the write.
            ClusterEvent::Resync => return,
            _ => {}
        }
    }
}

/// Reads events until a resync. A new subscriber gets a resync, and so does a subscriber that has
/// missed events.
async fn wait_for_resync(events: &mut Events) {
    while events.next_event().await.expect("a stream").expect("that goes on")
        != ClusterEvent::Resync
    {}
}
