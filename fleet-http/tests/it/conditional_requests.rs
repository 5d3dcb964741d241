//! Conditional reads and writes with entity tags.

use fleet_http::client::UnitUpload;
use fleet_store::registry::Key;
use fleet_store::{Commit, Store as _, Transaction};
use fleet_unitfile::UnitFile;

use crate::harness::{Server, name, running};
use crate::http::{HttpResponse, request};

const PATH: &str = "/fleet/v1/units/a.service";
const ONE: &str = r#"{"desiredState":"inactive","source":"[Service]\nType=exec\n"}"#;
const OTHER: &str = r#"{"desiredState":"inactive","source":"[Service]\nType=simple\n"}"#;
const LOADED: &str = r#"{"desiredState":"loaded"}"#;

async fn write(server: &Server, method: &str, path: &str, tag: &str, body: &str) -> HttpResponse {
    let headers = [("Content-Type", "application/json"), ("If-Match", tag)];
    request(&server.at, method, path, &headers, body).await
}

async fn fetch_etag(server: &Server) -> String {
    let response = server.get(PATH).await;
    response.header("etag").expect("no entity tag").to_owned()
}

async fn start() -> Server {
    let server = Server::start().await;
    server.registry.lineage(&"first".parse().unwrap()).await.unwrap();
    assert_eq!(server.put(PATH, ONE).await.status, 201);
    server
}

#[tokio::test]
async fn if_match_fails_after_a_change() {
    let server = start().await;
    let etag = fetch_etag(&server).await;
    assert!(etag.contains('-'), "revision and lineage: {etag}");
    server.sleepers(&["b.service"], "inactive").await;
    let written = write(&server, "PUT", PATH, &etag, OTHER).await;
    assert_eq!(written.status, 201, "another unit's change must not matter: {written}");
    for (method, body) in [("PUT", ONE), ("PUT", LOADED), ("DELETE", "")] {
        for path in [PATH.to_owned(), format!("{PATH}?dryRun=1")] {
            let refused = write(&server, method, &path, &etag, body).await;
            assert_eq!(refused.status, 412, "{method} {body}: {refused}");
            assert!(refused.message().starts_with("the unit was modified"), "{refused}");
            assert_eq!(refused.json()["unit"]["source"], "[Service]\nType=simple\n");
            assert!(refused.header("etag").is_some_and(|now| now != etag), "{refused}");
        }
    }
    // The response to a write contains the tag for the next one.
    let next = written.header("etag").unwrap().to_owned();
    let loaded = write(&server, "PUT", PATH, &next, LOADED).await;
    assert_eq!(loaded.status, 204, "{loaded}");
    let several = format!("{next}, {}", loaded.header("etag").unwrap());
    assert_eq!(write(&server, "DELETE", PATH, &several, "").await.status, 204);
    assert_eq!(write(&server, "PUT", PATH, &several, ONE).await.status, 412);
    assert_eq!(write(&server, "PUT", PATH, "*", ONE).await.status, 412);
    assert_eq!(server.get(PATH).await.status, 404);
}

/// The store makes the final check, so a write also fails after a change that the server has not
/// mirrored yet.
#[tokio::test]
async fn if_match_detects_changes_not_yet_mirrored() {
    let server = start().await;
    let etag = fetch_etag(&server).await;
    let key = server.registry.layout().key(&Key::Unit(name("a.service")));
    server.mirror.shutdown();
    let Commit::Applied(_) =
        server.store.commit(Transaction::new().put(key, "damage")).await.unwrap()
    else {
        panic!("conflict")
    };
    for (method, body) in [("PUT", ONE), ("PUT", LOADED), ("DELETE", "")] {
        let refused = write(&server, method, PATH, &etag, body).await;
        assert!(matches!(refused.status, 409 | 412), "{method} {body}: {refused}");
    }
}

#[tokio::test]
async fn if_match_fails_for_a_destroyed_unit() {
    let server = start().await;
    let etag = fetch_etag(&server).await;
    assert_eq!(server.call("DELETE", PATH, "").await.status, 204);
    for condition in [&*etag, "*", "\"1\""] {
        for (method, target, body) in
            [("PUT", PATH, ONE), ("PUT", PATH, LOADED), ("DELETE", PATH, "")]
        {
            for query in ["", "?dryRun=1"] {
                let target = format!("{target}{query}");
                let refused = write(&server, method, &target, condition, body).await;
                assert_eq!(refused.status, 412, "{method} {target} {body} {condition}: {refused}");
            }
        }
    }
    assert_eq!(server.call("DELETE", PATH, "").await.status, 404, "without a condition");
}

#[tokio::test]
async fn unknown_etags_never_match() {
    let server = start().await;
    let etag = fetch_etag(&server).await;
    let (number, _) = etag.trim_matches('"').split_once('-').unwrap();
    let unknown = [
        format!("\"{number}\""),
        format!("\"{number}-00000000000000000000000000000000\""),
        format!("W/{etag}"),
        etag.trim_matches('"').to_owned(),
        "\"\"".to_owned(),
        "nonsense".to_owned(),
    ];
    for etag in unknown {
        let refused = write(&server, "PUT", PATH, &etag, OTHER).await;
        assert_eq!(refused.status, 412, "{etag}");
    }
    assert_eq!(write(&server, "PUT", PATH, "*", OTHER).await.status, 201);
    let headers = [("Content-Type", "application/json"), ("If-Match", "*"), ("If-None-Match", "*")];
    assert_eq!(request(&server.at, "PUT", PATH, &headers, ONE).await.status, 400);
    // Machines have no tags, so a conditional write must not be carried out unconditionally.
    let refused = write(&server, "PATCH", "/fleet/v1/machines", "*", "[]").await;
    assert!(refused.message().starts_with("the header If-Match is only"), "{refused}");
    // A unit does not support the method, regardless of the condition.
    assert_eq!(write(&server, "POST", PATH, "*", "{}").await.status, 405);
}

#[tokio::test]
async fn unchanged_unit_is_not_sent_again() {
    let server = start().await;
    let get_if_none_match =
        async |tag: &str| request(&server.at, "GET", PATH, &[("If-None-Match", tag)], "").await;
    let etag = fetch_etag(&server).await;
    let same = get_if_none_match(&etag).await;
    assert_eq!(same.to_string(), "304");
    assert!(same.header("etag").is_some());
    server.sleepers(&["b.service"], "inactive").await;
    assert_eq!(get_if_none_match(&format!("\"1-x\", W/{etag}")).await.status, 304, "another unit");
    assert_eq!(get_if_none_match("*").await.status, 304);
    assert_eq!(get_if_none_match("\"1\"").await.status, 200);
    let presence = server.machine("m1", &[]).await;
    assert_eq!(get_if_none_match(&etag).await.status, 200, "new machine");
    let etag = fetch_etag(&server).await;
    server.publish(&presence, running("a.service", "m1")).await;
    assert_eq!(get_if_none_match(&etag).await.status, 200, "state");
    let etag = fetch_etag(&server).await;
    server.decide(&[("a.service", "m1")], &[]).await;
    assert_eq!(get_if_none_match(&etag).await.status, 200, "placement");
    let etag = fetch_etag(&server).await;
    server.put(PATH, LOADED).await;
    assert_eq!(get_if_none_match(&etag).await.status, 200, "desired state");
}

#[tokio::test]
async fn client_conditional_writes() {
    let server = start().await;
    let (client, unit) = (server.client(), name("a.service"));
    let current = client.unit_with_etag(&unit).await.unwrap().unwrap();
    assert_eq!(current.unit.source.as_deref(), Some("[Service]\nType=exec\n"));
    let file = UnitFile::parse("[Service]\nType=simple\n").unwrap();
    let upload = UnitUpload::new(file);
    assert!(client.put_unit_if(&unit, &upload, &current.etag).await.unwrap());
    assert!(!client.put_unit_if(&unit, &upload, &current.etag).await.unwrap());
    assert!(!client.destroy_if(&unit, &current.etag).await.unwrap());
    let now = client.unit_with_etag(&unit).await.unwrap().unwrap();
    assert!(client.destroy_if(&unit, &now.etag).await.unwrap());
    assert_eq!(client.unit_with_etag(&unit).await.unwrap(), None);
}
