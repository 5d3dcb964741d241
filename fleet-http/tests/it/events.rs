//! Event streams: no gap goes unreported, and slow subscribers delay no other.

use fleet_core::{Reason, TargetState};
use fleet_http::client::{EventOptions, Events};
use fleet_http::wire::ClusterEvent;
use fleet_http::{Client, ListenAddress, ServerLimits};
use fleet_store::registry::{ExpectUnit, NewUnit};
use fleet_store::{Layout, Registry};
use fleet_unitfile::UnitFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::harness::{Server, name, running, working_store};
use crate::http::DEADLINE;
use crate::relay::relay;

async fn follow(server: &Server, options: EventOptions) -> Events {
    server.client().events(&options).await.unwrap()
}

fn since(id: &str) -> EventOptions {
    EventOptions::default().with_since(id.to_owned())
}

/// Reads the next event and summarizes it.
async fn next(events: &mut Events) -> String {
    let event = timeout(DEADLINE, events.next_event()).await.expect("no event within the deadline");
    match event.unwrap().expect("the stream ended") {
        ClusterEvent::Unit(unit) => {
            let machine = if unit.machine_id.is_empty() { "-" } else { &unit.machine_id };
            format!("unit {} {} {machine} {}", unit.name, unit.desired_state, unit.reason)
        }
        ClusterEvent::UnitGone(unit) => format!("unitGone {}", unit.name),
        ClusterEvent::State(state) => {
            format!("state {} {} {}", state.name, state.machine_id, state.systemd_active_state)
        }
        ClusterEvent::StateGone(state) => format!("stateGone {} {}", state.name, state.machine_id),
        ClusterEvent::Machine(machine) => format!("machine {} {:?}", machine.id, machine.metadata),
        ClusterEvent::MachineGone(machine) => format!("machineGone {}", machine.id),
        other => other.kind().to_owned(),
    }
}

/// Creates and destroys a unit, reads both events, and returns the last ID received. This may be
/// the ID of the first change, because an ID follows its event. In this case, a stream that resumes
/// there repeats the second change.
async fn last_id_of(events: &mut Events, server: &Server) -> String {
    server.sleepers(&["z.service"], "inactive").await;
    while next(events).await != "unit z.service inactive - " {}
    assert_eq!(server.call("DELETE", "/fleet/v1/units/z.service", "").await.status, 204);
    while next(events).await != "unitGone z.service" {}
    events.last_id().unwrap().to_owned()
}

// Holds: D-30
#[tokio::test]
async fn all_changes_become_events() {
    let server = Server::start().await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    let presence = server.machine("m1", &[("a", "1")]).await;
    assert_eq!(next(&mut events).await, r#"machine m1 {"a": "1"}"#);
    server.sleepers(&["a.service"], "launched").await;
    assert_eq!(next(&mut events).await, "unit a.service launched - ");
    server.sleepers(&["b.service"], "launched").await;
    assert_eq!(next(&mut events).await, "unit b.service launched - ");
    server.decide(&[("a.service", "m1")], &[("b.service", Reason::NoMachines)]).await;
    assert_eq!(next(&mut events).await, "unit a.service launched m1 ");
    let reason = Reason::NoMachines;
    assert_eq!(next(&mut events).await, format!("unit b.service launched - {reason}"));
    server.publish(&presence, running("a.service", "m1")).await;
    assert_eq!(next(&mut events).await, "unit a.service launched m1 ");
    assert_eq!(next(&mut events).await, "state a.service m1 active");
    let removed = presence.publish_states(&[], &[name("a.service")]).await.unwrap();
    server.settle(removed).await;
    assert_eq!(next(&mut events).await, "unit a.service launched m1 ");
    assert_eq!(next(&mut events).await, "stateGone a.service m1");
    server.call("DELETE", "/fleet/v1/units/a.service", "").await;
    assert_eq!(next(&mut events).await, "unitGone a.service");
    presence.leave().await.unwrap();
    assert_eq!(next(&mut events).await, "machineGone m1");
}

// Holds: I-24
#[tokio::test]
async fn resumed_stream_sends_missed_events() {
    let server = Server::start().await;
    let presence = server.machine("m1", &[]).await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    let last_id = last_id_of(&mut events, &server).await;
    drop(events);
    server.sleepers(&["a.service", "b.service"], "launched").await;
    server.call("DELETE", "/fleet/v1/units/b.service", "").await;
    server.publish(&presence, running("a.service", "m1")).await;
    let mut events = follow(&server, since(&last_id)).await;
    assert_eq!(next(&mut events).await, "unit a.service launched - ");
    assert_eq!(next(&mut events).await, "unitGone b.service");
    assert_eq!(next(&mut events).await, "unitGone z.service", "its ID was not received");
    assert_eq!(next(&mut events).await, "state a.service m1 active");
    last_id_of(&mut events, &server).await;
}

// Holds: I-24
#[tokio::test]
async fn unresumable_stream_begins_with_resync() {
    let server = Server::start().await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    let last_id = last_id_of(&mut events, &server).await;
    for foreign in ["1000000", &format!("{last_id}-other")] {
        let mut events = follow(&server, since(foreign)).await;
        assert_eq!(next(&mut events).await, "resync", "{foreign}");
        last_id_of(&mut events, &server).await;
    }
    let response = server.get("/fleet/v1/events?since=yesterday").await;
    assert_eq!(
        (response.status, response.message().as_str()),
        (400, r#"invalid event ID "yesterday": use the ID of a received event"#)
    );
}

#[tokio::test]
async fn impossible_filter_is_refused() {
    let server = Server::start().await;
    for query in ["unit=hello", "machine=m/1"] {
        let response = server.get(&format!("/fleet/v1/events?{query}")).await;
        assert_eq!(response.status, 400, "{query}");
        assert!(!response.message().is_empty());
    }
}

#[tokio::test]
async fn stream_ends_cleanly_at_shutdown() {
    let server = Server::start().await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    server.stop().await;
    let last = timeout(DEADLINE, events.next_event()).await.unwrap();
    assert_eq!(last.unwrap(), None);
}

// Holds: I-24
#[tokio::test]
async fn watch_gap_sends_resync_to_all() {
    let server = Server::start().await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    let gaps = server.mirror.resyncs();
    server.store.set_unreachable(true);
    server.store.cut_watches();
    let elsewhere = Registry::new(server.store.inner(), Layout::DEFAULT_PREFIX);
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap();
    let new = NewUnit { name: name("a.service"), file, desired: TargetState::Inactive };
    elsewhere.put_unit(new, ExpectUnit::Absent).await.unwrap();
    server.store.set_unreachable(false);
    let mut progress = server.mirror.subscribe();
    let resumed = progress.wait_for(|_| server.mirror.resyncs() > gaps);
    drop(timeout(DEADLINE, resumed).await.unwrap().unwrap());
    assert_eq!(next(&mut events).await, "resync");
    last_id_of(&mut events, &server).await;
}

#[tokio::test]
async fn filters_exclude_other_events() {
    let server = Server::start().await;
    let (_one, _two) = (server.machine("m1", &[]).await, server.machine("m2", &[]).await);
    server.sleepers(&["a.service", "b.service"], "launched").await;
    let on = |machine: &str, unit: Option<&str>| {
        EventOptions::default().with_machine(machine.to_owned()).with_unit(unit.map(str::to_owned))
    };
    let mut there = follow(&server, on("m2", None)).await;
    let mut both = follow(&server, on("m2", Some("b.service"))).await;
    assert_eq!(next(&mut there).await, "resync");
    assert_eq!(next(&mut both).await, "resync");
    server.decide(&[("a.service", "m1"), ("b.service", "m2")], &[]).await;
    assert_eq!(next(&mut there).await, "unit b.service launched m2 ");
    assert_eq!(next(&mut both).await, "unit b.service launched m2 ");
    let options = EventOptions::default().with_template("c@.service");
    let mut instances = follow(&server, options).await;
    assert_eq!(next(&mut instances).await, "resync");
    server.sleepers(&["c.service", "d@1.service", "c@1.service"], "launched").await;
    let events_seen = next(&mut instances).await;
    assert!(events_seen.starts_with("unit c@1.service launched"), "{events_seen}");
    // A departure is also sent, even if the subscriber was disconnected at the time.
    let last_id = there.last_id().unwrap().to_owned();
    server.call("DELETE", "/fleet/v1/units/b.service", "").await;
    assert_eq!(next(&mut there).await, "unitGone b.service");
    let mut resumed = follow(&server, on("m2", None).with_since(last_id)).await;
    assert_eq!(next(&mut resumed).await, "unit a.service launched m1 ", "it may have been on m2");
    assert_eq!(next(&mut resumed).await, "unitGone b.service");
}

#[tokio::test]
async fn stream_format_is_server_sent_events() {
    let server = Server::start().await;
    let ListenAddress::Unix(path) = &server.at else { panic!("not a unix socket") };
    // A browser that has received no event sends an empty ID.
    for last in ["99-x", ""] {
        let mut stream = UnixStream::connect(path).await.unwrap();
        let head = "GET /fleet/v1/events HTTP/1.1\r\nHost: a\r\nLast-Event-ID: ";
        stream.write_all(format!("{head}{last}\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.ends_with("\n\n\r\n") {
            let mut bytes = [0; 512];
            let read = timeout(DEADLINE, stream.read(&mut bytes)).await.unwrap().unwrap();
            assert!(read > 0, "{text}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        assert!(text.contains("content-type: text/event-stream\r\n"), "{text}");
        assert!(text.contains("event: resync\ndata: {}\n\nid: 0\n\n"), "{text}");
    }
}

#[tokio::test]
async fn slow_subscriber_gets_resync_and_delays_no_other() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    let mut slow = follow(&server, EventOptions::default()).await;
    let mut quick = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut quick).await, "resync");
    let large = "x".repeat(100_000);
    for turn in 0..90 {
        let value = format!("{turn}{large}");
        let patch = format!(r#"[{{"op":"add","path":"/m1/metadata/a","value":"{value}"}}]"#);
        assert_eq!(server.call("PATCH", "/fleet/v1/machines", &patch).await.status, 204);
        assert!(next(&mut quick).await.contains(&value), "{turn}");
    }
    let mut events_seen = vec![next(&mut slow).await];
    while events_seen.last().unwrap() != "resync" || events_seen.len() == 1 {
        events_seen.push(next(&mut slow).await);
        assert!(events_seen.len() < 90, "no resync was sent");
    }
}

/// Starts a server at `listen`, on a store that other servers have used before.
async fn serve_at(listen: &ListenAddress, store: fleet_store::testing::FaultyStore) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(store, folder, listen, ServerLimits::default(), |api| api).await;
    server.mirror.wait_current().await.unwrap();
    server
}

#[tokio::test]
async fn reconnecting_stream_misses_nothing() {
    let server = Server::start().await;
    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let client = Client::new(&format!("unix://{}", path.display()).parse().unwrap());
    let mut events = client.events(&EventOptions::default()).await.unwrap().reconnecting();
    last_id_of(&mut events, &server).await;
    passing.abort();
    assert!(passing.await.unwrap_err().is_cancelled());
    std::fs::remove_file(&path).unwrap();
    server.sleepers(&["missed.service"], "launched").await;
    let _passing = relay(&path, &server.at);
    // The latest event may be repeated.
    loop {
        match &*next(&mut events).await {
            "resync" => panic!("unexpected resync"),
            "unit missed.service launched - " => return,
            _ => {}
        }
    }
}

#[tokio::test]
async fn reconnecting_stream_reports_unknown_gap() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
    let server = serve_at(&listen, working_store()).await;
    let mut events = follow(&server, EventOptions::default()).await.reconnecting();
    last_id_of(&mut events, &server).await;
    server.stop().await;
    let _other = serve_at(&listen, working_store()).await;
    assert_eq!(next(&mut events).await, "resync");
}

#[tokio::test]
async fn reconnecting_stream_ends_on_permanent_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.sock");
    let server = serve_at(&ListenAddress::Unix(path.clone()), working_store()).await;
    let mut events = follow(&server, EventOptions::default()).await.reconnecting();
    last_id_of(&mut events, &server).await;
    server.stop().await;
    let stranger = UnixListener::bind(&path).unwrap();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = stranger.accept().await.unwrap();
        let _asked = stream.read(&mut [0; 4096]).await.unwrap();
        let body = r#"{"error":{"code":401,"message":"authentication required"}}"#;
        let head = format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await.unwrap();
    });
    let error = timeout(DEADLINE, events.next_event()).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "authentication required");
    answering.await.unwrap();
}
