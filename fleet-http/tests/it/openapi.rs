//! The description of the API in OpenAPI: complete, and true.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Server;

async fn description(server: &Server) -> Value {
    let answer = server.get("/fleet/v1/openapi.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    answer.json()
}

/// Every path with its methods, as they are described.
fn operations(description: &Value) -> Vec<(String, BTreeSet<String>)> {
    let paths = description["paths"].as_object().unwrap().iter();
    let methods = |item: &Value| {
        item.as_object().unwrap().keys().map(|it| it.to_uppercase()).collect::<BTreeSet<_>>()
    };
    paths.map(|(path, item)| (path.clone(), methods(item))).collect()
}

#[tokio::test]
async fn each_path_takes_the_methods_that_are_described_and_no_others() {
    let server = Server::start().await;
    let described = description(&server).await;
    let mut shown = Vec::new();
    for (path, mut methods) in operations(&described) {
        shown.push(format!("{} {path}", methods.iter().cloned().collect::<Vec<_>>().join(" ")));
        let path = path.replace("{name}", "a.service").replace("{id}", "m1");
        let answer = server.call("OPTIONS", &path, "").await;
        assert_eq!(answer.status, 204, "{path}");
        let allowed = answer.header("allow").unwrap().split(", ").map(str::to_owned).collect();
        methods.insert("OPTIONS".to_owned());
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        assert_eq!(methods, allowed, "{path}");
    }
    insta::assert_snapshot!(shown.join("\n"));
}

#[tokio::test]
async fn every_operation_of_the_discovery_document_is_described() {
    let server = Server::start().await;
    let described = operations(&description(&server).await);
    let discovery = server.get("/fleet/v1/discovery").await.json();
    let resources = discovery["resources"].as_object().unwrap().values();
    for method in resources.flat_map(|it| it["methods"].as_object().unwrap().values()) {
        let path = method["path"].as_str().unwrap().replace("{unitName}", "{name}");
        let path = format!("/fleet/v1/{path}");
        let (_, methods) = described.iter().find(|(known, _)| *known == path).expect("described");
        assert!(methods.contains(method["httpMethod"].as_str().unwrap()), "{path}");
    }
}

#[tokio::test]
async fn each_reference_in_it_leads_somewhere_and_every_operation_has_a_name() {
    let server = Server::start().await;
    let described = description(&server).await;
    let text = described.to_string();
    let references = text.split(r##""$ref":"#/components/schemas/"##).skip(1);
    let names: BTreeSet<_> = references.filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(described["components"]["schemas"][name].is_object(), "{name}");
    }
    let paths = described["paths"].as_object().unwrap().values();
    let operations: Vec<_> = paths.flat_map(|item| item.as_object().unwrap().values()).collect();
    let ids: BTreeSet<_> = operations.iter().map(|it| it["operationId"].as_str()).collect();
    assert_eq!(ids.len(), operations.len(), "{ids:?}");
}

#[tokio::test]
async fn what_a_port_may_ask_for_is_described_and_nothing_is_always_asked_for() {
    let server = Server::start().await;
    let described = description(&server).await;
    let schemes = &described["components"]["securitySchemes"];
    assert_eq!(
        (&schemes["token"]["type"], &schemes["token"]["scheme"]),
        (&"http".into(), &"bearer".into())
    );
    assert_eq!(schemes["certificate"]["type"], "mutualTLS");
    assert_eq!(described["security"].to_string(), r#"[{},{"token":[]},{"certificate":[]}]"#);
}

/// What lists, units and failures look like on the wire is what is described.
#[tokio::test]
async fn the_fields_of_a_unit_are_the_described_ones() {
    let server = Server::start().await;
    let body = r#"{"source":"[Service]\nExecStart=/bin/a\n","desiredState":"launched"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 201);
    let described = description(&server).await;
    for (path, schema) in
        [("units/a.service", "Unit"), ("units", "UnitPage"), ("units/b.service", "ErrorBody")]
    {
        let answer = server.get(&format!("/fleet/v1/{path}")).await.json();
        let known = &described["components"]["schemas"][schema]["properties"];
        for field in answer.as_object().unwrap().keys() {
            assert!(known[field].is_object(), "{schema}.{field} is not described");
        }
    }
}
