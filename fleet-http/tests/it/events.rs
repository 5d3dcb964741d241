//! Following what changes: nothing is missed in silence, and nobody waits for who does not read.

use fleet_core::{Reason, TargetState};
use fleet_http::wire::ClusterEvent;
use fleet_http::{Client, EventOptions, Events, ListenAddress, ServerLimits};
use fleet_store::{ExpectUnit, Layout, NewUnit, Registry};
use fleet_unitfile::UnitFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::harness::{Server, name, running, whole_store};
use crate::http::DEADLINE;
use crate::relay::relay;

async fn follow(server: &Server, options: EventOptions) -> Events {
    server.client().events(&options).await.unwrap()
}

fn since(id: &str) -> EventOptions {
    EventOptions { since: Some(id.to_owned()), ..EventOptions::default() }
}

/// The next event in short.
async fn next(events: &mut Events) -> String {
    let event = timeout(DEADLINE, events.next_event()).await.expect("an event comes");
    match event.unwrap().expect("the stream goes on") {
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

/// Makes two changes and reads until the last of them, by when the place of the first is known.
/// What happened just before may be told once more.
async fn place(events: &mut Events, server: &Server) -> String {
    server.sleepers(&["z.service"], "inactive").await;
    while next(events).await != "unit z.service inactive - " {}
    assert_eq!(server.call("DELETE", "/fleet/v1/units/z.service", "").await.status, 204);
    while next(events).await != "unitGone z.service" {}
    events.last_id().unwrap().to_owned()
}

// Holds: D-30
#[tokio::test]
async fn all_that_changes_is_told() {
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
    let gone = presence.publish_states(&[], &[name("a.service")]).await.unwrap();
    server.settle(gone).await;
    assert_eq!(next(&mut events).await, "unit a.service launched m1 ");
    assert_eq!(next(&mut events).await, "stateGone a.service m1");
    server.call("DELETE", "/fleet/v1/units/a.service", "").await;
    assert_eq!(next(&mut events).await, "unitGone a.service");
    presence.leave().await.unwrap();
    assert_eq!(next(&mut events).await, "machineGone m1");
}

// Holds: I-24
#[tokio::test]
async fn who_comes_back_hears_what_was_missed() {
    let server = Server::start().await;
    let presence = server.machine("m1", &[]).await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    let seen = place(&mut events, &server).await;
    drop(events);
    server.sleepers(&["a.service", "b.service"], "launched").await;
    server.call("DELETE", "/fleet/v1/units/b.service", "").await;
    server.publish(&presence, running("a.service", "m1")).await;
    let mut events = follow(&server, since(&seen)).await;
    assert_eq!(next(&mut events).await, "unit a.service launched - ");
    assert_eq!(next(&mut events).await, "unitGone b.service");
    assert_eq!(next(&mut events).await, "unitGone z.service", "its place was not read");
    assert_eq!(next(&mut events).await, "state a.service m1 active");
    place(&mut events, &server).await;
}

// Holds: I-24
#[tokio::test]
async fn who_cannot_go_on_is_told_so() {
    let server = Server::start().await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    let seen = place(&mut events, &server).await;
    for foreign in ["1000000", &format!("{seen}-other")] {
        let mut events = follow(&server, since(foreign)).await;
        assert_eq!(next(&mut events).await, "resync", "{foreign}");
        place(&mut events, &server).await;
    }
    let answer = server.get("/fleet/v1/events?since=yesterday").await;
    assert_eq!(
        (answer.status, answer.message().as_str()),
        (400, r#"no event has the id "yesterday": write one that was told"#)
    );
}

#[tokio::test]
async fn who_could_never_hear_of_anything_is_told_so() {
    let server = Server::start().await;
    for query in ["unit=hello", "machine=m/1"] {
        let answer = server.get(&format!("/fleet/v1/events?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(!answer.message().is_empty());
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_server_and_is_not_cut_off() {
    let server = Server::start().await;
    let mut events = follow(&server, EventOptions::default()).await;
    assert_eq!(next(&mut events).await, "resync");
    server.stop().await;
    let last = timeout(DEADLINE, events.next_event()).await.unwrap();
    assert_eq!(last.unwrap(), None);
}

// Holds: I-24
#[tokio::test]
async fn a_gap_in_the_watch_is_told_to_all() {
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
    let again = progress.wait_for(|_| server.mirror.resyncs() > gaps);
    drop(timeout(DEADLINE, again).await.unwrap().unwrap());
    assert_eq!(next(&mut events).await, "resync");
    place(&mut events, &server).await;
}

#[tokio::test]
async fn filters_leave_out_what_is_not_wanted() {
    let server = Server::start().await;
    let (_one, _two) = (server.machine("m1", &[]).await, server.machine("m2", &[]).await);
    server.sleepers(&["a.service", "b.service"], "launched").await;
    let on = |machine: &str, unit: Option<&str>| EventOptions {
        machine: Some(machine.to_owned()),
        unit: unit.map(str::to_owned),
        ..EventOptions::default()
    };
    let mut there = follow(&server, on("m2", None)).await;
    let mut both = follow(&server, on("m2", Some("b.service"))).await;
    assert_eq!(next(&mut there).await, "resync");
    assert_eq!(next(&mut both).await, "resync");
    server.decide(&[("a.service", "m1"), ("b.service", "m2")], &[]).await;
    assert_eq!(next(&mut there).await, "unit b.service launched m2 ");
    assert_eq!(next(&mut both).await, "unit b.service launched m2 ");
    let template = Some("c@.service".to_owned());
    let options = EventOptions { template, ..EventOptions::default() };
    let mut instances = follow(&server, options).await;
    assert_eq!(next(&mut instances).await, "resync");
    server.sleepers(&["c.service", "d@1.service", "c@1.service"], "launched").await;
    let told = next(&mut instances).await;
    assert!(told.starts_with("unit c@1.service launched"), "{told}");
    // Leaving is heard of as well, also by who was away when it happened.
    let seen = there.last_id().unwrap().to_owned();
    server.call("DELETE", "/fleet/v1/units/b.service", "").await;
    assert_eq!(next(&mut there).await, "unitGone b.service");
    let mut again = follow(&server, EventOptions { since: Some(seen), ..on("m2", None) }).await;
    assert_eq!(next(&mut again).await, "unit a.service launched m1 ", "it may have been there");
    assert_eq!(next(&mut again).await, "unitGone b.service");
}

#[tokio::test]
async fn what_is_told_is_a_stream_of_server_sent_events() {
    let server = Server::start().await;
    let ListenAddress::Unix(path) = &server.at else { panic!("a unix socket") };
    // A browser that has heard nothing yet has an empty one.
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
async fn who_does_not_read_holds_nobody_up_and_is_told_to_look_again() {
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
    let mut told = vec![next(&mut slow).await];
    while told.last().unwrap() != "resync" || told.len() == 1 {
        told.push(next(&mut slow).await);
        assert!(told.len() < 90, "it has heard everything");
    }
}

/// A server at a path, on a store that others have had before.
async fn serve_at(listen: &ListenAddress, store: fleet_store::testing::FaultyStore) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(store, folder, listen, ServerLimits::default(), |_| {}).await;
    server.mirror.wait_current().await.unwrap();
    server
}

#[tokio::test]
async fn a_lasting_stream_misses_nothing_where_its_connection_breaks() {
    let server = Server::start().await;
    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let client = Client::new(&format!("unix://{}", path.display()).parse().unwrap());
    let mut events = client.events(&EventOptions::default()).await.unwrap().reconnecting();
    place(&mut events, &server).await;
    passing.abort();
    assert!(passing.await.unwrap_err().is_cancelled());
    std::fs::remove_file(&path).unwrap();
    server.sleepers(&["missed.service"], "launched").await;
    let _passing = relay(&path, &server.at);
    // What came last before may be told once more.
    loop {
        match &*next(&mut events).await {
            "resync" => panic!("the server knows what was missed"),
            "unit missed.service launched - " => return,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_lasting_stream_says_when_nobody_knows_what_was_missed() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
    let server = serve_at(&listen, whole_store()).await;
    let mut events = follow(&server, EventOptions::default()).await.reconnecting();
    place(&mut events, &server).await;
    server.stop().await;
    let _other = serve_at(&listen, whole_store()).await;
    assert_eq!(next(&mut events).await, "resync");
}

#[tokio::test]
async fn a_lasting_stream_ends_where_trying_again_is_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.sock");
    let server = serve_at(&ListenAddress::Unix(path.clone()), whole_store()).await;
    let mut events = follow(&server, EventOptions::default()).await.reconnecting();
    place(&mut events, &server).await;
    server.stop().await;
    let stranger = UnixListener::bind(&path).unwrap();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = stranger.accept().await.unwrap();
        let _asked = stream.read(&mut [0; 4096]).await.unwrap();
        let body = r#"{"error":{"code":401,"message":"who are you"}}"#;
        let head = format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await.unwrap();
    });
    let error = timeout(DEADLINE, events.next_event()).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "who are you");
    answering.await.unwrap();
}
