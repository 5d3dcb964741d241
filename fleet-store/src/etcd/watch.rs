//! Watches in etcd. When the stream of a watch breaks, it is reopened, unless that takes too long.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{Error, EventType, WatchOptions, WatchResponse, WatchStream};
use fleet_core::Revision;

use super::client::{Client, Retry};
use super::failure::{Failure, FailureKind, ProtocolViolation};
use super::key_prefix::{KeyPrefix, lease_id, revision_of, signed, unsigned};
use crate::backend::WatchSender;
use crate::clock::{Clock, sleep, within};
use crate::{Changes, KeyChange, StoreError, Watch};

/// Number of revisions buffered for a slow reader. Beyond it, etcd buffers them.
const CAPACITY: usize = 1024;
/// Pause before a stream is reopened. Each failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Watches `prefix` for changes after `after`.
pub(super) async fn watch(
    client: Arc<Client>,
    key_prefix: KeyPrefix,
    prefix: &str,
    after: Revision,
) -> Result<Watch, StoreError> {
    let (sender, watch) = Watch::channel(CAPACITY);
    let prefix = prefix.to_owned();
    let assembler = Assembler::after(after);
    let task = WatchTask { client, key_prefix, prefix, sender, assembler };
    let stream = task.open().await?;
    drop(tokio::spawn(task.run(stream)));
    Ok(watch)
}

/// Task that feeds one watch.
struct WatchTask {
    client: Arc<Client>,
    key_prefix: KeyPrefix,
    prefix: String,
    sender: WatchSender,
    assembler: Assembler,
}

/// An open watch stream.
struct Stream {
    watch: WatchStream,
    /// Index of its endpoint.
    at: usize,
}

/// Reason for the end of a stream.
enum StreamEnd {
    /// The reader is gone, or the watch cannot continue.
    Watch,
    /// The stream broke, and another one can resume.
    Stream(Failure),
}

impl WatchTask {
    /// Delivers changes until the reader is gone or the watch cannot continue. When this returns,
    /// the sender is dropped, which cuts off the watch.
    async fn run(mut self, mut stream: Stream) {
        loop {
            let failure = match self.follow(&mut stream).await {
                StreamEnd::Watch => return,
                StreamEnd::Stream(failure) => failure,
            };
            let error = failure.into_read_error();
            tracing::debug!(error = &error as &dyn std::error::Error, "a watch stream has failed");
            self.client.switch_from(stream.at);
            self.assembler.restart();
            match self.reopen().await {
                Some(next) => stream = next,
                None => return,
            }
        }
    }

    async fn follow(&mut self, stream: &mut Stream) -> StreamEnd {
        let mut missed = false;
        loop {
            let response = tokio::select! {
                () = self.sender.closed() => return StreamEnd::Watch,
                response = stream.next(self.client.timeout()) => response,
            };
            match response {
                Ok(Some(response)) if response.canceled => return canceled(&response),
                Ok(Some(response)) => {
                    missed = false;
                    if !self.deliver(response).await {
                        return StreamEnd::Watch;
                    }
                }
                Ok(None) => match self.lacks_revisions(stream.at).await {
                    // A very recent revision may still be on its way.
                    Ok(misses) if !(misses && missed) => missed = misses,
                    Ok(_) => return StreamEnd::Stream(silent()),
                    Err(failure) => return StreamEnd::Stream(failure),
                },
                Err(failure) => return StreamEnd::Stream(failure),
            }
        }
    }

    /// Returns whether a silent stream lacks revisions that its endpoint has. Silence alone proves
    /// nothing, because some versions of etcd do not always respond to progress requests.
    async fn lacks_revisions(&self, at: usize) -> Result<bool, Failure> {
        let (key, options) = &self.key_prefix.probe(Revision::ZERO);
        let response = self
            .client
            .call_endpoint(at, |endpoint| async move { endpoint.get(key, options).await });
        let response = response.await?;
        Ok(revision_of(response.header.as_ref()) > self.assembler.done())
    }

    /// Delivers the completed revisions. Returns whether the watch continues.
    async fn deliver(&mut self, response: PbWatchResponse) -> bool {
        let reported = progress(&response);
        let complete = match self.assembler.take(&self.key_prefix, response) {
            Ok(complete) => complete,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    "cannot read a change from etcd: reading the whole store again"
                );
                return false;
            }
        };
        for changes in complete {
            if !self.sender.send(changes).await {
                return false;
            }
        }
        match reported.filter(|revision| self.assembler.reach(*revision)) {
            Some(revision) => {
                let nothing = Changes { revision, changes: Vec::new() };
                self.sender.send(nothing).await
            }
            None => true,
        }
    }

    /// Opens another stream after a failure. Returns `None` if that fails for too long or the
    /// reader is gone. The caller then cuts off the watch, so that its reader does not mistake an
    /// old state for the current one.
    async fn reopen(&self) -> Option<Stream> {
        let clock = Clock::start();
        let deadline = clock.now().after(self.client.timeout() * 2);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.open().await {
                Ok(stream) => return Some(stream),
                Err(StoreError::Unavailable(_)) if clock.now() < deadline => {}
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a watch is lost");
                    return None;
                }
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = self.sender.closed() => return None,
            }
        }
    }

    /// Opens a stream of the changes after the last complete revision, if etcd still has all of
    /// them.
    async fn open(&self) -> Result<Stream, StoreError> {
        let after = self.assembler.done();
        let present = self.probe(Revision::ZERO).await.map_err(Failure::into_read_error)?;
        if after > present {
            let text =
                format!("revision {after} does not exist yet: the last revision is {present}");
            return Err(StoreError::Invalid(text));
        }
        if after < present {
            self.check_compacted(after).await?;
            return self.stream(after.next()).await.map_err(Failure::into_read_error);
        }
        // Start at the last delivered revision, which is then skipped. In some versions of etcd a
        // stream that starts in the future gets no progress responses.
        self.stream(after).await.map_err(Failure::into_read_error)
    }

    async fn probe(&self, revision: Revision) -> Result<Revision, Failure> {
        let (key, options) = self.key_prefix.probe(revision);
        let response = self.client.get(&key, &options).await?;
        Ok(revision_of(response.header.as_ref()))
    }

    /// Returns [`StoreError::Compacted`] if etcd no longer has all changes after `after`. A read
    /// checks this, because etcd reports compaction late on a stream. Only if changes are gone, a
    /// stream is opened as well, because only a stream reports the oldest revision that is left.
    async fn check_compacted(&self, after: Revision) -> Result<(), StoreError> {
        match self.probe(after.next()).await {
            Err(failure) if failure.kind == FailureKind::Compacted => {}
            looked => return looked.map(|_| ()).map_err(Failure::into_read_error),
        }
        let mut stream = self.stream(after.next()).await.map_err(Failure::into_read_error)?;
        let response = stream
            .next(self.client.timeout())
            .await
            .and_then(|response| response.ok_or_else(silent));
        let response = response.map_err(Failure::into_read_error)?;
        let oldest = Revision(unsigned(response.compact_revision).0.saturating_sub(1));
        Err(StoreError::Compacted { oldest: oldest.max(after.next()) })
    }

    /// Opens a stream of changes from revision `start` on.
    async fn stream(&self, start: Revision) -> Result<Stream, Failure> {
        let (stream, refusal) = self.try_stream(start).await?;
        let Some(failure) = refusal else { return Ok(stream) };
        // etcd reports an expired token like a missing permission.
        if failure.kind != FailureKind::Refused || !self.client.forget_token(stream.at).await {
            return Err(failure);
        }
        match self.try_stream(start).await? {
            (stream, None) => Ok(stream),
            (_, Some(failure)) => Err(failure),
        }
    }

    /// Opens a stream. Also returns the failure if etcd refuses it.
    async fn try_stream(&self, start: Revision) -> Result<(Stream, Option<Failure>), Failure> {
        let (key, end) = &self.key_prefix.range(&self.prefix);
        let options = &WatchOptions::new()
            .with_range(end.clone())
            .with_start_revision(signed(start.max(Revision(1)))) // zero would mean "from now on"
            .with_progress_notify()
            .with_fragment();
        let opening = self
            .client
            .call_any(Retry::Always, |endpoint| async move { endpoint.watch(key, options).await });
        let (at, (watch, WatchResponse(first))) = opening.await?;
        let refused = (!first.created || first.canceled).then(|| refused(&first));
        Ok((Stream { watch, at }, refused))
    }
}

impl Stream {
    /// Returns the next response, or `None` if the stream is silent. After `limit` without a
    /// response, requests the stream's progress and waits for another `limit`.
    async fn next(&mut self, limit: Duration) -> Result<Option<PbWatchResponse>, Failure> {
        if let Some(response) = within(limit, self.watch.message()).await {
            return into_response(response).map(Some);
        }
        let asking = async {
            // If the request fails, the next message reports it.
            let _asked = self.watch.request_progress().await.is_ok();
            self.watch.message().await
        };
        within(limit, asking).await.map(into_response).transpose()
    }
}

fn silent() -> Failure {
    Failure::new(
        FailureKind::Ambiguous,
        ProtocolViolation("a watch delivers no changes although there are new ones"),
    )
}

fn into_response(
    response: Result<Option<WatchResponse>, Error>,
) -> Result<PbWatchResponse, Failure> {
    match response {
        Ok(Some(WatchResponse(response))) => Ok(response),
        Ok(None) => Err(Failure::new(
            FailureKind::Ambiguous,
            ProtocolViolation("a watch ended without a reason"),
        )),
        Err(error) => Err(Failure::at("the watched endpoint", error)),
    }
}

fn canceled(response: &PbWatchResponse) -> StreamEnd {
    // Compacted changes cannot be delivered by any stream.
    if response.compact_revision > 0 {
        StreamEnd::Watch
    } else {
        StreamEnd::Stream(refused(response))
    }
}

fn refused(response: &PbWatchResponse) -> Failure {
    let kind = if response.cancel_reason.contains("denied") {
        FailureKind::Refused
    } else {
        FailureKind::NotDone
    };
    Failure::new(kind, Canceled(response.cancel_reason.clone()))
}

#[derive(Debug, thiserror::Error)]
#[error("etcd has canceled the watch: {0:?}")]
struct Canceled(String);

/// Returns the revision up to which the watch is complete, if the response reports one. Responses
/// to progress requests, which have a negative watch ID, are ignored: some versions of etcd send
/// them before earlier changes.
fn progress(response: &PbWatchResponse) -> Option<Revision> {
    let tells = response.events.is_empty() && !response.created && response.watch_id >= 0;
    tells.then(|| revision_of(response.header.as_ref()))
}

/// Progress of a watch, and its incomplete revision.
#[derive(Debug)]
pub(super) struct Assembler {
    /// Last complete revision, or the revision that the watch started after.
    done: Revision,
    open: Option<Changes>,
}

impl Assembler {
    pub(super) fn after(done: Revision) -> Self {
        Self { done, open: None }
    }

    /// Returns the revision after which a new stream must start.
    pub(super) fn done(&self) -> Revision {
        self.done
    }

    /// Drops an incomplete revision, because the next stream delivers it again.
    pub(super) fn restart(&mut self) {
        self.open = None;
    }

    /// Adds the changes in a response, and returns the revisions that are now complete, in order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when a key in the response is not UTF-8.
    pub(super) fn take(
        &mut self,
        key_prefix: &KeyPrefix,
        response: PbWatchResponse,
    ) -> Result<Vec<Changes>, StoreError> {
        let mut complete = Vec::new();
        for event in response.events {
            self.take_event(key_prefix, event, &mut complete)?;
        }
        if !response.fragment {
            complete.extend(self.close());
        }
        Ok(complete)
    }

    fn take_event(
        &mut self,
        key_prefix: &KeyPrefix,
        event: PbEvent,
        complete: &mut Vec<Changes>,
    ) -> Result<(), StoreError> {
        let is_put = event.r#type == i32::from(EventType::Put);
        let Some(kv) = event.kv else { return Ok(()) };
        let revision = unsigned(kv.mod_revision);
        if revision <= self.done {
            return Ok(());
        }
        if self.open.as_ref().is_some_and(|open| open.revision != revision) {
            complete.extend(self.close());
        }
        let key: Arc<str> = key_prefix.store_key(&kv.key)?.into();
        let change = match is_put {
            true => KeyChange { key, value: Some(kv.value.into()), lease: lease_id(kv.lease) },
            false => KeyChange { key, value: None, lease: None },
        };
        let open = self.open.get_or_insert_with(|| Changes { revision, changes: Vec::new() });
        open.changes.push(change);
        Ok(())
    }

    fn close(&mut self) -> Option<Changes> {
        let mut changes = self.open.take()?;
        changes.changes.sort_by(|a, b| a.key.cmp(&b.key));
        self.done = changes.revision;
        Some(changes)
    }

    /// Records that all changes up to `revision` have arrived, unless a revision is still
    /// incomplete. Returns whether the last complete revision has advanced.
    pub(super) fn reach(&mut self, revision: Revision) -> bool {
        let news = self.open.is_none() && revision > self.done;
        if news {
            self.done = revision;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;

    use super::*;

    fn response(fragment: bool, events: &[(i64, &str)]) -> PbWatchResponse {
        let event = |&(revision, key): &(i64, &str)| PbEvent {
            r#type: EventType::Put.into(),
            kv: Some(PbKeyValue {
                key: key.as_bytes().to_vec(),
                mod_revision: revision,
                ..PbKeyValue::default()
            }),
            prev_kv: None,
        };
        let events = events.iter().map(event).collect();
        PbWatchResponse { fragment, events, ..PbWatchResponse::default() }
    }

    fn take(assembler: &mut Assembler, response: PbWatchResponse) -> Vec<String> {
        let complete = assembler.take(&KeyPrefix::new(""), response).unwrap();
        let keys = |changes: &Changes| {
            let keys: Vec<_> = changes.changes.iter().map(|change| &*change.key).collect();
            format!("{}: {}", changes.revision, keys.join(" "))
        };
        complete.iter().map(keys).collect()
    }

    #[test]
    fn revision_is_delivered_whole_in_key_order() {
        let mut assembler = Assembler::after(Revision(1));
        let complete = take(&mut assembler, response(false, &[(2, "b"), (2, "a"), (4, "c")]));
        assert_eq!(complete, ["2: a b", "4: c"]);
        assert_eq!(assembler.done(), Revision(4));
    }

    #[test]
    fn fragmented_revision_waits_for_its_last_fragment() {
        let mut assembler = Assembler::after(Revision(1));
        assert_eq!(take(&mut assembler, response(true, &[(2, "a"), (3, "b")])), ["2: a"]);
        assert_eq!(take(&mut assembler, response(true, &[(3, "a")])), [""; 0]);
        assert!(!assembler.reach(Revision(9)), "a piece is missing");
        assert_eq!(take(&mut assembler, response(false, &[(3, "c")])), ["3: a b c"]);
    }

    #[test]
    fn new_stream_repeats_nothing_and_completes_fragments() {
        let mut assembler = Assembler::after(Revision(1));
        assert_eq!(take(&mut assembler, response(true, &[(2, "a"), (3, "b")])), ["2: a"]);
        assembler.restart();
        assert_eq!(assembler.done(), Revision(2));
        let complete = take(&mut assembler, response(false, &[(2, "a"), (3, "a"), (3, "b")]));
        assert_eq!(complete, ["3: a b"]);
    }

    #[test]
    fn progress_is_reported_once() {
        let mut assembler = Assembler::after(Revision(1));
        assert!(assembler.reach(Revision(5)));
        assert!(!assembler.reach(Revision(5)));
        assert_eq!(take(&mut assembler, response(false, &[(5, "a"), (6, "b")])), ["6: b"]);
    }
}
