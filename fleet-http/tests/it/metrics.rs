//! What Prometheus reads.

use fleet_core::Reason;
use fleet_store::Registry;

use crate::harness::{Server, whole_store};

/// The values of all series whose name and labels begin like that, in order.
async fn values(server: &Server, beginning: &str) -> Vec<String> {
    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let lines = answer.body.lines().filter(|line| line.starts_with(beginning));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_text_is_one_that_prometheus_reads() {
    let server = Server::start().await;
    let answer = server.get("/metrics").await;
    let content = answer.header("content-type").unwrap();
    assert_eq!(content, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(answer.body.ends_with("# EOF\n"), "{answer}");
    assert_eq!(answer.body.matches("# EOF").count(), 1);
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(series.starts_with("fleet_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn the_cluster_is_counted() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[]).await;
    server.sleepers(&["a.service", "b.service", "c.service"], "launched").await;
    server.sleepers(&["d.service"], "inactive").await;
    server.damage("d.service").await;
    server.decide(&[("a.service", "m1")], &[("b.service", Reason::NoMachines)]).await;
    for (series, value) in [
        (r#"fleet_units{desired="launched"}"#, "3"),
        (r#"fleet_units{desired="inactive"}"#, "0"),
        ("fleet_invalid_units", "1"),
        ("fleet_machines", "1"),
        ("fleet_placements", "1"),
        (r#"fleet_unplaced_units{reason="noMachines"}"#, "1"),
        ("fleet_mirror_behind_seconds", "0"),
        ("fleet_mirror_resyncs", "1"),
    ] {
        assert_eq!(values(&server, series).await, [format!("{series} {value}")]);
    }
}

/// Why a machine that is away keeps its unit is told in the same place as why a unit has none.
#[tokio::test]
async fn a_unit_of_a_machine_that_is_away_is_not_one_without_a_machine() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let away = Reason::NotRescheduled { machine: "m1".parse().unwrap() };
    server.decide(&[("a.service", "m1")], &[]).await;
    server.decide(&[], &[("a.service", away)]).await;
    let placed = values(&server, "fleet_placements").await;
    assert_eq!(placed, ["fleet_placements 1"]);
    assert!(values(&server, "fleet_unplaced_units").await.is_empty());
}

#[tokio::test]
async fn requests_are_counted_by_route_and_not_by_path() {
    let server = Server::start().await;
    for path in ["/fleet/v1/units/a.service", "/v1-alpha/units/b.service", "/nowhere", "/else"] {
        server.get(path).await;
    }
    server.call("BREW", "/fleet/v1/units", "").await;
    let counted = values(&server, "fleet_api_requests_total").await;
    let short = counted.iter().map(|line| line.trim_start_matches("fleet_api_requests_total"));
    let mut counted: Vec<&str> = short.collect();
    counted.sort_unstable();
    assert_eq!(
        counted,
        [
            r#"{route="/fleet/v1/units",method="other",status="405"} 1"#,
            r#"{route="/fleet/v1/units/{name}",method="GET",status="404"} 2"#,
            r#"{route="other",method="GET",status="404"} 2"#,
        ]
    );
}

#[tokio::test]
async fn calls_of_the_store_are_measured() {
    let server = Server::start_with(|api| {
        let store = api.metrics.metered_store(api.registry.store().clone());
        api.registry = Registry::new(store, api.registry.layout().prefix());
    })
    .await;
    server.sleepers(&["a.service"], "inactive").await;
    server.store.set_unreachable(true);
    let body = r#"{"desiredState":"loaded"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 503);
    let count = r#"fleet_registry_operation_count_total{type="commit"}"#;
    assert_eq!(values(&server, count).await.len(), 1);
    let failed = "fleet_registry_operation_failed_count_total{";
    let failed = values(&server, failed).await;
    assert!(failed.len() > 1, "also what never failed has a number: {failed:?}");
    assert_eq!(failed.iter().filter(|line| line.ends_with("{type=\"commit\"} 1")).count(), 1);
    assert!(failed.iter().all(|line| line.ends_with(" 0") || line.contains("commit")));
    let took = r#"fleet_registry_operation_duration_second_count{type="commit"}"#;
    assert_eq!(values(&server, took).await.len(), 1);
}

// Holds: D-1
#[tokio::test]
async fn it_is_answered_before_anything_is_known() {
    let store = whole_store();
    store.set_unreachable(true);
    let server = Server::start_unread(store, |_| {}).await;
    assert_eq!(values(&server, "fleet_machines").await, ["fleet_machines 0"]);
    assert_eq!(values(&server, "fleet_mirror_resync").await, ["fleet_mirror_resyncs 0"]);
}

#[tokio::test]
async fn others_can_add_what_they_count() {
    use fleet_http::prometheus_client::metrics::counter::Counter;

    let turns = Counter::<u64>::default();
    let told = turns.clone();
    let server = Server::start_with(|api| {
        api.metrics.register(|registry| registry.register("engine_turns", "Turns", told));
    })
    .await;
    turns.inc();
    assert_eq!(values(&server, "fleet_engine_turns").await, ["fleet_engine_turns_total 1"]);
}
