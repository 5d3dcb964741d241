//! The discovery document is complete and correct.

use serde_json::Value;

use crate::harness::Server;

async fn document(server: &Server) -> Value {
    let response = server.get("/fleet/v1/discovery").await;
    assert_eq!(response.header("content-type"), Some("application/json"));
    response.json()
}

fn methods(document: &Value) -> Vec<&Value> {
    let resources = document["resources"].as_object().unwrap().values();
    resources.flat_map(|resource| resource["methods"].as_object().unwrap().values()).collect()
}

// Holds: D-18
#[tokio::test]
async fn document_contains_all_of_version_1() {
    let server = Server::start().await;
    let document = document(&server).await;
    let resources = &document["resources"];
    for (resource, method) in [
        ("Machines", "List"),
        ("Units", "List"),
        ("Units", "Get"),
        ("Units", "Delete"),
        ("Units", "Set"),
        ("UnitState", "List"),
        ("UnitState", "Get"),
    ] {
        assert!(resources[resource]["methods"][method].is_object(), "{resource}.{method}");
    }
    assert_eq!(document["rootUrl"], "$ENDPOINT/");
    assert_eq!(document["basePath"], "/fleet/v1/");
}

// Holds: D-18
#[tokio::test]
async fn documented_methods_exist() {
    let server = Server::start().await;
    for method in methods(&document(&server).await) {
        let verb = method["httpMethod"].as_str().unwrap();
        let path = method["path"].as_str().unwrap().replace("{unitName}", "a.service");
        let response = server.call("OPTIONS", &format!("/fleet/v1/{path}"), "").await;
        assert_eq!(response.status, 204, "{path}");
        let allowed = response.header("allow").unwrap();
        assert!(allowed.split(", ").any(|allowed| allowed == verb), "{verb} {path}");
    }
}

#[tokio::test]
async fn schema_references_resolve() {
    let server = Server::start().await;
    let document = document(&server).await;
    let text = document.to_string();
    let references = text.split(r#""$ref":""#).skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut count = 0;
    for reference in references {
        assert_eq!(document["schemas"][reference]["id"], reference);
        count += 1;
    }
    assert!(count > 10);
}

#[tokio::test]
async fn documented_fields_exist() {
    use fleet_http::wire::{MachineEntity, UnitEntity, UnitStateEntity};

    let server = Server::start().await;
    let document = document(&server).await;
    // Decoding fails for a field of the wrong type but ignores unknown fields. So for each property
    // of the schema, the type must refuse an array of numbers.
    let check = |schema: &str, reads: &dyn Fn(Value) -> bool| {
        for property in document["schemas"][schema]["properties"].as_object().unwrap().keys() {
            assert!(!reads(serde_json::json!({ property: [7] })), "{schema}.{property}");
        }
    };
    check("Unit", &|value| serde_json::from_value::<UnitEntity>(value).is_ok());
    check("UnitState", &|value| serde_json::from_value::<UnitStateEntity>(value).is_ok());
    check("Machine", &|value| serde_json::from_value::<MachineEntity>(value).is_ok());
}
