//! Unit states: filters, the state of one unit, and additional fields.

use fleet_core::health::Health;
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{ActiveState, Generation, SystemdState, UnitState};
use fleet_http::client::StateFilter;

use crate::harness::{Server, name, running};

async fn three_states() -> Server {
    let server = Server::start().await;
    let one = server.machine("m1", &[("zone", "a")]).await;
    let two = server.machine("m2", &[("zone", "b")]).await;
    server.publish(&one, running("a.service", "m1")).await;
    server.publish(&two, running("a.service", "m2")).await;
    server.publish(&two, running("b.service", "m2")).await;
    server
}

#[tokio::test]
async fn filters_are_exact_and_combined() {
    let server = three_states().await;
    let cases: [(&str, &[&str]); 8] = [
        ("", &["a.service m1", "a.service m2", "b.service m2"]),
        ("?machineID=m2", &["a.service m2", "b.service m2"]),
        ("?unitName=a.service", &["a.service m1", "a.service m2"]),
        ("?unitName=a.service&machineID=m2", &["a.service m2"]),
        ("?unitName=a", &[]),
        ("?machineID=m", &[]),
        ("?machineID=&unitName=", &["a.service m1", "a.service m2", "b.service m2"]),
        ("?machineID=m1&machineID=m2&alt=json", &["a.service m1"]),
    ];
    for (query, expected) in cases {
        let page = server.get(&format!("/fleet/v1/state{query}")).await.json();
        let states = page["states"].as_array().into_iter().flatten();
        let text = |state: &serde_json::Value, field| state[field].as_str().unwrap().to_owned();
        let found: Vec<String> =
            states.map(|s| text(s, "name") + " " + &text(s, "machineID")).collect();
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn states_filter_by_metadata_template_and_state() {
    let server = three_states().await;
    let three = server.machine("m3", &[("zone", "b")]).await;
    let failed = SystemdState::new(LoadState::Loaded, ActiveState::Failed, "failed");
    let state = UnitState { systemd: failed, ..running("c@1.service", "m3") };
    server.publish(&three, state).await;
    let client = server.client();
    let listed = async |filter: StateFilter| {
        let states = client.states(&filter).await.unwrap();
        states.iter().map(|s| format!("{} {}", s.name, s.machine_id)).collect::<Vec<_>>()
    };
    let none = StateFilter::default;
    let metadata = vec!["zone=b".to_owned()];
    let found = listed(none().with_metadata(metadata)).await;
    assert_eq!(found, ["a.service m2", "b.service m2", "c@1.service m3"]);
    let template = Some(name("c@.service"));
    assert_eq!(listed(none().with_template(template)).await, ["c@1.service m3"]);
    let active = Some(ActiveState::Failed);
    assert_eq!(listed(none().with_active(active)).await, ["c@1.service m3"]);
    let (active, metadata) = (Some(ActiveState::Active), vec!["zone=a".to_owned()]);
    assert_eq!(listed(none().with_active(active).with_metadata(metadata)).await, ["a.service m1"]);
}

#[tokio::test]
async fn state_is_that_of_the_placement() {
    let server = three_states().await;
    let fetched = server.get("/fleet/v1/state/a.service").await.json();
    assert_eq!(fetched["machineID"], "m1", "without a placement the first machine counts");
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m2")], &[]).await;
    let fetched = server.get("/fleet/v1/state/a.service").await.json();
    assert_eq!(fetched["machineID"], "m2");
}

#[tokio::test]
async fn failed_state_has_all_fields() {
    let server = Server::start().await;
    let presence = server.machine("m1", &[]).await;
    let systemd = SystemdState {
        result: Some("exit-code".to_owned()),
        exit: Some(ExitStatus::Code(3)),
        restarts: 5,
        ..SystemdState::new(LoadState::Loaded, ActiveState::Failed, "failed")
    };
    let state = UnitState {
        systemd,
        generation: Generation(2),
        problem: Some("it was started too often".to_owned()),
        health: Some(Health::Unhealthy { message: "connection refused".to_owned() }),
        ..running("a.service", "m1")
    };
    server.publish(&presence, state).await;
    insta::assert_snapshot!(server.get("/fleet/v1/state/a.service").await);
}
