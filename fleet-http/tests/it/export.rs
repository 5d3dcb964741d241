//! Export and import of a cluster: an export shows one revision, completely or not at all.

use fleet_core::{Epoch, Intent, MachineId, Strictness};
use fleet_store::transfer::{ExportItem, ExportReader};

use crate::harness::Server;

/// Returns the names of the exported units and the revision.
async fn exported(server: &Server) -> (Vec<String>, u64) {
    let mut bytes = server.client().export().await.unwrap();
    let (mut reader, mut units) = (ExportReader::new(), Vec::new());
    while let Some(piece) = bytes.next().await.unwrap() {
        let take = &mut |item, _| match item {
            ExportItem::Unit(unit) => units.push(unit.name.to_string()),
            other => panic!("unexpected {other:?}"),
        };
        reader.push(&piece, take).unwrap();
    }
    let (header, end) = reader.finish().unwrap();
    assert_eq!(end.units, units.len() as u64);
    (units, header.revision.0)
}

#[tokio::test]
async fn export_matches_client_and_raw_http() {
    let server = Server::start().await;
    assert_eq!(exported(&server).await.0, [""; 0]);
    for name in ["b.service", "a.service"] {
        let unit = r#"{"source":"[Service]\nExecStart=/bin/a\n","desiredState":"launched"}"#;
        assert_eq!(server.put(&format!("/fleet/v1/units/{name}"), unit).await.status, 201);
    }
    let (units, revision) = exported(&server).await;
    assert_eq!(units, ["a.service", "b.service"]);
    assert_eq!(revision, server.mirror.snapshot().revision.0);

    let response = server.get("/v1-alpha/export").await;
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(response.header("x-fleet-unknown-options"), Some("refuse"));
    let refused = server.call("POST", "/fleet/v1/export", "").await;
    assert_eq!(refused.status, 405);
}

/// A large export consists of many chunks. Each chunk is generated when it is sent.
#[tokio::test]
async fn large_export_is_complete() {
    let server = Server::start().await;
    for number in 0..300 {
        let filler = "x".repeat(1000);
        let unit = format!(r#"{{"source":"[Unit]\nDescription={filler}\n"}}"#);
        let path = format!("/fleet/v1/units/n{number:03}.service");
        assert_eq!(server.put(&path, &unit).await.status, 201);
    }
    let (units, _) = exported(&server).await;
    assert_eq!((units.len(), units[299].as_str()), (300, "n299.service"));
}

/// An import raises the epoch, so that new placements supersede those of the other cluster.
/// Otherwise, machines that remember the other cluster would ignore the new placements as older.
// Holds: I-2
#[tokio::test]
async fn import_raises_epoch_and_sets_intents() {
    let server = Server::start().await;
    let past = Epoch(7_000_000);
    let drained = ("m9".parse::<MachineId>().unwrap(), Intent::Drained { min_available: 2 });
    let early = server.client().prepare_import(past, std::slice::from_ref(&drained)).await;
    assert!(early.unwrap_err().to_string().contains("identity"));
    assert!(
        server.registry.export().await.unwrap().intents.is_empty(),
        "the import was carried out"
    );

    server.registry.lineage(&"first".parse().unwrap()).await.unwrap();
    for _ in 0..2 {
        server.client().prepare_import(past, std::slice::from_ref(&drained)).await.unwrap();
    }
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    let export = server.registry.export().await.unwrap();
    assert!(export.snapshot.placement("a.service").unwrap().epoch > past);
    assert_eq!(export.intents.into_iter().collect::<Vec<_>>(), [drained]);

    for (body, message) in [
        ("{", "unable to decode body"),
        (r#"{"epochs":1}"#, "unknown field `epochs`"),
        (r#"{"epoch":18446744073709551615}"#, "higher than the limit of"),
        (r#"{"intents":[{"machineID":"a b","intent":"cordoned"}]}"#, "intent 1"),
        (r#"{"intents":[{"machineID":"m1","intent":"drained"}]}"#, "with keepUp"),
    ] {
        let response = server.call("POST", "/fleet/v1/import", body).await;
        assert_eq!(response.status, 400, "{body}");
        assert!(response.message().contains(message), "{}", response.message());
    }
}

#[tokio::test]
async fn outdated_snapshot_is_not_exported() {
    let server = Server::start().await;
    server.store.set_unreachable(true);
    let mut progress = server.mirror.subscribe();
    progress.wait_for(|progress| !progress.is_current).await.unwrap();
    let response = server.get("/fleet/v1/export").await;
    assert_eq!(response.status, 503);
    assert!(response.message().contains("retry later"), "{}", response.message());
}

#[tokio::test]
async fn export_reports_strictness() {
    for strictness in [Strictness::Refuse, Strictness::Warn] {
        let server = Server::start_with(|api| api.with_strictness(strictness)).await;
        assert_eq!(server.client().export().await.unwrap().strictness(), strictness);
    }
}
