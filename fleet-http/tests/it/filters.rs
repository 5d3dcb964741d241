//! Filters of lists.

use fleet_core::TargetState;
use fleet_http::client::UnitFilter;

use crate::harness::{Server, name};

async fn cluster() -> Server {
    let server = Server::start_with(|api| api.with_page_size(1)).await;
    let _away = server.machine("m1", &[("disk", "ssd"), ("zone", "a")]).await;
    let _away = server.machine("m2", &[("disk", "ssd"), ("zone", "b")]).await;
    server.sleepers(&["a.service", "b@1.service", "b@2.service"], "launched").await;
    server.sleepers(&["b@.service", "c.service"], "inactive").await;
    server.decide(&[("a.service", "m1"), ("b@1.service", "m1"), ("b@2.service", "m2")], &[]).await;
    server
}

async fn listed(server: &Server, resource: &str, query: &str) -> String {
    let (mut found, mut token) = (String::new(), String::new());
    loop {
        let page = server.get(&format!("/fleet/v1/{resource}?{query}{token}")).await.json();
        for item in page[resource].as_array().into_iter().flatten() {
            let name = item.get("name").or(item.get("id")).unwrap().as_str().unwrap();
            found += &format!("{name} ");
        }
        let Some(next) = page["nextPageToken"].as_str() else { return found.trim().to_owned() };
        token = format!("&nextPageToken={next}");
    }
}

#[tokio::test]
async fn units_filter_by_machine_state_and_template() {
    let server = cluster().await;
    for (query, expected) in [
        ("machineID=m1", "a.service b@1.service"),
        ("machineID=m3", ""),
        ("desiredState=inactive", "b@.service c.service"),
        ("currentState=launched", ""),
        ("currentState=inactive&machineID=m2", "b@2.service"),
        ("template=b@.service", "b@1.service b@2.service"),
        ("template=b@.service&machineID=m1&desiredState=launched", "b@1.service"),
        ("metadata=zone=b", "b@2.service"),
        ("metadata=disk=ssd&template=b@.service", "b@1.service b@2.service"),
        ("metadata=disk=ssd&metadata=zone=a", "a.service b@1.service"),
        ("metadata=rack", ""),
        ("template=", "a.service b@.service b@1.service b@2.service c.service"),
    ] {
        assert_eq!(listed(&server, "units", query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn faulty_units_match_only_name_filters() {
    let server = cluster().await;
    server.damage("b@1.service").await;
    let by_template = listed(&server, "units", "template=b@.service").await;
    assert_eq!(by_template, "b@1.service b@2.service");
    assert_eq!(listed(&server, "units", "machineID=m1").await, "a.service");
    assert_eq!(listed(&server, "units", "metadata=zone=a").await, "a.service");
}

#[tokio::test]
async fn machines_filter_by_metadata() {
    let server = cluster().await;
    for (query, expected) in [
        ("metadata=disk=ssd", "m1 m2"),
        ("metadata=disk=ssd&metadata=zone=b", "m2"),
        ("metadata=zone", "m1 m2"),
        ("metadata=zone=", ""),
        ("metadata=rack", ""),
    ] {
        assert_eq!(listed(&server, "machines", query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn invalid_filter_is_refused() {
    let server = cluster().await;
    for query in [
        "units?desiredState=up",
        "units?currentState=Launched",
        "units?template=a.service",
        "units?template=x",
        "state?template=x",
        "state?systemdActiveState=up",
        "events?template=x",
    ] {
        let response = server.get(&format!("/fleet/v1/{query}")).await;
        assert_eq!(response.status, 400, "{query}");
        let message = response.message();
        assert!(message.contains("use a") || message.contains("write"), "{response}");
    }
}

#[tokio::test]
async fn client_filters_match_the_api() {
    let server = cluster().await;
    let template = Some(name("b@.service"));
    let filter = UnitFilter::default()
        .with_machine("m2")
        .with_desired(TargetState::Launched)
        .with_current(TargetState::Inactive)
        .with_template(template)
        .with_metadata(vec!["zone=b".to_owned(), "disk".to_owned()]);
    let units = server.client().units_matching(&filter).await.unwrap();
    assert_eq!(units.iter().map(|unit| unit.name.as_str()).collect::<Vec<_>>(), ["b@2.service"]);
}
