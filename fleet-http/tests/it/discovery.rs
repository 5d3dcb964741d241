//! The discovery document: complete, and true.

use serde_json::Value;

use crate::harness::Server;

async fn document(server: &Server) -> Value {
    let answer = server.get("/fleet/v1/discovery").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

fn methods(document: &Value) -> Vec<&Value> {
    let resources = document["resources"].as_object().unwrap().values();
    resources.flat_map(|resource| resource["methods"].as_object().unwrap().values()).collect()
}

// Holds: D-18
#[tokio::test]
async fn all_of_version_1_is_in_it() {
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
async fn each_method_in_it_exists() {
    let server = Server::start().await;
    for method in methods(&document(&server).await) {
        let verb = method["httpMethod"].as_str().unwrap();
        let path = method["path"].as_str().unwrap().replace("{unitName}", "a.service");
        let answer = server.call("OPTIONS", &format!("/fleet/v1/{path}"), "").await;
        assert_eq!(answer.status, 204, "{path}");
        let allowed = answer.header("allow").unwrap();
        assert!(allowed.split(", ").any(|allowed| allowed == verb), "{verb} {path}");
    }
}

#[tokio::test]
async fn each_reference_in_it_leads_somewhere() {
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
async fn each_field_that_is_served_is_in_it() {
    use fleet_http::wire::{MachineEntity, UnitEntity, UnitStateEntity};

    let server = Server::start().await;
    let document = document(&server).await;
    // Reading a field of the wrong type fails, and one that is not known does not: so each property
    // of the schema has to make the type refuse an array of numbers.
    let known = |schema: &str, reads: &dyn Fn(Value) -> bool| {
        for property in document["schemas"][schema]["properties"].as_object().unwrap().keys() {
            assert!(!reads(serde_json::json!({ property: [7] })), "{schema}.{property}");
        }
    };
    known("Unit", &|value| serde_json::from_value::<UnitEntity>(value).is_ok());
    known("UnitState", &|value| serde_json::from_value::<UnitStateEntity>(value).is_ok());
    known("Machine", &|value| serde_json::from_value::<MachineEntity>(value).is_ok());
}
