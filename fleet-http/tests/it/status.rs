//! A status is there in time and within bounds, whatever a machine tells.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::MachineId;
use fleet_http::{JournalError, JournalRequest, JournalStream, Journals};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tokio::time::interval;

use crate::harness::{Server, running};
use crate::http::Answer;

/// Journals that never end, however many lines are asked for.
#[derive(Clone, Copy)]
enum Endless {
    /// A line now and then.
    Slow,
    /// As many as are taken, of two kibibytes each.
    Fast,
}

#[async_trait]
impl Journals for Endless {
    async fn open(
        &self,
        _: &MachineId,
        _: &UnitName,
        _: &JournalRequest,
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

/// The status of a unit on a machine that never comes to an end: its lines, and what is missing.
async fn told(journals: Endless, lines: usize) -> (usize, String) {
    let server = Server::start_with(|api| api.journals = Arc::new(journals)).await;
    server.sleepers(&["a.service"], "launched").await;
    let presence = server.machine("m1", &[]).await;
    server.decide(&[("a.service", "m1")], &[]).await;
    server.publish(&presence, running("a.service", "m1")).await;
    let path = format!("/fleet/v1/units/a.service/status?lines={lines}");
    let answer: Answer = server.get(&path).await;
    assert_eq!(answer.status, 200, "{answer}");
    let status: fleet_http::wire::UnitStatusReport = serde_json::from_str(&answer.body).unwrap();
    let [on] = &status.machines[..] else { panic!("it is on one machine: {status:?}") };
    (on.lines.len(), on.journal_error.clone())
}

#[tokio::test]
async fn lines_that_come_now_and_then_do_not_hold_up_a_status() {
    let (lines, missing) = told(Endless::Slow, 1000).await;
    assert!(lines > 0, "what came is shown");
    assert_eq!(missing, "machine m1 does not answer: its lines took more than 3 seconds");
}

#[tokio::test]
async fn a_status_has_no_more_lines_than_are_asked_for_and_no_more_than_fit() {
    assert_eq!(told(Endless::Fast, 5).await, (5, String::new()));
    let why = "its lines have more than 1024 KiB: ask for the journal";
    let missing = format!("the journal cannot be read: {why}");
    assert_eq!(told(Endless::Fast, 1000).await, (512, missing));
}
