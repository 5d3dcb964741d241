//! Many who follow events, some of whom read nothing.

use std::time::{Duration, Instant};

use fleet_http::wire::ClusterEvent;
use fleet_http::{EventOptions, Events};
use fleet_unitfile::UnitName;
use futures_util::future::join_all;

use crate::server::{Server, name, upload};
use crate::{Goal, millis, tell};

/// How many read, and how many read nothing.
const QUICK: usize = 800;
const SLOW: usize = 200;

/// How many units are written in a turn beside the one that is waited for: in all turns together
/// more than waits anywhere for who does not read.
const FLOOD: usize = 50;

/// How long it takes until all who follow and read have heard of a write, with and without others
/// who read nothing, and what all of them cost.
pub(crate) async fn following(server: &Server) {
    let before = server.memory();
    let mut quick = streams(server, QUICK).await;
    hear("by themselves", server, &mut quick, 30).await;
    let mut slow = streams(server, SLOW).await;
    hear("beside 200 who read nothing", server, &mut quick, 100).await;
    let cost = server.memory().saturating_sub(before) as f64 / 1024.0;
    let what = format!("memory of 1,000 who follow, {}", server.whose());
    tell(&what, cost, "MiB", Goal::AtMost(100.0));
    for events in &mut slow {
        wait_for_resync(events).await;
    }
}

/// So many streams that have begun.
async fn streams(server: &Server, count: usize) -> Vec<Events> {
    let open = || async {
        let options = EventOptions::default();
        let mut events = server.client().events(&options).await.expect("a stream");
        wait_for_resync(&mut events).await;
        events
    };
    join_all((0..count).map(|_| open())).await
}

async fn hear(company: &str, server: &Server, quick: &mut [Events], turns: usize) {
    let client = server.client();
    let mut took = Vec::new();
    for turn in 0..turns {
        server.write(&format!("f{turn}-"), FLOOD).await;
        let unit = name(&format!("last{turn}"));
        let start = Instant::now();
        client.put_unit(&unit, &upload()).await.expect("a write");
        join_all(quick.iter_mut().map(|events| wait_for(events, &unit))).await;
        took.push(start.elapsed());
        client.destroy(&unit).await.expect("a write");
    }
    took.sort_unstable();
    let say = |which: &str, took: Duration| {
        let what = format!("until 800 who read have heard, {company}, {which}");
        tell(&what, millis(took), "ms", Goal::None);
    };
    say("median", took[turns / 2]);
    say("longest", took[turns - 1]);
}

async fn wait_for(events: &mut Events, unit: &UnitName) {
    loop {
        match events.next_event().await.expect("a stream").expect("that goes on") {
            ClusterEvent::Unit(told) if told.name == unit.as_str() => return,
            // Who lists now sees it.
            ClusterEvent::Resync => return,
            _ => {}
        }
    }
}

/// Who has missed something is told so.
async fn wait_for_resync(events: &mut Events) {
    while events.next_event().await.expect("a stream").expect("that goes on")
        != ClusterEvent::Resync
    {}
}
