//! Watches of etcd: a stream that is opened again where it broke off, as long as that can be soon.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbWatchResponse;
use etcd_client::{Error, WatchOptions, WatchResponse, WatchStream};
use fleet_core::Revision;

use super::assemble::Assembler;
use super::client::{Client, Retry};
use super::failure::{Failure, FailureKind, ProtocolViolation};
use super::key_prefix::{KeyPrefix, revision_of, signed, unsigned};
use crate::clock::{Clock, sleep, within};
use crate::{Changes, StoreError, Watch, WatchSender};

/// How many revisions a reader may be behind before etcd is left to keep them for it.
const CAPACITY: usize = 1024;
/// The pause before a stream is opened again; each failure doubles it.
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

/// What feeds one watch.
struct WatchTask {
    client: Arc<Client>,
    key_prefix: KeyPrefix,
    prefix: String,
    sender: WatchSender,
    assembler: Assembler,
}

/// An open stream of etcd's.
struct Stream {
    watch: WatchStream,
    /// Which endpoint it is from.
    at: usize,
}

/// Why a stream is at its end.
enum StreamEnd {
    /// The reader is gone, or nothing that can be delivered will come.
    Watch,
    /// It broke off, and another one may go on.
    Stream(Failure),
}

impl WatchTask {
    /// Delivers until the reader is gone or the watch cannot go on; to end is to cut it off.
    async fn run(mut self, mut stream: Stream) {
        loop {
            let failure = match self.follow(&mut stream).await {
                StreamEnd::Watch => return,
                StreamEnd::Stream(failure) => failure,
            };
            let error = failure.into_read_error();
            tracing::debug!(error = &error as &dyn std::error::Error, "a watch has broken off");
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
                    // What was made a moment ago may be on its way.
                    Ok(misses) if !(misses && missed) => missed = misses,
                    Ok(_) => return StreamEnd::Stream(silent()),
                    Err(failure) => return StreamEnd::Stream(failure),
                },
                Err(failure) => return StreamEnd::Stream(failure),
            }
        }
    }

    /// Whether a silent stream lacks revisions that its endpoint has. Not every version of etcd
    /// gives a sign of life when a stream is asked for one, and not at all times.
    async fn lacks_revisions(&self, at: usize) -> Result<bool, Failure> {
        let (key, options) = &self.key_prefix.probe(Revision::ZERO);
        let response = self
            .client
            .call_endpoint(at, |endpoint| async move { endpoint.get(key, options).await });
        let response = response.await?;
        Ok(revision_of(response.header.as_ref()) > self.assembler.done())
    }

    /// Whether the watch goes on.
    async fn deliver(&mut self, response: PbWatchResponse) -> bool {
        let told = progress(&response);
        let whole = match self.assembler.take(&self.key_prefix, response) {
            Ok(whole) => whole,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a watch is cut off");
                return false;
            }
        };
        for changes in whole {
            if !self.sender.send(changes).await {
                return false;
            }
        }
        match told.filter(|revision| self.assembler.reach(*revision)) {
            Some(revision) => {
                let nothing = Changes { revision, changes: Vec::new() };
                self.sender.send(nothing).await
            }
            None => true,
        }
    }

    /// Another stream in place of one that broke off. Nothing when none is to be had in a while:
    /// then the reader has to be told, rather than take what it has for the present.
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

    /// Opens a stream that goes on after what was delivered, and makes sure that etcd has it all.
    async fn open(&self) -> Result<Stream, StoreError> {
        let after = self.assembler.done();
        let present = self.probe(Revision::ZERO).await.map_err(Failure::into_read_error)?;
        if after > present {
            let text = format!("revision {after} was not made yet: {present} is the last");
            return Err(StoreError::Invalid(text));
        }
        if after < present {
            self.check_compacted(after).await?;
            return self.stream(after.next()).await.map_err(Failure::into_read_error);
        }
        // What was seen comes once more, and is passed over: a stream that begins in the future
        // gets no sign of life from some versions of etcd.
        self.stream(after).await.map_err(Failure::into_read_error)
    }

    async fn probe(&self, revision: Revision) -> Result<Revision, Failure> {
        let (key, options) = self.key_prefix.probe(revision);
        let response = self.client.get(&key, &options).await?;
        Ok(revision_of(response.header.as_ref()))
    }

    /// A watch is told late that it asked for what is no longer kept, so that is asked before. How
    /// much is still kept only a watch is told, though.
    async fn check_compacted(&self, after: Revision) -> Result<(), StoreError> {
        match self.probe(after.next()).await {
            Err(failure) if failure.kind == FailureKind::Compacted => {}
            looked => return looked.map(|_| ()).map_err(Failure::into_read_error),
        }
        let mut stream = self.stream(after.next()).await.map_err(Failure::into_read_error)?;
        let response =
            stream.next(self.client.timeout()).await.and_then(|told| told.ok_or_else(silent));
        let response = response.map_err(Failure::into_read_error)?;
        let oldest = Revision(unsigned(response.compact_revision).0.saturating_sub(1));
        Err(StoreError::Compacted { oldest: oldest.max(after.next()) })
    }

    /// A stream of changes from revision `start` on.
    async fn stream(&self, start: Revision) -> Result<Stream, Failure> {
        let (stream, refusal) = self.try_stream(start).await?;
        let Some(failure) = refusal else { return Ok(stream) };
        // A stream whose token has expired is not told from one without the right to watch.
        if failure.kind != FailureKind::Refused || !self.client.forget_token(stream.at).await {
            return Err(failure);
        }
        match self.try_stream(start).await? {
            (stream, None) => Ok(stream),
            (_, Some(failure)) => Err(failure),
        }
    }

    /// A stream, and why etcd refuses it, if it does.
    async fn try_stream(&self, start: Revision) -> Result<(Stream, Option<Failure>), Failure> {
        let (key, end) = &self.key_prefix.range(&self.prefix);
        let options = &WatchOptions::new()
            .with_range(end.clone())
            .with_start_revision(signed(start.max(Revision(1)))) // zero would mean: from now on
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
    /// The next response. A stream that is silent is asked for a sign of life; nothing when none
    /// comes.
    async fn next(&mut self, limit: Duration) -> Result<Option<PbWatchResponse>, Failure> {
        if let Some(response) = within(limit, self.watch.message()).await {
            return into_response(response).map(Some);
        }
        let asking = async {
            // Whether it can no longer be asked its response tells.
            let _asked = self.watch.request_progress().await.is_ok();
            self.watch.message().await
        };
        within(limit, asking).await.map(into_response).transpose()
    }
}

fn silent() -> Failure {
    Failure::new(
        FailureKind::Ambiguous,
        ProtocolViolation("a watch is silent about what has changed"),
    )
}

fn into_response(
    response: Result<Option<WatchResponse>, Error>,
) -> Result<PbWatchResponse, Failure> {
    match response {
        Ok(Some(WatchResponse(response))) => Ok(response),
        Ok(None) => {
            Err(Failure::new(FailureKind::Ambiguous, ProtocolViolation("a watch has ended")))
        }
        Err(error) => Err(Failure::at("the watched endpoint", error)),
    }
}

fn canceled(response: &PbWatchResponse) -> StreamEnd {
    // What is no longer kept cannot be delivered by any other stream either.
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

/// The revision up to which the watch has got everything, if the response is about that. An response to
/// a question after progress is not: some versions of etcd send it before changes that belong
/// before it. It has the name of no watch.
fn progress(response: &PbWatchResponse) -> Option<Revision> {
    let tells = response.events.is_empty() && !response.created && response.watch_id >= 0;
    tells.then(|| revision_of(response.header.as_ref()))
}
