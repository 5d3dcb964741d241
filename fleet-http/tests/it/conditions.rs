//! Entity tags of units: writes on the condition that nothing has changed, reads of what has.

use fleet_http::UnitUpload;
use fleet_store::{Commit, Key, Store as _, Transaction};
use fleet_unitfile::UnitFile;

use crate::harness::{Server, name, running};
use crate::http::{Answer, request};

const PATH: &str = "/fleet/v1/units/a.service";
const ONE: &str = r#"{"desiredState":"inactive","source":"[Service]\nType=exec\n"}"#;
const OTHER: &str = r#"{"desiredState":"inactive","source":"[Service]\nType=simple\n"}"#;
const LOADED: &str = r#"{"desiredState":"loaded"}"#;

async fn write(server: &Server, method: &str, path: &str, tag: &str, body: &str) -> Answer {
    let headers = [("Content-Type", "application/json"), ("If-Match", tag)];
    request(&server.at, method, path, &headers, body).await
}

async fn tag(server: &Server) -> String {
    let answer = server.get(PATH).await;
    answer.header("etag").expect("a unit has a tag").to_owned()
}

async fn start() -> Server {
    let server = Server::start().await;
    server.registry.lineage(&"first".parse().unwrap()).await.unwrap();
    assert_eq!(server.put(PATH, ONE).await.status, 201);
    server
}

#[tokio::test]
async fn what_was_looked_at_is_replaced_and_what_has_changed_is_not() {
    let server = start().await;
    let seen = tag(&server).await;
    assert!(seen.contains('-'), "revision and lineage: {seen}");
    server.sleepers(&["b.service"], "inactive").await;
    let written = write(&server, "PUT", PATH, &seen, OTHER).await;
    assert_eq!(written.status, 201, "another unit changes nothing: {written}");
    for (method, body) in [("PUT", ONE), ("PUT", LOADED), ("DELETE", "")] {
        for path in [PATH.to_owned(), format!("{PATH}?dryRun=1")] {
            let refused = write(&server, method, &path, &seen, body).await;
            assert_eq!(refused.status, 412, "{method} {body}: {refused}");
            assert!(refused.message().starts_with("the unit has changed"), "{refused}");
            assert_eq!(refused.json()["unit"]["source"], "[Service]\nType=simple\n");
            assert!(refused.header("etag").is_some_and(|now| now != seen), "{refused}");
        }
    }
    // The answer to a write has the tag for the next one.
    let next = written.header("etag").unwrap().to_owned();
    let loaded = write(&server, "PUT", PATH, &next, LOADED).await;
    assert_eq!(loaded.status, 204, "{loaded}");
    let several = format!("{next}, {}", loaded.header("etag").unwrap());
    assert_eq!(write(&server, "DELETE", PATH, &several, "").await.status, 204);
    assert_eq!(write(&server, "PUT", PATH, &several, ONE).await.status, 412);
    assert_eq!(write(&server, "PUT", PATH, "*", ONE).await.status, 412);
    assert_eq!(server.get(PATH).await.status, 404);
}

/// The store has the last word: what a server has not seen yet counts as well.
#[tokio::test]
async fn a_change_that_a_server_has_not_seen_yet_is_not_overwritten() {
    let server = start().await;
    let seen = tag(&server).await;
    let key = server.registry.layout().key(&Key::Unit(name("a.service")));
    server.mirror.shutdown();
    let Commit::Applied(_) =
        server.store.commit(Transaction::new().put(key, "damage")).await.unwrap()
    else {
        panic!("nothing was in the way")
    };
    for (method, body) in [("PUT", ONE), ("PUT", LOADED), ("DELETE", "")] {
        let refused = write(&server, method, PATH, &seen, body).await;
        assert!(matches!(refused.status, 409 | 412), "{method} {body}: {refused}");
    }
}

#[tokio::test]
async fn a_unit_that_is_no_longer_there_is_not_what_was_seen() {
    let server = start().await;
    let seen = tag(&server).await;
    assert_eq!(server.call("DELETE", PATH, "").await.status, 204);
    for condition in [&*seen, "*", "\"1\""] {
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
    assert_eq!(server.call("DELETE", PATH, "").await.status, 404, "nothing was expected");
}

#[tokio::test]
async fn tags_that_nobody_gave_match_nothing() {
    let server = start().await;
    let seen = tag(&server).await;
    let (number, _) = seen.trim_matches('"').split_once('-').unwrap();
    let strangers = [
        format!("\"{number}\""),
        format!("\"{number}-00000000000000000000000000000000\""),
        format!("W/{seen}"),
        seen.trim_matches('"').to_owned(),
        "\"\"".to_owned(),
        "nonsense".to_owned(),
    ];
    for stranger in strangers {
        let refused = write(&server, "PUT", PATH, &stranger, OTHER).await;
        assert_eq!(refused.status, 412, "{stranger}");
    }
    assert_eq!(write(&server, "PUT", PATH, "*", OTHER).await.status, 201);
    let headers = [("Content-Type", "application/json"), ("If-Match", "*"), ("If-None-Match", "*")];
    assert_eq!(request(&server.at, "PUT", PATH, &headers, ONE).await.status, 400);
    // Machines have none, and what asks for a condition must not be done without.
    let refused = write(&server, "PATCH", "/fleet/v1/machines", "*", "[]").await;
    assert!(refused.message().starts_with("If-Match cannot be kept"), "{refused}");
    // A unit does not take the method, whatever the condition is.
    assert_eq!(write(&server, "POST", PATH, "*", "{}").await.status, 405);
}

#[tokio::test]
async fn who_has_seen_a_unit_is_not_told_it_again() {
    let server = start().await;
    let ask =
        async |tag: &str| request(&server.at, "GET", PATH, &[("If-None-Match", tag)], "").await;
    let seen = tag(&server).await;
    let same = ask(&seen).await;
    assert_eq!(same.to_string(), "304");
    assert!(same.header("etag").is_some());
    server.sleepers(&["b.service"], "inactive").await;
    assert_eq!(ask(&format!("\"1-x\", W/{seen}")).await.status, 304, "another unit");
    assert_eq!(ask("*").await.status, 304);
    assert_eq!(ask("\"1\"").await.status, 200);
    let presence = server.machine("m1", &[]).await;
    assert_eq!(ask(&seen).await.status, 200, "a machine that comes");
    let seen = tag(&server).await;
    server.publish(&presence, running("a.service", "m1")).await;
    assert_eq!(ask(&seen).await.status, 200, "its state");
    let seen = tag(&server).await;
    server.decide(&[("a.service", "m1")], &[]).await;
    assert_eq!(ask(&seen).await.status, 200, "its place");
    let seen = tag(&server).await;
    server.put(PATH, LOADED).await;
    assert_eq!(ask(&seen).await.status, 200, "its desired state");
}

#[tokio::test]
async fn a_client_writes_what_nobody_has_changed() {
    let server = start().await;
    let (client, unit) = (server.client(), name("a.service"));
    let seen = client.unit_with_etag(&unit).await.unwrap().unwrap();
    assert_eq!(seen.unit.source.as_deref(), Some("[Service]\nType=exec\n"));
    let file = UnitFile::parse("[Service]\nType=simple\n").unwrap();
    let upload = UnitUpload { file, desired: None, create_only: false };
    assert!(client.put_unit_if(&unit, &upload, &seen.etag).await.unwrap());
    assert!(!client.put_unit_if(&unit, &upload, &seen.etag).await.unwrap());
    assert!(!client.destroy_if(&unit, &seen.etag).await.unwrap());
    let now = client.unit_with_etag(&unit).await.unwrap().unwrap();
    assert!(client.destroy_if(&unit, &now.etag).await.unwrap());
    assert_eq!(client.unit_with_etag(&unit).await.unwrap(), None);
}
