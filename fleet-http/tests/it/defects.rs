//! Regression tests for the defects of fleet v1.

use crate::harness::{Server, running};

// Holds: D-2
#[tokio::test]
async fn unknown_desired_state_does_not_damage_unit() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "loaded").await;
    let invalid = r#"{"desiredState":"invalid"}"#;
    let response = server.put("/fleet/v1/units/a.service", invalid).await;
    assert_eq!(response.status, 400);
    assert_eq!(
        response.message(),
        r#"unknown state "invalid": write "inactive", "loaded" or "launched""#
    );
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["desiredState"], "loaded");
    assert_eq!(server.call("DELETE", "/fleet/v1/units/a.service", "").await.status, 204);
}

// Holds: D-2
#[tokio::test]
async fn unknown_desired_state_is_refused_on_creation() {
    let server = Server::start().await;
    let body = r#"{"desiredState":"LAUNCHED","source":"[Service]\nExecStart=/bin/true\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 400);
    assert_eq!(server.get("/fleet/v1/units/a.service").await.status, 404);
}

// Holds: D-3
#[tokio::test]
async fn null_option_is_refused() {
    let server = Server::start().await;
    for (options, what) in [("[null]", "options[0] is null"), ("null", "options is null")] {
        let body = format!(r#"{{"options":{options}}}"#);
        let response = server.put("/fleet/v1/units/a.service", &body).await;
        assert_eq!(response.status, 400);
        assert!(response.message().contains(what), "{response}");
    }
}

// Holds: D-4
#[tokio::test]
async fn missing_state_is_not_found() {
    let server = Server::start().await;
    let response = server.get("/fleet/v1/state/a.service").await;
    assert_eq!((response.status, response.message().as_str()), (404, "unit state does not exist"));
}

// Holds: D-5
#[tokio::test]
async fn template_cannot_be_activated() {
    let server = Server::start().await;
    let path = "/fleet/v1/units/a@.service";
    let body = |state: &str, command: &str| {
        let source = format!("[Service]\\nExecStart={command}\\n");
        format!(r#"{{"desiredState":"{state}","source":"{source}"}}"#)
    };
    let expected = r#"cannot activate template "a@.service": activate an instance of it"#;
    for state in ["loaded", "launched"] {
        // On creation.
        let response = server.put(path, &body(state, "/bin/true")).await;
        assert_eq!((response.status, response.message().as_str()), (400, expected));
        // On replacement.
        server.put(path, &body("inactive", "/bin/false")).await;
        let response = server.put(path, &body(state, "/bin/true")).await;
        assert_eq!((response.status, response.message().as_str()), (400, expected));
        // By a state change.
        let response = server.put(path, &format!(r#"{{"desiredState":"{state}"}}"#)).await;
        assert_eq!((response.status, response.message().as_str()), (400, expected));
        assert_eq!(server.call("DELETE", path, "").await.status, 204);
    }
    let fetched = server.put(path, r#"{"desiredState":"inactive"}"#).await;
    assert_eq!(fetched.status, 409);
}

// Holds: D-6
#[tokio::test]
async fn replacement_is_validated_like_creation() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let before = server.get("/fleet/v1/units/a.service").await;
    let body = r#"{"desiredState":"inactive","source":"[X-Fleet]\nGlobbal=true\n"}"#;
    let response = server.put("/fleet/v1/units/a.service", body).await;
    assert_eq!(response.status, 400);
    assert_eq!(server.get("/fleet/v1/units/a.service").await, before, "nothing may be stored");
}

// Holds: D-7
#[tokio::test]
async fn newline_in_value_is_refused() {
    let server = Server::start().await;
    let body =
        r#"{"options":[{"section":"Service","name":"ExecStart","value":"/bin/true\nUser=root"}]}"#;
    let response = server.put("/fleet/v1/units/a.service", body).await;
    assert_eq!(response.status, 400, "{response}");
}

// Holds: D-8
#[tokio::test]
async fn last_full_page_has_no_next_token() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    server.sleepers(&["a.service", "b.service"], "inactive").await;
    let page = server.get("/fleet/v1/units").await.json();
    assert_eq!(page["units"].as_array().unwrap().len(), 2);
    assert!(page.get("nextPageToken").is_none(), "{page}");
}

// Holds: D-9
#[tokio::test]
async fn page_size_zero_terminates() {
    let server = Server::start_with(|api| api.with_page_size(0)).await;
    server.sleepers(&["a.service", "b.service"], "inactive").await;
    assert_eq!(server.client().units().await.unwrap().len(), 2);
}

// Holds: D-10
#[tokio::test]
async fn page_number_does_not_overflow() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    // Page 65,535 of version 1 would begin with item 6,553,400.
    let response = server.get("/fleet/v1/units?nextPageToken=ZAD__w==").await;
    assert_eq!(response.to_string(), "200 {}");
}

// Holds: D-10
#[tokio::test]
async fn largest_page_number_is_an_empty_page() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE;

    let server = Server::start_with(|api| api.with_page_size(1)).await;
    server.sleepers(&["a.service", "b.service"], "inactive").await;
    let page = server.get("/fleet/v1/units").await.json();
    let mut token = URL_SAFE.decode(page["nextPageToken"].as_str().unwrap()).unwrap();
    token[4..12].fill(0xff);
    let named = format!("/fleet/v1/units?nextPageToken={}", URL_SAFE.encode(&token));
    assert_eq!(server.get(&named).await.status, 200);
    let numbered = format!("/fleet/v1/units?nextPageToken={}", URL_SAFE.encode(&token[..20]));
    assert_eq!(server.get(&numbered).await.to_string(), "200 {}");
}

// Holds: D-12
#[tokio::test]
async fn all_unit_types_can_be_created() {
    let server = Server::start().await;
    let all = fleet_unitfile::UnitType::ALL;
    for kind in all {
        server.sleepers(&[&format!("a.{}", kind.as_str())], "loaded").await;
    }
    assert_eq!(server.client().units().await.unwrap().len(), all.len());
}

// Holds: D-19
#[tokio::test]
async fn states_of_machines_are_independent() {
    let server = Server::start().await;
    let (one, two) = (server.machine("m1", &[]).await, server.machine("m2", &[]).await);
    server.publish(&one, running("a.service", "m1")).await;
    server.publish(&two, running("a.service", "m2")).await;
    let taken_back = one.publish_states(&[], &[crate::harness::name("a.service")]).await.unwrap();
    server.settle(taken_back).await;
    let states = server.get("/fleet/v1/state").await.json();
    assert_eq!(states["states"].as_array().unwrap().len(), 1);
    assert_eq!(states["states"][0]["machineID"], "m2");
}

// Holds: I-12, D-20
#[tokio::test]
async fn damaged_unit_is_listed_and_can_be_destroyed() {
    let server = Server::start().await;
    server.sleepers(&["a.service", "b.service", "c.service"], "inactive").await;
    server.damage("b.service").await;
    let units = server.client().units().await.unwrap();
    let problems: Vec<(&str, bool)> =
        units.iter().map(|unit| (unit.name.as_str(), unit.problem.is_empty())).collect();
    assert_eq!(problems, [("a.service", true), ("b.service", false), ("c.service", true)]);
    let fetched = server.get("/fleet/v1/units/b.service").await;
    assert_eq!(fetched.status, 200);
    let response = server.put("/fleet/v1/units/b.service", r#"{"desiredState":"loaded"}"#).await;
    assert_eq!(response.status, 409);
    assert!(
        response.message().ends_with("destroy the unit, or send its unit file again"),
        "{response}"
    );
    assert_eq!(server.call("DELETE", "/fleet/v1/units/b.service", "").await.status, 204);
    assert_eq!(server.get("/fleet/v1/units/b.service").await.status, 404);
}

// Holds: D-20
#[tokio::test]
async fn damaged_unit_can_be_replaced() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    server.damage("a.service").await;
    server.sleepers(&["a.service"], "inactive").await;
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert!(fetched.get("problem").is_none(), "{fetched}");
}

// Holds: D-13
#[tokio::test]
async fn every_error_has_a_message() {
    let server = Server::start().await;
    for (method, path) in [
        ("GET", "/fleet/v1"),
        ("GET", "/nothing"),
        ("GET", "/fleet/v1/units/"),
        ("GET", "/fleet/v1/units/a/b"),
        ("GET", "/fleet/v1/units/no-such-name"),
        ("DELETE", "/fleet/v1/units/no-such-name"),
        ("POST", "/fleet/v1/units"),
        ("GET", "/fleet/v1/state/x"),
        ("PUT", "/fleet/v1/units/a.service"),
        ("PATCH", "/fleet/v1/machines"),
        ("PATCH", "/fleet/v1/discovery"),
        ("BREW", "/fleet/v1/machines"),
    ] {
        let response = server.call(method, path, "").await;
        assert!(response.status >= 400, "{method} {path}");
        assert!(!response.message().is_empty(), "{method} {path}");
    }
}

// Holds: D-22
#[tokio::test]
async fn long_lines_and_crlf_continuations_are_accepted() {
    let server = Server::start().await;
    for at in [0, 3000, 5000, 8500] {
        let (before, value) = ("#\\n".repeat(at / 2), "x".repeat(3000));
        let source = format!("{before}[Service]\\r\\nExecStart=/bin/a \\\\\\r\\n {value}\\r\\n");
        let body = format!(r#"{{"source":"{source}"}}"#);
        let response = server.put("/fleet/v1/units/a.service", &body).await;
        assert_eq!(response.to_string(), "201", "a line of 3,000 bytes after {at}");
        let fetched = server.get("/fleet/v1/units/a.service").await.json();
        let value_now = fetched["options"][0]["value"].as_str().unwrap();
        assert!(value_now.ends_with(&value), "{value_now}");
        assert_eq!(fetched["options"].as_array().unwrap().len(), 1);
    }
}

// Holds: D-21
#[tokio::test]
async fn unit_creation_is_atomic() {
    let server = Server::start().await;
    let mut progress = server.mirror.subscribe();
    let mirror = server.mirror.clone();
    let watching = tokio::spawn(async move {
        loop {
            if let Some(unit) = mirror.snapshot().unit("a.service") {
                return unit.desired.to_string();
            }
            progress.changed().await.unwrap();
        }
    });
    server.sleepers(&["a.service"], "launched").await;
    assert_eq!(watching.await.unwrap(), "launched");
}

// Holds: D-16
#[tokio::test]
async fn global_unit_always_has_a_current_state() {
    let server = Server::start().await;
    let body = r#"{"desiredState":"launched","source":"[X-Fleet]\nGlobal=true\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 201);
    let one = server.get("/fleet/v1/units/a.service").await.json();
    let list = server.get("/fleet/v1/units").await.json();
    assert_eq!(one["currentState"], "inactive");
    assert_eq!(list["units"][0]["currentState"], one["currentState"]);
}

// Holds: D-23
#[tokio::test]
async fn unplaced_unit_can_be_stopped() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    // The unit is not placed yet, but can be stopped.
    let body = r#"{"desiredState":"inactive"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 204);
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["desiredState"], "inactive");
}
