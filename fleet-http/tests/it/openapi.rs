//! The OpenAPI description is complete and correct.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Server;

async fn description(server: &Server) -> Value {
    let response = server.get("/fleet/v1/openapi.json").await;
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    response.json()
}

/// Returns each described path with its methods.
fn operations(description: &Value) -> Vec<(String, BTreeSet<String>)> {
    let paths = description["paths"].as_object().unwrap().iter();
    let methods = |item: &Value| {
        item.as_object().unwrap().keys().map(|it| it.to_uppercase()).collect::<BTreeSet<_>>()
    };
    paths.map(|(path, item)| (path.clone(), methods(item))).collect()
}

#[tokio::test]
async fn described_methods_match_routes() {
    let server = Server::start().await;
    let described = description(&server).await;
    let mut lines = Vec::new();
    for (path, mut methods) in operations(&described) {
        lines.push(format!("{} {path}", methods.iter().cloned().collect::<Vec<_>>().join(" ")));
        let path = path.replace("{name}", "a.service").replace("{id}", "1");
        let response = server.call("OPTIONS", &path, "").await;
        assert_eq!(response.status, 204, "{path}");
        let allowed = response.header("allow").unwrap().split(", ").map(str::to_owned).collect();
        methods.insert("OPTIONS".to_owned());
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        assert_eq!(methods, allowed, "{path}");
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn description_covers_discovery_document() {
    let server = Server::start().await;
    let described = operations(&description(&server).await);
    let discovery = server.get("/fleet/v1/discovery").await.json();
    let resources = discovery["resources"].as_object().unwrap().values();
    for method in resources.flat_map(|it| it["methods"].as_object().unwrap().values()) {
        let path = method["path"].as_str().unwrap().replace("{unitName}", "{name}");
        let path = format!("/fleet/v1/{path}");
        let (_, methods) = described
            .iter()
            .find(|(described_path, _)| *described_path == path)
            .expect("not described");
        assert!(methods.contains(method["httpMethod"].as_str().unwrap()), "{path}");
    }
}

#[tokio::test]
async fn references_resolve_and_operations_have_ids() {
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
async fn security_schemes_are_optional() {
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

/// Lists, units and errors match the description.
#[tokio::test]
async fn unit_fields_match_the_schema() {
    let server = Server::start().await;
    let body = r#"{"source":"[Service]\nExecStart=/bin/a\n","desiredState":"launched"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 201);
    let described = description(&server).await;
    for (path, schema) in
        [("units/a.service", "Unit"), ("units", "UnitPage"), ("units/b.service", "ErrorBody")]
    {
        let response = server.get(&format!("/fleet/v1/{path}")).await.json();
        let properties = &described["components"]["schemas"][schema]["properties"];
        for field in response.as_object().unwrap().keys() {
            assert!(properties[field].is_object(), "{schema}.{field} is not described");
        }
    }
}
