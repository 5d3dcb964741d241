//! Additional fields of units: reason, source and restarts.

use fleet_core::reason::{NearestMachine, tally};
use fleet_core::{MachineId, Reason, Refusal};

use crate::harness::{Server, name, running};

fn no_machine_fits() -> Reason {
    let wanted = vec!["ssd".to_owned()];
    let lacks = |found: Option<&str>| Refusal::MachineMetadata {
        key: "disk".to_owned(),
        wanted: wanted.clone(),
        found: found.map(str::to_owned),
    };
    let elsewhere = Refusal::MachineId { wanted: "m9".parse().unwrap() };
    let machine = |id: &str| id.parse::<MachineId>().unwrap();
    let refusals = [
        (machine("m1"), lacks(Some("hdd"))),
        (machine("m2"), lacks(None)),
        (machine("m3"), elsewhere),
    ];
    Reason::NoMachineFits { machines: 3, tallies: tally(refusals), nearest: None }
}

// Holds: D-24
#[tokio::test]
async fn unplaced_unit_has_a_reason() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[], &[("a.service", no_machine_fits())]).await;
    let mut fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["reason"], no_machine_fits().to_string());
    let listed = server.get("/fleet/v1/units").await.json();
    assert_eq!(listed["units"][0]["reasonDetail"], fetched["reasonDetail"]);
    // The refusals' texts are not fixed here, only their places.
    for refusal in fetched["reasonDetail"]["refusals"].as_array_mut().unwrap() {
        assert!(
            refusal["text"].as_str().is_some_and(|text| text.contains("requires")),
            "{refusal}"
        );
        refusal["text"] = "...".into();
    }
    insta::assert_snapshot!(format!("{:#}", fetched["reasonDetail"]));
}

#[tokio::test]
async fn reason_summary_is_one_clause() {
    let server = Server::start().await;
    server.sleepers(&["a.service", "b.service"], "launched").await;
    server.decide(&[], &[("a.service", no_machine_fits())]).await;
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    let summary = "no machine fits: 2 lack disk=ssd, 1 is not m9";
    assert_eq!(fetched["reasonSummary"], summary);
    let listed = server.get("/fleet/v1/units").await.json();
    assert_eq!(listed["units"][0]["reasonSummary"], summary);
    let other = server.get("/fleet/v1/units/b.service").await.json();
    assert_eq!(other.get("reasonSummary"), None);
}

// Holds: I-15
#[tokio::test]
async fn unit_on_absent_machine_has_unknown_for() {
    let server = Server::start().await;
    server.sleepers(&["a.service", "b.service"], "launched").await;
    let presence = server.machine("m1", &[]).await;
    // No server has ever seen the other unit's machine.
    server.decide(&[("a.service", "m1"), ("b.service", "m2")], &[]).await;
    server.publish(&presence, running("a.service", "m1")).await;
    let fetch = async |unit: &str| server.get(&format!("/fleet/v1/units/{unit}")).await.json();
    assert!(fetch("a.service").await["unknownFor"].is_null(), "its machine is present");
    presence.leave().await.unwrap();
    server.sleepers(&["c.service"], "inactive").await; // What this shows came after that.
    assert_eq!(server.get("/fleet/v1/state/a.service").await.status, 404);
    assert!(fetch("a.service").await["unknownFor"].is_u64(), "{}", fetch("a.service").await);
    assert!(fetch("b.service").await["unknownFor"].is_u64(), "{}", fetch("b.service").await);
    let listed = server.get("/fleet/v1/units").await.json();
    let unknown = |at: usize| listed["units"][at]["unknownFor"].is_u64();
    assert_eq!([unknown(0), unknown(1), unknown(2)], [true, true, false], "{listed:#}");
    let _back = server.machine("m1", &[]).await;
    assert!(fetch("a.service").await["unknownFor"].is_null(), "its machine is back");
}

// Holds: D-24
#[tokio::test]
async fn every_reason_kind_has_its_own_fields() {
    let server = Server::start().await;
    let group = vec![name("a.service"), name("b.service")];
    let at = |unit: &str, id: &str| (name(unit), id.parse::<MachineId>().unwrap());
    let reasons = [
        Reason::NoMachines,
        Reason::NoMachineFitsGroup {
            group: group.clone(),
            machines: 2,
            tallies: Vec::new(),
            nearest: Some(NearestMachine {
                machine: "m2".parse().unwrap(),
                unit: Some(name("b.service")),
                refusal: Refusal::Cordon {},
            }),
        },
        Reason::AttemptLimit,
        Reason::PeerUnknown { peer: name("b.service").into() },
        Reason::PeerInactive { peer: name("b.service").into() },
        Reason::PeersApart { one: at("b.service", "m1"), other: at("c.service", "m2") },
        Reason::Cycle { units: group },
        Reason::PeerUnknown { peer: "db@*.service".parse().unwrap() },
    ];
    let mut details = Vec::new();
    for reason in reasons {
        server.sleepers(&["a.service"], "launched").await;
        server.decide(&[], &[("a.service", reason)]).await;
        let fetched = server.get("/fleet/v1/units/a.service").await.json();
        details.push(fetched["reasonDetail"].to_string());
        server.call("DELETE", "/fleet/v1/units/a.service", "").await;
    }
    insta::assert_snapshot!(details.join("\n"));
}

#[tokio::test]
async fn waiting_unit_has_placement_and_reason() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let presence = server.machine("m1", &[]).await;
    server.decide(&[("a.service", "m1")], &[]).await;
    presence.leave().await.unwrap();
    let waits_for = |id: &str| Reason::NotRescheduled { machine: id.parse().unwrap() };
    server.decide(&[], &[("a.service", waits_for("m1"))]).await;
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(
        (&fetched["machineID"], &fetched["reason"]),
        (&"m1".into(), &waits_for("m1").to_string().into())
    );
    let detail = r#"{"kind":"notRescheduled","machineID":"m1"}"#;
    assert_eq!(fetched["reasonDetail"].to_string(), detail);
    // For another machine it would contradict the placement.
    server.decide(&[], &[("a.service", waits_for("m2"))]).await;
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched.get("reason"), None);
}

#[tokio::test]
async fn lists_omit_the_source() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    let listed = server.get("/fleet/v1/units").await.json();
    assert!(listed["units"][0].get("source").is_none(), "{listed}");
    assert_eq!(listed["units"][0]["hash"].as_str().map(str::len), Some(40));
}

#[tokio::test]
async fn non_utf8_source_is_base64() {
    let server = Server::start().await;
    let source = b"# caf\xe9\n[Service]\nType=exec\n";
    let file = fleet_unitfile::UnitFile::parse(source).unwrap();
    let upload = fleet_http::client::UnitUpload::new(file);
    server.client().put_unit(&name("a.service"), &upload).await.unwrap();
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert!(fetched.get("source").is_none(), "{fetched}");
    use base64::Engine as _;
    let encoded = fetched["sourceBase64"].as_str().unwrap();
    assert_eq!(base64::engine::general_purpose::STANDARD.decode(encoded).unwrap(), source);
}

#[tokio::test]
async fn global_unit_state_is_that_of_slowest_machine() {
    let server = Server::start().await;
    let source = r#"{"desiredState":"launched","source":"[X-Fleet]\nGlobal=true\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", source).await.status, 201);
    let current = async || {
        let fetched = server.get("/fleet/v1/units/a.service").await.json();
        assert_eq!((&fetched["global"], fetched.get("machineID")), (&true.into(), None));
        let listed = server.get("/fleet/v1/units").await.json();
        assert_eq!(listed["units"][0]["currentState"], fetched["currentState"]);
        fetched["currentState"].as_str().unwrap().to_owned()
    };
    assert_eq!(current().await, "inactive");
    let presence = server.machine("m1", &[]).await;
    server.publish(&presence, running("a.service", "m1")).await;
    assert_eq!(current().await, "launched");
}

// Holds: D-28
#[tokio::test]
async fn restarts_are_counted() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let restart = || server.call("POST", "/fleet/v1/units/a.service/restart", "");
    let first = restart().await;
    assert_eq!(first.status, 202);
    let first = first.json()["generation"].as_u64().unwrap();
    let second = restart().await.json()["generation"].as_u64().unwrap();
    assert!(first > 0 && second > first, "{first}, then {second}");
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["generation"], second);
}

// Holds: D-28
#[tokio::test]
async fn inactive_and_unknown_units_are_not_restarted() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    let response = server.call("POST", "/fleet/v1/units/a.service/restart", "").await;
    assert_eq!(response.status, 409);
    assert_eq!(
        response.message(),
        "cannot restart a.service: its desired state is inactive; start it instead"
    );
    for unit in ["b.service", "b"] {
        let response = server.call("POST", &format!("/fleet/v1/units/{unit}/restart"), "").await;
        assert_eq!(response.status, 404, "{unit}");
    }
}

#[tokio::test]
async fn restart_of_a_loaded_unit_launches_it() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "loaded").await;
    let fetched = async || server.get("/fleet/v1/units/a.service").await.json();
    let dry = server.call("POST", "/fleet/v1/units/a.service/restart?dryRun=1", "").await;
    assert_eq!(dry.status, 200, "{dry}");
    assert_eq!(fetched().await["desiredState"], "loaded", "nothing has changed");
    let restarted = server.call("POST", "/fleet/v1/units/a.service/restart", "").await;
    assert_eq!(restarted.status, 202);
    let unit = fetched().await;
    assert_eq!(unit["desiredState"], "launched");
    assert_eq!(unit["generation"], restarted.json()["generation"]);
}

#[tokio::test]
async fn only_runs_of_loaded_units_are_stopped() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "loaded").await;
    server.sleepers(&["b.service"], "launched").await;
    let stop =
        async |unit: &str| server.call("POST", &format!("/fleet/v1/units/{unit}/stop"), "").await;
    let dry = server.call("POST", "/fleet/v1/units/a.service/stop?dryRun=1", "").await;
    assert_eq!(dry.status, 200, "{dry}");
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["generation"], serde_json::Value::Null, "nothing has changed");
    let stopped = stop("a.service").await;
    assert_eq!(stopped.status, 202);
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    let generation = stopped.json()["generation"].as_u64().unwrap();
    assert!(generation > 0);
    assert_eq!(
        (&fetched["generation"], &fetched["desiredState"]),
        (&generation.into(), &"loaded".into())
    );
    let refused = stop("b.service").await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.message(),
        "cannot stop a run of b.service: its desired state is launched; set it to loaded instead"
    );
    assert_eq!(stop("c.service").await.status, 404);
}

#[tokio::test]
async fn read_after_write_shows_the_write() {
    let server = Server::start().await;
    for round in 0..100 {
        let state = ["inactive", "loaded", "launched"][round % 3];
        server.sleepers(&["a.service"], state).await;
        let fetched = server.get("/fleet/v1/units/a.service").await.json();
        assert_eq!(fetched["desiredState"], state);
        assert_eq!(server.call("DELETE", "/fleet/v1/units/a.service", "").await.status, 204);
        assert_eq!(server.get("/fleet/v1/units/a.service").await.status, 404);
    }
}
