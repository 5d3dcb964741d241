//! During an outage of the store, responses report their staleness and invent nothing.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_store::registry::{ExpectUnit, NewUnit};
use fleet_store::{Layout, Registry};
use fleet_unitfile::UnitFile;
use futures_util::future::join_all;

use crate::harness::{Server, name, working_store};
use crate::http::request;

#[tokio::test]
async fn requests_fail_before_first_read() {
    let store = working_store();
    store.set_unreachable(true);
    let server = Server::start_unread(store, |api| api).await;
    let paths = ["units", "units/a.service", "state", "state/a.service", "machines"];
    let responses = paths.map(async |path| server.get(&format!("/fleet/v1/{path}")).await);
    for (path, response) in paths.iter().zip(join_all(responses).await) {
        assert_eq!(response.status, 503, "{path}: an unread store is not an empty one");
        assert_eq!(response.message(), "fleet server unable to communicate with its store");
        assert_eq!(response.header("retry-after"), Some("1"));
    }
    assert_eq!(server.get("/healthz").await.to_string(), "200 ok");
    let response = server.get("/readyz").await;
    assert_eq!(response.status, 503);
    let expected = "the daemon has no contact with its store: its view of the cluster is outdated";
    assert_eq!(response.message(), expected);
}

/// With socket activation, a request starts the daemon. The request must not fail because the
/// daemon has not read the store yet.
// Holds: D-1
#[tokio::test]
async fn requests_wait_for_first_read() {
    let store = working_store();
    store.set_unreachable(true);
    let server = Server::start_unread(store.clone(), |api| api).await;
    let asking = server.get("/fleet/v1/units");
    let (response, ()) = tokio::join!(asking, async {
        // Requests that do not need the store are answered in the meantime.
        assert_eq!(server.get("/fleet/v1/version").await.status, 200);
        store.set_unreachable(false);
    });
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn synced_server_is_ready() {
    let server = Server::start().await;
    assert_eq!(server.get("/readyz").await.to_string(), "200 ok");
    assert_eq!(server.get("/fleet/v1/units").await.header("x-fleet-behind"), None);
}

/// For example etcd with the alarm NOSPACE, which serves reads and renews leases.
#[tokio::test]
async fn store_that_refuses_writes_is_not_ready() {
    let server = Server::start().await;
    let store = server.store.clone();
    let body = r#"{"source":"[Service]\nExecStart=/bin/true\n"}"#;
    store.lose_requests(1);
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 503);
    let response = server.get("/readyz").await;
    assert_eq!(response.status, 503);
    assert!(response.message().starts_with("the store refuses writes: "), "{}", response.message());
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 201);
    assert_eq!(server.get("/readyz").await.to_string(), "200 ok");
}

// Holds: I-15, D-1
#[tokio::test]
async fn reads_continue_and_report_staleness() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    server.store.set_unreachable(true);
    let deadline = tokio::time::timeout(crate::http::DEADLINE, wait_for_staleness(&server));
    let age = deadline.await.expect("no age within the deadline");
    assert!(age >= 1);
    let client = server.client();
    assert_eq!(client.behind(), None, "before the first request");
    client.units().await.unwrap();
    assert!(client.behind().is_some_and(|behind| behind.as_secs() >= age));
    assert_eq!(server.get("/readyz").await.status, 503);
}

async fn wait_for_staleness(server: &Server) -> u64 {
    loop {
        let response = server.get("/fleet/v1/units/a.service").await;
        assert_eq!(response.status, 200);
        if let Some(age) = response.header("x-fleet-behind") {
            return age.parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn writes_fail_with_the_cause() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    server.store.set_unreachable(true);
    let patch = r#"[{"op":"add","path":"/m1/metadata/a","value":"1"}]"#;
    let source = r#"{"source":"[Service]\nType=exec\n"}"#;
    let responses = [
        server.put("/fleet/v1/units/b.service", source).await,
        server.put("/fleet/v1/units/a.service", source).await,
        server.put("/fleet/v1/units/a.service", r#"{"desiredState":"loaded"}"#).await,
        server.call("DELETE", "/fleet/v1/units/a.service", "").await,
        server.call("POST", "/fleet/v1/units/a.service/restart", "").await,
        server.call("PATCH", "/fleet/v1/machines", patch).await,
    ];
    for response in responses {
        assert_eq!(response.status, 503);
        let message = response.message();
        assert!(message.starts_with("the store failed: the store is unavailable: "), "{message}");
    }
    server.store.set_unreachable(false);
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["desiredState"], "launched");
}

#[tokio::test]
async fn uncertain_write_is_an_error() {
    let server = Server::start().await;
    server.store.lose_responses(1);
    let source = r#"{"source":"[Service]\nType=exec\n"}"#;
    let response = server.put("/fleet/v1/units/a.service", source).await;
    assert_eq!(response.status, 503);
    assert!(response.message().contains("the write might have been applied"), "{response}");
}

#[tokio::test]
async fn read_after_write_waits_for_delayed_watch() {
    let server = Server::start().await;
    server.store.set_delay(Duration::from_millis(100));
    let source = r#"{"source":"[Service]\nType=exec\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", source).await.status, 201);
    assert_eq!(server.get("/fleet/v1/units/a.service").await.status, 200);
    assert_eq!(server.call("DELETE", "/fleet/v1/units/a.service", "").await.status, 204);
    assert_eq!(server.get("/fleet/v1/units/a.service").await.status, 404);
}

/// After a create conflict, a read must find the existing unit. Otherwise, fleetctl would report
/// that another client has destroyed the unit.
#[tokio::test]
async fn read_after_conflict_waits_for_delayed_watch() {
    let server = Server::start().await;
    server.sleepers(&["b.service"], "inactive").await;
    let unseen = Registry::new(server.store.inner(), Layout::DEFAULT_PREFIX);
    server.store.set_unreachable(true);
    // After several failures the mirror retries less often.
    tokio::time::timeout(crate::http::DEADLINE, wait_for_reads(&server, 4)).await.unwrap();
    let file = UnitFile::parse("[Service]\nType=exec\n").unwrap();
    let unit = NewUnit { name: name("a.service"), file, desired: TargetState::Inactive };
    unseen.put_unit(unit, ExpectUnit::Absent).await.unwrap();
    server.store.set_unreachable(false);
    let headers = [("Content-Type", "application/json"), ("If-None-Match", "*")];
    let source = r#"{"desiredState":"inactive","source":"[Service]\nType=exec\n"}"#;
    let path = "/fleet/v1/units/a.service";
    assert_eq!(request(&server.at, "PUT", path, &headers, source).await.status, 412);
    assert_eq!(server.get(path).await.status, 200);
}

async fn wait_for_reads(server: &Server, more: usize) {
    let before = server.store.reads();
    while server.store.reads() < before + more {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn write_succeeds_if_visibility_times_out() {
    let server = Server::start().await;
    server.sleepers(&["b.service"], "inactive").await;
    server.mirror.shutdown();
    let source = r#"{"source":"[Service]\nType=exec\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", source).await.status, 201);
    // A second server on the same store shows it.
    let other = Server::start_unread(server.store.clone(), |api| api).await;
    other.mirror.wait_current().await.unwrap();
    assert_eq!(other.get("/fleet/v1/units/a.service").await.status, 200);
}
