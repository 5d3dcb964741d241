//! Cordoning, uncordoning and draining machines.

use fleet_core::MachineId;

use crate::harness::{Server, running};

async fn post(server: &Server, path: &str) -> crate::http::HttpResponse {
    server.call("POST", &format!("/fleet/v1/machines/{path}"), "").await
}

#[tokio::test]
async fn machine_stays_cordoned_until_uncordoned() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    for (path, intent) in [("cordon", "cordoned"), ("drain", "drained"), ("cordon", "cordoned")] {
        assert!(post(&server, &format!("m1/{path}")).await.status < 300);
        let machine = server.get("/fleet/v1/machines/m1").await.json();
        assert_eq!((&machine["cordoned"], &machine["intent"]), (&true.into(), &intent.into()));
    }
    for _ in 0..2 {
        assert_eq!(post(&server, "m1/uncordon").await.status, 204);
        let machine = server.get("/v1-alpha/machines/m1").await.json();
        assert_eq!((machine.get("cordoned"), machine.get("intent")), (None, None));
    }
}

#[tokio::test]
async fn drain_reports_moves_held_and_global_units() {
    let server = Server::start().await;
    let presence = server.machine("m1", &[]).await;
    let _other = server.machine("m2", &[]).await;
    server.sleepers(&["web@1.service", "web@2.service", "gone.service"], "launched").await;
    let options = r#"[{"section":"X-Fleet","name":"Global","value":"true"}]"#;
    let global = format!(r#"{{"desiredState":"launched","options":{options}}}"#);
    assert_eq!(server.put("/fleet/v1/units/all.service", &global).await.status, 201);
    let placed = ["web@1.service", "web@2.service"].map(|unit| (unit, "m1"));
    server.decide(&placed, &[]).await;
    for unit in ["web@1.service", "web@2.service", "gone.service", "all.service"] {
        server.publish(&presence, running(unit, "m1")).await;
    }
    let expected = concat!(
        r#"{"global":["all.service"],"held":[{"reason":"1 instance of web@.service is up and "#,
        r#"1 must stay up","unit":"web@2.service"}],"keepUp":1,"leaving":["gone.service"],"#,
        r#""machineID":"m1","moves":[{"to":"m2","unit":"web@1.service"}]}"#,
    );
    let preview = post(&server, "m1/drain?keepUp=1&dryRun=1").await;
    assert_eq!(preview.json().to_string(), expected);
    let machine = server.get("/fleet/v1/machines/m1").await.json();
    assert_eq!(machine.get("cordoned"), None, "nothing was changed");
    assert_eq!(server.get("/fleet/v1/machines/m1/drain").await.status, 404);
    let drained = post(&server, "m1/drain?keepUp=1").await;
    assert_eq!(drained.json().to_string(), expected);
    assert_eq!(server.get("/fleet/v1/machines/m1/drain").await.json().to_string(), expected);
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    let absent = "machine \"m2\" is not present";
    for (path, status, message) in [
        ("m2/cordon", 404, absent),
        ("m2/drain", 404, absent),
        (
            "m1/drain?keepUp=two",
            400,
            "query parameter \"keepUp\": \"two\" is not a number such as 2",
        ),
        (
            "m1/drain?dryRun=perhaps",
            400,
            "query parameter \"dryRun\": \"perhaps\" is neither 1 nor 0",
        ),
        ("m1", 405, "only GET supported against this resource"),
    ] {
        let response = post(&server, path).await;
        assert_eq!((response.status, response.message()), (status, message.to_owned()), "{path}");
    }
    assert_eq!(server.get("/fleet/v1/machines/m2").await.message(), absent);
    assert_eq!(server.get("/fleet/v1/machines/m1").await.json().get("intent"), None);
}

#[tokio::test]
async fn client_cordons_and_drains() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    let (client, id): (_, MachineId) = (server.client(), "m1".parse().unwrap());
    client.cordon(&id).await.unwrap();
    assert_eq!(client.machine(&id).await.unwrap().unwrap().intent, "cordoned");
    assert_eq!(client.drain_status(&id).await.unwrap(), None);
    let (preview, done) = (client.drain(&id, 2, true).await, client.drain(&id, 2, false).await);
    assert_eq!((preview.unwrap().min_available, done.unwrap().is_empty()), (2, true));
    assert_eq!(client.drain_status(&id).await.unwrap().unwrap().min_available, 2);
    client.uncordon(&id).await.unwrap();
    assert!(!client.machine(&id).await.unwrap().unwrap().cordoned);
    assert_eq!(client.machine(&"m2".parse().unwrap()).await.unwrap(), None);
}
