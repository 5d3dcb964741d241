//! The requests in the API document of version 1, and their responses.

use crate::harness::{Server, running};

const FOO: &str = r#"{
"desiredState": "launched",
"options": [{"section": "Service", "name": "ExecStart", "value": "/usr/bin/sleep 3000"}]
}"#;

#[tokio::test]
async fn create_a_unit() {
    let server = Server::start().await;
    let response = server.put("/fleet/v1/units/foo.service", FOO).await;
    assert_eq!((response.status, response.body.as_str()), (201, ""));
}

#[tokio::test]
async fn create_a_unit_with_name_in_body() {
    let server = Server::start().await;
    let named = |name: &str| FOO.replacen('{', &format!("{{\"name\": \"{name}\","), 1);
    let response = server.put("/fleet/v1/units/foo.service", &named("bar.service")).await;
    assert_eq!(
        (response.status, response.message().as_str()),
        (400, r#"name in URL "foo.service" differs from unit name in request body "bar.service""#)
    );
    assert_eq!(server.put("/fleet/v1/units/foo.service", &named("foo.service")).await.status, 201);
}

#[tokio::test]
async fn create_an_entity_without_options() {
    let server = Server::start().await;
    for body in [r#"{"desiredState":"launched"}"#, r#"{"options":[]}"#, "{}", "null"] {
        let response = server.put("/fleet/v1/units/foo.service", body).await;
        assert_eq!(response.status, 409, "{body}");
        assert_eq!(response.message(), "unit does not exist and options field empty");
    }
}

#[tokio::test]
async fn create_an_invalid_entity() {
    let server = Server::start().await;
    let response = server.put("/fleet/v1/units/foo.service", r#"{"options": 7}"#).await;
    assert_eq!(response.status, 400);
    assert!(response.message().starts_with("unable to decode body: "), "{response}");
    assert_eq!(server.put("/fleet/v1/units/foo", FOO).await.status, 400);
}

#[tokio::test]
async fn modify_a_units_desired_state() {
    let server = Server::start().await;
    server.sleepers(&["bar.service"], "launched").await;
    let body = r#"{"desiredState": "inactive"}"#;
    let response = server.put("/fleet/v1/units/bar.service", body).await;
    assert_eq!(response.to_string(), "204");
    let fetched = server.get("/fleet/v1/units/bar.service").await.json();
    assert_eq!(fetched["desiredState"], "inactive");
}

#[tokio::test]
async fn modify_a_units_desired_state_with_an_invalid_entity() {
    let server = Server::start().await;
    server.sleepers(&["bar.service"], "launched").await;
    let body = r#"{"desiredState": 1}"#;
    assert_eq!(server.put("/fleet/v1/units/bar.service", body).await.status, 400);
}

#[tokio::test]
async fn modify_a_unit_with_name_in_body() {
    let server = Server::start().await;
    server.sleepers(&["bar.service"], "launched").await;
    for (name, status) in [("foo.service", 400), ("bar.service", 204)] {
        let body = format!(r#"{{"name": "{name}", "desiredState": "inactive"}}"#);
        let response = server.put("/fleet/v1/units/bar.service", &body).await;
        assert_eq!(response.status, status, "{name}");
    }
}

#[tokio::test]
async fn all_other_fields_are_ignored() {
    let server = Server::start().await;
    let more = r#"{"currentState": "launched", "machineID": "m9", "reason": "none", "#;
    let response = server.put("/fleet/v1/units/foo.service", &FOO.replacen('{', more, 1)).await;
    assert_eq!(response.to_string(), "201");
    let fetched = server.get("/fleet/v1/units/foo.service").await.json();
    assert_eq!(fetched["currentState"], "inactive");
    assert!(fetched.get("machineID").is_none(), "{fetched}");
}

#[tokio::test]
async fn list_units() {
    let server = Server::start().await;
    assert_eq!(server.get("/fleet/v1/units").await.to_string(), "200 {}");
    server.sleepers(&["b.service", "a.service"], "inactive").await;
    insta::assert_snapshot!(server.get("/fleet/v1/units").await);
}

#[tokio::test]
async fn get_a_unit() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    server.put("/fleet/v1/units/foo.service", FOO).await;
    server.decide(&[("foo.service", "m1")], &[]).await;
    let response = server.get("/fleet/v1/units/foo.service").await;
    assert_eq!(response.header("content-type"), Some("application/json"));
    insta::assert_snapshot!(response);
    let response = server.get("/fleet/v1/units/bar.service").await;
    assert_eq!((response.status, response.message().as_str()), (404, "unit does not exist"));
}

#[tokio::test]
async fn destroy_a_unit() {
    let server = Server::start().await;
    server.sleepers(&["foo.service"], "launched").await;
    let destroy = || server.call("DELETE", "/fleet/v1/units/foo.service", "");
    assert_eq!(destroy().await.to_string(), "204");
    let response = destroy().await;
    assert_eq!((response.status, response.message().as_str()), (404, "unit does not exist"));
    assert_eq!(server.get("/fleet/v1/units").await.to_string(), "200 {}");
}

#[tokio::test]
async fn list_unit_state() {
    let server = Server::start().await;
    assert_eq!(server.get("/fleet/v1/state").await.to_string(), "200 {}");
    let presence = server.machine("m1", &[]).await;
    server.publish(&presence, running("foo.service", "m1")).await;
    insta::assert_snapshot!(server.get("/fleet/v1/state").await);
}

#[tokio::test]
async fn list_unit_state_with_filters() {
    let server = Server::start().await;
    let (one, two) = (server.machine("m1", &[]).await, server.machine("m2", &[]).await);
    for unit in ["bar.service", "foo.service"] {
        server.publish(&one, running(unit, "m1")).await;
        server.publish(&two, running(unit, "m2")).await;
    }
    for (query, count) in
        [("machineID=m1", 2), ("unitName=foo.service", 2), ("machineID=m2&unitName=foo.service", 1)]
    {
        let page = server.get(&format!("/fleet/v1/state?{query}")).await.json();
        assert_eq!(page["states"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn list_machines() {
    let server = Server::start().await;
    assert_eq!(server.get("/fleet/v1/machines").await.to_string(), "200 {}");
    let _presence = server.machine("m1", &[("region", "us-east-1")]).await;
    insta::assert_snapshot!(server.get("/fleet/v1/machines").await);
}

// Holds: D-17
#[tokio::test]
async fn edit_machine_metadata() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[("a", "1"), ("b", "2"), ("c", "3")]).await;
    let patch = r#"[
        { "op": "add", "path": "/m1/metadata/d", "value": "4" },
        { "op": "remove", "path": "/m1/metadata/b" },
        { "op": "replace", "path": "/m1/metadata/c", "value": "x" },
        { "op": "add", "path": "/not-there/metadata/a", "value": "1" }
    ]"#;
    assert_eq!(server.call("PATCH", "/fleet/v1/machines", patch).await.to_string(), "204");
    let metadata = &server.get("/fleet/v1/machines").await.json()["machines"][0]["metadata"];
    assert_eq!(metadata.to_string(), r#"{"a":"1","c":"x","d":"4"}"#);
}

// Holds: D-17
#[tokio::test]
async fn edit_machine_metadata_with_invalid_operations() {
    let server = Server::start().await;
    for operation in [
        r#"{ "op": "move", "path": "/m1/metadata/a", "value": "1" }"#,
        r#"{ "op": "add", "path": "/m1/metadata/a" }"#,
        r#"{ "op": "replace", "path": "/m1/metadata/a" }"#,
        r#"{ "op": "remove", "path": "/m1/a" }"#,
    ] {
        let response = server.call("PATCH", "/fleet/v1/machines", &format!("[{operation}]")).await;
        assert_eq!(response.status, 400, "{operation}");
        assert!(response.message().starts_with("operation 1: "), "{response}");
    }
}

#[tokio::test]
async fn modified_metadata_persists_across_leaving_and_rejoining() {
    let server = Server::start().await;
    let presence = server.machine("m1", &[("a", "1")]).await;
    let patch = r#"[{"op":"replace","path":"/m1/metadata/a","value":"2"}]"#;
    assert_eq!(server.call("PATCH", "/fleet/v1/machines", patch).await.status, 204);
    presence.leave().await.unwrap();
    let _presence = server.machine("m1", &[("a", "1")]).await;
    let metadata = &server.get("/fleet/v1/machines").await.json()["machines"][0]["metadata"];
    assert_eq!(metadata.to_string(), r#"{"a":"2"}"#);
}

#[tokio::test]
async fn pagination_example() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    let cats = ["baxter", "charlie", "michael", "prescott", "timothy"].map(|c| format!("{c}.path"));
    server.sleepers(&cats.each_ref().map(String::as_str), "inactive").await;
    let (mut target, mut pages) = ("/fleet/v1/units".to_owned(), Vec::new());
    loop {
        let page = server.get(&target).await.json();
        let units = page["units"].as_array().unwrap().iter();
        pages.push(units.map(|unit| unit["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
        let Some(token) = page["nextPageToken"].as_str() else { break };
        target = format!("/fleet/v1/units?nextPageToken={token}");
    }
    assert_eq!(pages, [&cats[..2], &cats[2..4], &cats[4..]]);
}

#[tokio::test]
async fn capability_discovery() {
    let server = Server::start().await;
    let response = server.get("/fleet/v1/discovery").await;
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    assert_eq!(response.json()["rootUrl"], "$ENDPOINT/", "placeholder for the API URL");
}

#[tokio::test]
async fn media_types() {
    let server = Server::start().await;
    server.sleepers(&["foo.service"], "inactive").await;
    for resource in ["units", "units/foo.service", "state", "machines", "state/x", "nothing"] {
        let response = server.get(&format!("/fleet/v1/{resource}")).await;
        assert_eq!(response.header("content-type"), Some("application/json"), "{resource}");
    }
    let body = r#"{"desiredState": "loaded"}"#;
    let response = server.call("PUT", "/fleet/v1/units/foo.service", body).await;
    assert_eq!(response.status, 415, "{response}");
}

#[tokio::test]
async fn error_communication() {
    let server = Server::start().await;
    let response = server.get("/fleet/v1/units?nextPageToken=!").await;
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        response.to_string(),
        r#"400 {"error":{"code":400,"message":"invalid value of nextPageToken query parameter"}}"#
    );
}
