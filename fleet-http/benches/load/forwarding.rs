//! Latency of journal lines that another daemon forwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fleet_core::MachineId;
use fleet_core::journal::JournalQuery;
use fleet_http::Journals;
use fleet_http::client::JournalOptions;
use fleet_http::server::{JournalError, JournalStream};
use fleet_store::registry::MachineRecord;
use fleet_store::{Layout, MemoryStore, Registry, Store};
use fleet_unitfile::UnitName;
use tokio::sync::broadcast;

use crate::server::{Server, name};
use crate::{Goal, millis, report};

/// Measures the time that a journal line takes from the daemon of its machine, through a second
/// daemon, to a follower.
pub(crate) async fn forwarding() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (sender, _) = broadcast::channel(1);
    let there = Server::start_with(store.clone(), Arc::new(SentLines(sender.clone()))).await;
    let record = MachineRecord { api: there.url(), ..MachineRecord::new(machine()) };
    let registry = Registry::new(store.clone(), Layout::DEFAULT_PREFIX);
    let joined = registry.join(record, "token", Duration::from_secs(3600)).await;
    let _presence = joined.expect("a machine");
    let here = Server::start(store).await;
    here.fill(1).await;
    let options = JournalOptions::default().with_machine(machine().to_string()).with_follow(true);
    let mut lines = here.client().journal(&name("u0"), &options).await.expect("a journal");
    let mut took = Vec::new();
    for number in 0..1000 {
        let start = Instant::now();
        sender.send(number.to_string()).expect("one who listens");
        assert_eq!(lines.next_line().await.expect("a line"), Some(number.to_string()));
        took.push(start.elapsed());
    }
    took.sort_unstable();
    report("latency of a line through two daemons, median", millis(took[500]), "ms", Goal::None);
    let goal = Goal::AtMost(100.0);
    report("latency of a line through two daemons, longest", millis(took[999]), "ms", goal);
}

fn machine() -> MachineId {
    "m1".parse().expect("an identity")
}

/// Journal of lines from a channel.
struct SentLines(broadcast::Sender<String>);

#[async_trait]
impl Journals for SentLines {
    async fn open(
        &self,
        _: &MachineId,
        _: &UnitName,
        _: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        let next = async |mut receiver: broadcast::Receiver<String>| {
            receiver.recv().await.ok().map(|line: String| (Ok(line.into()), receiver))
        };
        Ok(Box::pin(futures_util::stream::unfold(self.0.subscribe(), next)))
    }
}
