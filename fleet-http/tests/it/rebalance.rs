//! Rebalancing.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
use fleet_core::{ActiveState, Epoch, Intent, MachineId, UnitState};
use fleet_http::client::EventOptions;
use fleet_http::wire::ClusterEvent;
use fleet_store::registry::{PlacementWrites, Presence, SetPlacement};
use tokio::time::timeout;

use crate::harness::{Server, name, running};
use crate::http::{DEADLINE, HttpResponse};

const TTL: Duration = Duration::from_secs(60);

const PATH: &str = "/fleet/v1/rebalance";

async fn post(server: &Server, query: &str) -> HttpResponse {
    server.call("POST", &format!("{PATH}{query}"), "").await
}

/// Starts two machines: `m1` has four units, and both have a global one.
async fn lopsided() -> (Server, [Presence; 2]) {
    let server = Server::start().await;
    let machines = [server.machine("m1", &[]).await, server.machine("m2", &[]).await];
    let units = ["a.service", "b.service", "c.service", "d.service"];
    server.sleepers(&units, "launched").await;
    let options = r#"[{"section":"X-Fleet","name":"Global","value":"true"}]"#;
    let global = format!(r#"{{"desiredState":"launched","options":{options}}}"#);
    assert_eq!(server.put("/fleet/v1/units/all.service", &global).await.status, 201);
    server.decide(&units.map(|unit| (unit, "m1")), &[]).await;
    (server, machines)
}

/// Moves the first unit, like an engine.
async fn begin(server: &Server) {
    let revision = server.registry.request_rebalancing(RebalanceLimits::default()).await.unwrap();
    server.settle(revision).await;
    let [engine, from, to]: [MachineId; 3] = ["engine", "m1", "m2"].map(|id| id.parse().unwrap());
    let leader = server.registry.campaign(&engine, TTL).await.unwrap().unwrap();
    let seen = server.mirror.snapshot();
    let (unit, order) = (name("a.service"), seen.rebalancing.clone().unwrap());
    let moving = RecentMove { from, to: to.clone(), was_active: true };
    let moves = BTreeMap::from([(unit.clone(), moving)]);
    let noted = Rebalancing { moved: 1, moves, ..Rebalancing::clone(&order) };
    leader.update_rebalancing(&order, Some(&noted)).await.unwrap();
    let previous = seen.placement("a.service").cloned();
    let place = vec![SetPlacement { unit, machine: to, epoch: Epoch(2), previous }];
    let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
    let revision = leader.commit(&writes).await.unwrap();
    server.settle(revision).await;
}

const PREVIEW: &str = concat!(
    r#"{"machines":[{"after":3,"machineID":"m1","units":5},"#,
    r#"{"after":3,"machineID":"m2","units":1}],"moves":["#,
    r#"{"from":"m1","to":"m2","unit":"a.service"},{"from":"m1","to":"m2","unit":"b.service"}],"#,
    r#""order":{"atOnce":2,"gain":0,"keepUp":0,"moved":0}}"#,
);

#[tokio::test]
async fn order_lasts_until_cancelled() {
    let (server, _machines) = lopsided().await;
    assert_eq!(post(&server, "?atOnce=2&dryRun=1").await.json().to_string(), PREVIEW);
    let absent = server.get(PATH).await;
    assert_eq!(
        (absent.status, absent.message()),
        (404, "the cluster is not being rebalanced".into())
    );
    for _ in 0..2 {
        assert_eq!(post(&server, "?atOnce=2").await.json().to_string(), PREVIEW);
        assert_eq!(server.get(PATH).await.json().to_string(), PREVIEW);
    }
    // The plan without the order: nothing has to be moved.
    let without = server.call("DELETE", &format!("{PATH}?dryRun=1"), "").await;
    assert_eq!(without.json().to_string(), "{}");
    assert_eq!(server.get(PATH).await.status, 200);
    for _ in 0..2 {
        assert_eq!(server.call("DELETE", PATH, "").await.status, 204);
        assert_eq!(server.get(PATH).await.status, 404);
    }
}

#[tokio::test]
async fn no_worthwhile_move_reports_reason() {
    let (server, _machines) = lopsided().await;
    let report = post(&server, "?gain=9").await.json();
    let reason = "the machines have 1 to 5 units, and no allowed move would improve the balance";
    assert_eq!((&report["reason"], report.get("moves")), (&reason.into(), None));
    assert_eq!(server.get(PATH).await.status, 404, "no order was stored");
    // An existing order gets the new limits; otherwise the old ones would be carried out.
    post(&server, "").await;
    post(&server, "?gain=9").await;
    assert_eq!(server.get(PATH).await.json()["order"]["gain"], 9);
    let alone = Server::start().await;
    assert_eq!(post(&alone, "").await.json()["reason"], "there is no other machine");
}

#[tokio::test]
async fn pending_moves_are_reported_with_status() {
    let (server, [_one, other]) = lopsided().await;
    begin(&server).await;
    let report = server.get(PATH).await.json();
    let expected =
        r#"[{"reason":"its machine has not reported it yet","to":"m2","unit":"a.service"}]"#;
    assert_eq!(report["underWay"].to_string(), expected);
    assert_eq!(report["moves"].to_string(), r#"[{"from":"m1","to":"m2","unit":"b.service"}]"#);
    assert_eq!(report["order"]["moved"], 1);
    let epoch = server.mirror.snapshot().placement("a.service").unwrap().epoch;
    let mut state = UnitState { epoch, ..running("a.service", "m2") };
    state.systemd.active = ActiveState::Activating;
    server.publish(&other, state.clone()).await;
    let report = server.get(PATH).await.json();
    assert_eq!(report["underWay"][0]["reason"], "it is activating (running)");
    state.systemd.active = ActiveState::Active;
    server.publish(&other, state).await;
    assert_eq!(server.get(PATH).await.json().get("underWay"), None);
}

#[tokio::test]
async fn waits_and_stuck_are_reported() {
    let server = Server::start().await;
    let [one, two] = [server.machine("m1", &[]).await, server.machine("m2", &[]).await];
    let placed = [("w@1.service", "m1"), ("w@2.service", "m1"), ("w@3.service", "m1")];
    let last = ("w@4.service", "m2");
    server.sleepers(&placed.map(|(unit, _)| unit), "launched").await;
    server.sleepers(&[last.0], "launched").await;
    server.decide(&[&placed[..], &[last]].concat(), &[]).await;
    let epoch = server.mirror.snapshot().placement(last.0).unwrap().epoch;
    for (unit, _) in &placed {
        server.publish(&one, UnitState { epoch, ..running(unit, "m1") }).await;
    }
    let mut last = UnitState { epoch, ..running(last.0, "m2") };
    let drained: MachineId = "m1".parse().unwrap();
    for (active, stuck) in [(ActiveState::Activating, None), (ActiveState::Failed, Some(true))] {
        last.systemd.active = active;
        server.publish(&two, last.clone()).await;
        let report = post(&server, "?keepUp=3&dryRun=1").await.json();
        let waits = format!(
            "too few instances are up; w@4.service is not up on m2: it is {active} (running)"
        );
        assert_eq!(
            (report["moves"].as_array().unwrap().len(), &report["waits"]),
            (1, &waits.into())
        );
        assert_eq!(report.get("stuck").and_then(serde_json::Value::as_bool), stuck);

        let intent = Some(Intent::Drained { min_available: 3 });
        server.settle(server.registry.set_intent(&drained, intent).await.unwrap()).await;
        let report = post(&server, "?dryRun=1").await.json();
        let waits = "m1 must be drained first, but w@1.service stays for now: 3 instances of \
                     w@.service are up and 3 must stay up";
        assert_eq!(report["waits"], waits);
        assert_eq!(report.get("stuck").and_then(serde_json::Value::as_bool), stuck);
        server.settle(server.registry.set_intent(&drained, None).await.unwrap()).await;
    }
    last.systemd.active = ActiveState::Active;
    server.publish(&two, last).await;
    let report = post(&server, "?keepUp=3&dryRun=1").await.json();
    assert_eq!((report["moves"].as_array().unwrap().len(), report.get("waits")), (1, None));
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let server = Server::start().await;
    for (query, message) in [
        ("?atOnce=0", "query parameter \"atOnce\": \"0\" is not a number from 1 to 100"),
        ("?atOnce=101", "query parameter \"atOnce\": \"101\" is not a number from 1 to 100"),
        ("?most=0", "query parameter \"most\": \"0\" is not a number from 1 to 4294967295"),
        ("?gain=-1", "query parameter \"gain\": \"-1\" is not a number from 0 to 4294967295"),
        ("?keepUp=two", "query parameter \"keepUp\": \"two\" is not a number from 0 to 4294967295"),
        ("?dryRun=perhaps", "query parameter \"dryRun\": \"perhaps\" is neither 1 nor 0"),
    ] {
        let response = post(&server, query).await;
        assert_eq!((response.status, response.message()), (400, message.to_owned()), "{query}");
    }
    let put = server.put(PATH, "").await;
    let message = "only GET, POST and DELETE supported against this resource";
    assert_eq!((put.status, put.message()), (405, message.to_owned()));
}

#[tokio::test]
async fn client_orders_reads_and_cancels() {
    let (server, _machines) = lopsided().await;
    let client = server.client();
    let limits = RebalanceLimits {
        max_in_flight: 2,
        max_moves: Some(1),
        min_available: 1,
        ..RebalanceLimits::default()
    };
    let preview = client.rebalance(&limits, true).await.unwrap();
    assert_eq!((preview.moves.len(), preview.is_over()), (1, false));
    assert_eq!(client.rebalance_status().await.unwrap(), None);
    assert_eq!(client.rebalance(&limits, false).await.unwrap(), preview);
    let order = client.rebalance_status().await.unwrap().unwrap().order;
    assert_eq!((order.at_once, order.most, order.min_available), (2, Some(1), 1));
    client.cancel_rebalance().await.unwrap();
    assert_eq!(client.rebalance_status().await.unwrap(), None);
}

#[tokio::test]
async fn events_report_moves_and_completion() {
    let (server, _machines) = lopsided().await;
    let mut events = server.client().events(&EventOptions::default()).await.unwrap();
    let mut next_order = async || loop {
        let event =
            timeout(DEADLINE, events.next_event()).await.expect("no event within the deadline");
        match event.unwrap().expect("the stream ended") {
            ClusterEvent::Rebalance(order) => return Some(order.moving),
            ClusterEvent::RebalanceGone => return None,
            _ => {}
        }
    };
    begin(&server).await;
    let moving = loop {
        // The first event may precede the first move.
        match next_order().await {
            Some(moving) if moving.is_empty() => {}
            other => break other,
        }
    };
    let moving = moving.expect("the rebalancing is over");
    assert_eq!((moving[0].unit.as_str(), moving[0].to.as_str()), ("a.service", "m2"));
    server.registry.end_rebalancing().await.unwrap();
    while next_order().await.is_some() {}
}
