//! Watches of etcd: a stream that is opened again where it broke off, as long as that can be soon.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbWatchResponse;
use etcd_client::{Error, WatchOptions, WatchResponse, WatchStream};
use fleet_core::Revision;

use super::assemble::Assembler;
use super::client::{Client, Repeat};
use super::failure::{Failure, Kind, Odd};
use super::space::{Space, revision_of, signed, unsigned};
use crate::clock::{Clock, wait, within};
use crate::{Changes, StoreError, Watch, WatchSender};

/// How many revisions a reader may be behind before etcd is left to keep them for it.
const CAPACITY: usize = 1024;
/// The pause before a stream is opened again; each failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Watches `prefix` for changes after `after`.
pub(super) async fn watch(
    client: Arc<Client>,
    space: Space,
    prefix: &str,
    after: Revision,
) -> Result<Watch, StoreError> {
    let (sender, watch) = Watch::channel(CAPACITY);
    let prefix = prefix.to_owned();
    let assembler = Assembler::after(after);
    let feed = Feed { client, space, prefix, sender, assembler };
    let stream = feed.open().await?;
    drop(tokio::spawn(feed.run(stream)));
    Ok(watch)
}

/// What feeds one watch.
struct Feed {
    client: Arc<Client>,
    space: Space,
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
enum End {
    /// The reader is gone, or nothing that can be delivered will come.
    Watch,
    /// It broke off, and another one may go on.
    Stream(Failure),
}

impl Feed {
    /// Delivers until the reader is gone or the watch cannot go on; to end is to cut it off.
    async fn run(mut self, mut stream: Stream) {
        loop {
            let failure = match self.follow(&mut stream).await {
                End::Watch => return,
                End::Stream(failure) => failure,
            };
            let error = failure.of_question();
            tracing::debug!(error = &error as &dyn std::error::Error, "a watch has broken off");
            self.client.leave(stream.at);
            self.assembler.begin_again();
            match self.reopen().await {
                Some(next) => stream = next,
                None => return,
            }
        }
    }

    async fn follow(&mut self, stream: &mut Stream) -> End {
        let mut missed = false;
        loop {
            let answer = tokio::select! {
                () = self.sender.closed() => return End::Watch,
                answer = stream.next(self.client.limit()) => answer,
            };
            match answer {
                Ok(Some(answer)) if answer.canceled => return canceled(&answer),
                Ok(Some(answer)) => {
                    missed = false;
                    if !self.deliver(answer).await {
                        return End::Watch;
                    }
                }
                Ok(None) => match self.misses(stream.at).await {
                    // What was made a moment ago may be on its way.
                    Ok(misses) if !(misses && missed) => missed = misses,
                    Ok(_) => return End::Stream(silent()),
                    Err(failure) => return End::Stream(failure),
                },
                Err(failure) => return End::Stream(failure),
            }
        }
    }

    /// Whether a silent stream lacks revisions that its endpoint has. Not every version of etcd
    /// gives a sign of life when a stream is asked for one, and not at all times.
    async fn misses(&self, at: usize) -> Result<bool, Failure> {
        let (key, options) = &self.space.look(Revision::ZERO);
        let answer =
            self.client.ask(at, |endpoint| async move { endpoint.get(key, options).await });
        let answer = answer.await?;
        Ok(revision_of(answer.header.as_ref()) > self.assembler.done())
    }

    /// Whether the watch goes on.
    async fn deliver(&mut self, answer: PbWatchResponse) -> bool {
        let told = progress(&answer);
        let whole = match self.assembler.take(&self.space, answer) {
            Ok(whole) => whole,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a watch is cut off");
                return false;
            }
        };
        for changes in whole {
            if !self.sender.send_when_taken(changes).await {
                return false;
            }
        }
        match told.filter(|revision| self.assembler.reach(*revision)) {
            Some(revision) => {
                let nothing = Changes { revision, changes: Vec::new() };
                self.sender.send_when_taken(nothing).await
            }
            None => true,
        }
    }

    /// Another stream in place of one that broke off. Nothing when none is to be had in a while:
    /// then the reader has to be told, rather than take what it has for the present.
    async fn reopen(&self) -> Option<Stream> {
        let clock = Clock::start();
        let deadline = clock.now().after(self.client.limit() * 2);
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
                () = wait(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = self.sender.closed() => return None,
            }
        }
    }

    /// Opens a stream that goes on after what was delivered, and makes sure that etcd has it all.
    async fn open(&self) -> Result<Stream, StoreError> {
        let after = self.assembler.done();
        let present = self.look(Revision::ZERO).await.map_err(Failure::of_question)?;
        if after > present {
            let text = format!("revision {after} was not made yet: {present} is the last");
            return Err(StoreError::Invalid(text));
        }
        if after < present {
            self.refuse_compacted(after).await?;
            return self.stream(after.next()).await.map_err(Failure::of_question);
        }
        // What was seen comes once more, and is passed over: a stream that begins in the future
        // gets no sign of life from some versions of etcd.
        self.stream(after).await.map_err(Failure::of_question)
    }

    async fn look(&self, revision: Revision) -> Result<Revision, Failure> {
        let (key, options) = self.space.look(revision);
        let answer = self.client.get(&key, &options).await?;
        Ok(revision_of(answer.header.as_ref()))
    }

    /// A watch is told late that it asked for what is no longer kept, so that is asked before. How
    /// much is still kept only a watch is told, though.
    async fn refuse_compacted(&self, after: Revision) -> Result<(), StoreError> {
        match self.look(after.next()).await {
            Err(failure) if failure.kind == Kind::Compacted => {}
            looked => return looked.map(|_| ()).map_err(Failure::of_question),
        }
        let mut stream = self.stream(after.next()).await.map_err(Failure::of_question)?;
        let answer =
            stream.next(self.client.limit()).await.and_then(|told| told.ok_or_else(silent));
        let answer = answer.map_err(Failure::of_question)?;
        let oldest = Revision(unsigned(answer.compact_revision).0.saturating_sub(1));
        Err(StoreError::Compacted { oldest: oldest.max(after.next()) })
    }

    /// A stream of changes from revision `start` on.
    async fn stream(&self, start: Revision) -> Result<Stream, Failure> {
        let (stream, refusal) = self.try_stream(start).await?;
        let Some(failure) = refusal else { return Ok(stream) };
        // A stream whose token has expired is not told from one without the right to watch.
        if failure.kind != Kind::Refused || !self.client.forget_token(stream.at).await {
            return Err(failure);
        }
        match self.try_stream(start).await? {
            (stream, None) => Ok(stream),
            (_, Some(failure)) => Err(failure),
        }
    }

    /// A stream, and why etcd refuses it, if it does.
    async fn try_stream(&self, start: Revision) -> Result<(Stream, Option<Failure>), Failure> {
        let (key, end) = &self.space.range(&self.prefix);
        let options = &WatchOptions::new()
            .with_range(end.clone())
            .with_start_revision(signed(start.max(Revision(1)))) // zero would mean: from now on
            .with_progress_notify()
            .with_fragment();
        let opening = self.client.call_somewhere(Repeat::Always, |endpoint| async move {
            endpoint.watch(key, options).await
        });
        let (at, (watch, WatchResponse(first))) = opening.await?;
        let refused = (!first.created || first.canceled).then(|| refused(&first));
        Ok((Stream { watch, at }, refused))
    }
}

impl Stream {
    /// The next answer. A stream that is silent is asked for a sign of life; nothing when none
    /// comes.
    async fn next(&mut self, limit: Duration) -> Result<Option<PbWatchResponse>, Failure> {
        if let Some(answer) = within(limit, self.watch.message()).await {
            return answer_of(answer).map(Some);
        }
        let asking = async {
            // Whether it can no longer be asked its answer tells.
            let _asked = self.watch.request_progress().await.is_ok();
            self.watch.message().await
        };
        within(limit, asking).await.map(answer_of).transpose()
    }
}

fn silent() -> Failure {
    Failure::new(Kind::Doubtful, Odd("a watch is silent about what has changed"))
}

fn answer_of(answer: Result<Option<WatchResponse>, Error>) -> Result<PbWatchResponse, Failure> {
    match answer {
        Ok(Some(WatchResponse(answer))) => Ok(answer),
        Ok(None) => Err(Failure::new(Kind::Doubtful, Odd("a watch has ended"))),
        Err(error) => Err(Failure::at("the watched endpoint", error)),
    }
}

fn canceled(answer: &PbWatchResponse) -> End {
    // What is no longer kept cannot be delivered by any other stream either.
    if answer.compact_revision > 0 { End::Watch } else { End::Stream(refused(answer)) }
}

fn refused(answer: &PbWatchResponse) -> Failure {
    let kind = if answer.cancel_reason.contains("denied") { Kind::Refused } else { Kind::NotDone };
    Failure::new(kind, Canceled(answer.cancel_reason.clone()))
}

#[derive(Debug, thiserror::Error)]
#[error("etcd has canceled the watch: {0:?}")]
struct Canceled(String);

/// The revision up to which the watch has got everything, if the answer is about that. An answer to
/// a question after progress is not: some versions of etcd send it before changes that belong
/// before it. It has the name of no watch.
fn progress(answer: &PbWatchResponse) -> Option<Revision> {
    let tells = answer.events.is_empty() && !answer.created && answer.watch_id >= 0;
    tells.then(|| revision_of(answer.header.as_ref()))
}
