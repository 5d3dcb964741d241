//! The listening side: answers whoever may ask, many asks of many clients side by side.
//!
//! | what a client may do | what bounds it |
//! |---|---|
//! | connect and say nothing | it is let go after a time |
//! | connect often | so many connections are served, and others told so |
//! | ask much at once | so many asks and bytes of a connection are open, and others refused |
//! | read nothing | its answers wait for it, each with few items |
//! | end suddenly | its asks are dropped |

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::conversation::Conversation;
use super::frame::{Frame, Frames, Hello, Sink, VERSION};
use super::peer::stranger;
use super::replies::Replies;
use crate::Clock;

/// How many connections are served at a time.
const MOST_CONNECTIONS: usize = 64;

/// How long a client may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);

/// How long to wait after a connection could not be accepted, as when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// How many frames wait for a client to read them, before who answers it waits too.
const QUEUE: usize = 64;

/// Answers what clients ask.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Answers one ask with any number of items, in their order.
    ///
    /// Asks of one connection are polled for the first time in the order in which they came, and
    /// run side by side from there. One that nobody waits for any more is dropped.
    ///
    /// # Errors
    ///
    /// Whatever the client understands as one.
    async fn answer(&self, ask: Value, replies: &mut Replies) -> Result<(), Value>;
}

/// Serves a socket until it is dropped; then all that is still asked is dropped, too.
///
/// Only processes of root and of the user of this process are answered.
pub async fn serve_with(
    listener: UnixListener,
    service: Arc<dyn Service>,
    program: &str,
    clock: Arc<dyn Clock>,
) {
    let hello = Hello { version: VERSION, program: program.to_owned() };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < MOST_CONNECTIONS => {
                    let (service, clock) = (Arc::clone(&service), Arc::clone(&clock));
                    connections.spawn(serve_one(stream, service, hello.clone(), clock));
                }
                Ok((stream, _)) => refuse(&stream, "too many are connected"),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    clock.sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Tells a client that nobody will answer it. One that does not read at once is told nothing.
fn refuse(stream: &UnixStream, why: &str) {
    if let Ok(frame) = Frame::Bye(why.to_owned()).encode_whole() {
        drop(stream.try_write(&frame));
    }
}

async fn serve_one(
    stream: UnixStream,
    service: Arc<dyn Service>,
    hello: Hello,
    clock: Arc<dyn Clock>,
) {
    if let Err(error) = converse(stream, service, hello, &*clock).await {
        tracing::debug!(%error, "a client is let go");
    }
}

async fn converse(
    stream: UnixStream,
    service: Arc<dyn Service>,
    hello: Hello,
    clock: &dyn Clock,
) -> io::Result<()> {
    if let Some(problem) = stranger(&stream)? {
        tracing::warn!(problem, "a client is turned away");
        refuse(&stream, &problem);
        return Ok(());
    }
    let (read, write) = stream.into_split();
    let (mut frames, mut sink) = (Frames::new(read), Sink::new(write));
    let theirs = tokio::select! {
        frame = frames.next() => frame?,
        () = clock.sleep(HELLO) => return Ok(()),
    };
    // Whoever speaks another version reads this, and goes.
    sink.feed(Frame::Hello(hello).encode()?)?;
    sink.flush().await?;
    match theirs {
        Some((Frame::Hello(theirs), _)) if theirs.version == VERSION => {}
        Some((Frame::Hello(Hello { version, program }), _)) => {
            let text = "a client speaks another version of the protocol: run both from one release";
            tracing::warn!(program, version, own = VERSION, "{text}");
            return Ok(());
        }
        _ => return Ok(()),
    }
    frames.trust();
    let (out, queue) = mpsc::channel(QUEUE);
    tokio::select! {
        written = write_all(sink, queue) => written,
        read = Conversation::new(service, out).run(frames) => read,
    }
}

async fn write_all(mut sink: Sink, mut queue: mpsc::Receiver<bytes::Bytes>) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        let mut goes_on = sink.feed(frame)?;
        while goes_on {
            let Ok(frame) = queue.try_recv() else { break };
            goes_on = sink.feed(frame)?;
        }
        sink.flush().await?;
    }
    Ok(())
}

/// The asks of a connection by their numbers.
pub(super) type Open<T> = HashMap<u64, T>;
