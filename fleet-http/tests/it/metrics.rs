//! Metrics for Prometheus.

use fleet_core::Reason;
use fleet_http::Metrics;

use crate::harness::{Server, working_store};

/// Returns the series that begin with this text, in order.
async fn values(server: &Server, beginning: &str) -> Vec<String> {
    let response = server.get("/metrics").await;
    assert_eq!(response.status, 200);
    let lines = response.body.lines().filter(|line| line.starts_with(beginning));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn text_is_valid_open_metrics() {
    let server = Server::start().await;
    let response = server.get("/metrics").await;
    let content = response.header("content-type").unwrap();
    assert_eq!(content, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(response.body.ends_with("# EOF\n"), "{response}");
    assert_eq!(response.body.matches("# EOF").count(), 1);
    for line in response.body.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(series.starts_with("fleet_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn cluster_metrics_are_exposed() {
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

/// Reasons of units on absent machines are stored like those of unplaced units.
#[tokio::test]
async fn unit_on_absent_machine_is_not_unplaced() {
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
async fn requests_are_counted_by_route() {
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
async fn store_calls_are_counted_and_timed() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    server.store.set_unreachable(true);
    let body = r#"{"desiredState":"loaded"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.status, 503);
    let count = r#"fleet_registry_operation_count_total{type="commit"}"#;
    assert_eq!(values(&server, count).await.len(), 1);
    let failed = "fleet_registry_operation_failed_count_total{";
    let failed = values(&server, failed).await;
    assert!(failed.len() > 1, "calls without failures are counted too: {failed:?}");
    assert_eq!(failed.iter().filter(|line| line.ends_with("{type=\"commit\"} 1")).count(), 1);
    assert!(failed.iter().all(|line| line.ends_with(" 0") || line.contains("commit")));
    let took = r#"fleet_registry_operation_duration_second_count{type="commit"}"#;
    assert_eq!(values(&server, took).await.len(), 1);
}

// Holds: D-1
#[tokio::test]
async fn metrics_are_served_before_first_read() {
    let store = working_store();
    store.set_unreachable(true);
    let server = Server::start_unread(store, |api| api).await;
    assert_eq!(values(&server, "fleet_machines").await, ["fleet_machines 0"]);
    assert_eq!(values(&server, "fleet_mirror_resync").await, ["fleet_mirror_resyncs 0"]);
}

#[tokio::test]
async fn registered_metrics_are_exposed() {
    use fleet_http::prometheus_client::metrics::counter::Counter;

    let turns = Counter::<u64>::default();
    let counter = turns.clone();
    let server = Server::start_with(|api| {
        let metrics = Metrics::new();
        metrics.register(|registry| registry.register("engine_turns", "Turns", counter));
        api.with_metrics(metrics)
    })
    .await;
    turns.inc();
    assert_eq!(values(&server, "fleet_engine_turns").await, ["fleet_engine_turns_total 1"]);
}
