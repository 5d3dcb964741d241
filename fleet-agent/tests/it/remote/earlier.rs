//! The other process is of an earlier version: it runs on while this one was replaced.

use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::remote::{Replies, Service, Units, serve_with};
use fleet_agent::{JournalLine, JournalQuery, ServiceManager, SystemClock};
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::served::Served;
use crate::support::name;

/// Tells the text of lines alone, and knows nothing of their positions.
struct Earlier;

#[async_trait]
impl Service for Earlier {
    async fn answer(&self, ask: Value, replies: &mut Replies) -> Result<(), Value> {
        let ask = &ask["units"];
        if ask == "watch" {
            replies.send(&json!({ "here": [], "gone": [] })).await;
            std::future::pending::<()>().await;
        } else if ask.get("journal").is_some() {
            replies.send(&["one"]).await;
            replies.send(&["two", "three"]).await;
        } else {
            return Err(Units::unavailable("it does not understand: unknown variant"));
        }
        Ok(())
    }
}

#[tokio::test]
async fn the_journals_of_an_earlier_version_are_read() {
    let served = Served::new();
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let clock = Arc::new(SystemClock::start());
    let server = tokio::spawn(serve_with(listener, Arc::new(Earlier), "test", clock));
    let (manager, unit) = (served.open().await, name("a.service"));
    let journal = manager.journal(&unit, JournalQuery::default()).await;
    let mut journal = journal.expect("it is understood");
    let lines = ["one", "two", "three"].map(|line| JournalLine::from(line.to_owned()));
    for line in &lines {
        assert_eq!(journal.next_line().await.as_ref(), Some(line));
    }
    assert_eq!(journal.next_line().await, None);
    let journal = manager.journal_after(&unit, "a.position", false).await;
    let mut journal = journal.expect("it is told from its beginning");
    for line in [JournalLine::gap()].iter().chain(&lines) {
        assert_eq!(journal.next_line().await.as_ref(), Some(line));
    }
    server.abort();
}
