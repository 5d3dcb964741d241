//! `PATCH /machines`: forms of operations, errors and atomicity.

use fleet_core::Resources;
use fleet_store::registry::MachineRecord;

use crate::harness::Server;

#[tokio::test]
async fn empty_patch_succeeds() {
    let server = Server::start().await;
    for body in ["[]", "null", "[] and more"] {
        let response = server.call("PATCH", "/fleet/v1/machines", body).await;
        assert_eq!(response.to_string(), "204", "{body}");
    }
}

#[tokio::test]
async fn offers_are_shown_if_not_empty() {
    let server = Server::start().await;
    let modest = server.machine("m1", &[]).await;
    let listed = server.get("/fleet/v1/machines").await.json();
    let machine = &listed["machines"][0];
    assert_eq!((machine.get("offers"), machine.get("cordoned")), (None, None));
    let record = MachineRecord {
        offers: Resources { cpu: 1500, memory: 1 << 30, disk: 0 },
        cordoned: true,
        ..MachineRecord::new("m1".parse().unwrap())
    };
    server.settle(modest.update_machine(record).await.unwrap()).await;
    let listed = server.get("/fleet/v1/machines").await.json();
    let machine = &listed["machines"][0];
    assert_eq!(machine["offers"].to_string(), r#"{"cpu":1500,"disk":0,"memory":1073741824}"#);
    assert_eq!(machine["cordoned"], true);
}

#[tokio::test]
async fn v1_object_values_are_accepted() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    let body = r#"[{"OP":"add","Path":"/m1/metadata/a","value":{"Value":"1"}}]"#;
    assert_eq!(server.call("PATCH", "/fleet/v1/machines", body).await.status, 204);
    let machines = server.get("/fleet/v1/machines").await.json();
    assert_eq!(machines["machines"][0]["metadata"]["a"], "1");
}

#[tokio::test]
async fn operations_apply_in_order() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    let op = |op: &str, value: &str| {
        format!(r#"{{"op":"{op}","path":"/m1/metadata/a","value":"{value}"}}"#)
    };
    let body = format!("[{},{},{}]", op("add", "1"), op("remove", ""), op("replace", "2"));
    assert_eq!(server.call("PATCH", "/fleet/v1/machines", &body).await.status, 204);
    let machines = server.get("/fleet/v1/machines").await.json();
    assert_eq!(machines["machines"][0]["metadata"]["a"], "2");
}

#[tokio::test]
async fn invalid_operations_change_nothing() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    let op = "operation 2: invalid op: expect add, remove, or replace";
    let path = "operation 2: machine metadata path invalid: ";
    let value = "operation 2: invalid value: add and replace require a value";
    let cases = [
        (r#"{"op":"move","path":"/m1/metadata/a"}"#, op),
        (r#"{"path":"/m1/metadata/a"}"#, op),
        ("7", op),
        (r#"{"op":"remove","path":"m1/metadata/a"}"#, path),
        (r#"{"op":"remove","path":"//metadata/a"}"#, path),
        (r#"{"op":"remove","path":"/m1/metadata/"}"#, path),
        (r#"{"op":"remove","path":"/m1/metadata/a/b"}"#, path),
        (r#"{"op":"remove","path":"/m1/metadata/a~1b"}"#, path),
        (r#"{"op":"remove","path":"/m1/metadata/a b"}"#, path),
        (r#"{"op":"remove","path":"/m1/data/a"}"#, path),
        (r#"{"op":"remove","path":"/m 1/metadata/a"}"#, path),
        (r#"{"op":"remove"}"#, path),
        (r#"{"op":"add","path":"/m1/metadata/a"}"#, value),
        (r#"{"op":"add","path":"/m1/metadata/a","value":""}"#, value),
        (r#"{"op":"replace","path":"/m1/metadata/a","value":null}"#, value),
        (r#"{"op":"replace","path":"/m1/metadata/a","value":{}}"#, value),
        (r#"{"op":"add","path":"/m1/metadata/a","value":7}"#, "operation 2: invalid value: it "),
    ];
    for (operation, beginning) in cases {
        let body =
            format!(r#"[{{"op":"add","path":"/m1/metadata/good","value":"1"}},{operation}]"#);
        let response = server.call("PATCH", "/fleet/v1/machines", &body).await;
        assert_eq!(response.status, 400, "{operation}");
        assert!(response.message().starts_with(beginning), "{operation}: {response}");
    }
    let machines = server.get("/fleet/v1/machines").await.json();
    assert!(machines["machines"][0].get("metadata").is_none(), "{machines}");
}

#[tokio::test]
async fn non_array_body_is_refused() {
    let server = Server::start().await;
    for body in ["{}", "7", "\"add\"", "", "["] {
        let response = server.call("PATCH", "/fleet/v1/machines", body).await;
        assert_eq!(response.status, 400, "{body}");
        assert!(response.message().starts_with("unable to decode body: "), "{body}: {response}");
    }
}

#[tokio::test]
async fn machine_that_has_left_is_listed_as_absent() {
    let server = Server::start().await;
    let (_stays, leaves) = (server.machine("m1", &[]).await, server.machine("m2", &[]).await);
    assert_eq!(server.get("/fleet/v1/machines?absent=1").await.to_string(), "200 {}");
    leaves.leave().await.unwrap();
    server.wait_until(|mirror| mirror.snapshot().machine("m2").is_none()).await;
    let absent = server.get("/fleet/v1/machines?absent=1").await.json();
    assert_eq!(absent["machines"][0]["id"], "m2");
    assert!(absent["machines"][0]["absentFor"].is_u64(), "{absent}");
    let machines = server.client().absent_machines().await.unwrap();
    assert_eq!(machines.len(), 1);
    assert_eq!(server.client().machines().await.unwrap().len(), 1);
}
