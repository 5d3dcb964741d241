//! A status is timely and bounded, regardless of the machines.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::MachineId;
use fleet_core::journal::JournalQuery;
use fleet_http::Journals;
use fleet_http::server::{JournalError, JournalStream};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tokio::time::interval;

use crate::harness::{Server, running};
use crate::http::HttpResponse;

/// Endless journals, regardless of the requested number of lines.
#[derive(Clone, Copy)]
enum Endless {
    /// One line per second or so.
    Slow,
    /// As many lines as are read, of two kibibytes each.
    Fast,
}

#[async_trait]
impl Journals for Endless {
    async fn open(
        &self,
        _: &MachineId,
        _: &UnitName,
        _: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        Ok(match self {
            Self::Fast => stream::repeat_with(|| Ok("x".repeat(2048).into())).boxed(),
            Self::Slow => stream::unfold(interval(Duration::from_millis(100)), async |mut pace| {
                pace.tick().await;
                Some((Ok("drop".to_owned().into()), pace))
            })
            .boxed(),
        })
    }
}

/// Requests the status of a unit with an endless journal. Returns the number of lines in the
/// status, and its error.
async fn status_of(journals: Endless, lines: usize) -> (usize, String) {
    let server = Server::start_with(|api| api.with_journals(Arc::new(journals))).await;
    server.sleepers(&["a.service"], "launched").await;
    let presence = server.machine("m1", &[]).await;
    server.decide(&[("a.service", "m1")], &[]).await;
    server.publish(&presence, running("a.service", "m1")).await;
    let path = format!("/fleet/v1/units/a.service/status?lines={lines}");
    let response: HttpResponse = server.get(&path).await;
    assert_eq!(response.status, 200, "{response}");
    let status: fleet_http::wire::UnitStatusReport = serde_json::from_str(&response.body).unwrap();
    let [on] = &status.machines[..] else { panic!("not on exactly one machine: {status:?}") };
    (on.lines.len(), on.journal_error.clone())
}

#[tokio::test]
async fn occasional_lines_do_not_delay_status() {
    let (lines, missing) = status_of(Endless::Slow, 1000).await;
    assert!(lines > 0, "received lines are shown");
    assert_eq!(missing, "cannot read from machine m1: reading its lines took more than 3 seconds");
}

#[tokio::test]
async fn status_lines_are_bounded() {
    assert_eq!(status_of(Endless::Fast, 5).await, (5, String::new()));
    let why = "its lines exceed 1024 KiB: read the journal instead";
    let missing = format!("cannot read the journal: {why}");
    assert_eq!(status_of(Endless::Fast, 1000).await, (512, missing));
}
