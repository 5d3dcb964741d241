//! Server side: handles many concurrent requests of many clients.
//!
//! Each client has limits, so that it cannot exhaust this process:
//!
//! | client | limit |
//! |---|---|
//! | connects and sends nothing | it is disconnected after a timeout |
//! | connects often | the number of connections is limited, and others are refused |
//! | sends many requests | their number and size per connection are limited |
//! | reads nothing | its responses wait, each with few items |
//! | disconnects | its requests are dropped |

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::frame::{Frame, FrameReader, FrameWriter, Hello, VERSION};
use super::peer::untrusted_peer;
use super::response::ResponseSender;
use super::session::ServerSession;
use crate::Clock;

/// Limit on concurrent connections.
const MAX_CONNECTIONS: usize = 64;

/// How long a client may take for the handshake.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait before the server accepts connections again after a failure, for example for lack of
/// descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Number of frames queued for a client before its handlers wait.
const QUEUE: usize = 64;

/// Handles requests of clients.
#[async_trait]
pub trait RequestHandler: Send + Sync + 'static {
    /// Handles one request, and responds with any number of items in order.
    ///
    /// The requests of one connection begin in the order in which they arrive: each is polled once
    /// before the next one. From then on they run concurrently. If a request is cancelled, its
    /// future is dropped.
    ///
    /// # Errors
    ///
    /// Any value that the client understands as an error.
    async fn handle(&self, request: Value, response: &mut ResponseSender) -> Result<(), Value>;
}

/// Serves a socket until the future is dropped, which also drops all pending requests.
///
/// Only clients that run as root or as the user of this process are served.
pub async fn serve_with(
    listener: UnixListener,
    service: Arc<dyn RequestHandler>,
    program: &str,
    clock: Arc<dyn Clock>,
) {
    let hello = Hello { version: VERSION, program: program.to_owned() };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                    let (service, clock) = (Arc::clone(&service), Arc::clone(&clock));
                    connections.spawn(serve_one(stream, service, hello.clone(), clock));
                }
                Ok((stream, _)) => refuse(&stream, "too many connections"),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection: trying again");
                    clock.sleep(ACCEPT_RETRY).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Sends the reason of a refusal, unless that would block.
fn refuse(stream: &UnixStream, why: &str) {
    if let Ok(frame) = Frame::Bye(why.to_owned()).encode_with_length() {
        drop(stream.try_write(&frame));
    }
}

async fn serve_one(
    stream: UnixStream,
    service: Arc<dyn RequestHandler>,
    hello: Hello,
    clock: Arc<dyn Clock>,
) {
    if let Err(error) = serve_session(stream, service, hello, &*clock).await {
        tracing::debug!(%error, "a client was disconnected");
    }
}

async fn serve_session(
    stream: UnixStream,
    service: Arc<dyn RequestHandler>,
    hello: Hello,
    clock: &dyn Clock,
) -> io::Result<()> {
    if let Some(problem) = untrusted_peer(&stream)? {
        tracing::warn!(problem, "refused a client of the service manager");
        refuse(&stream, &problem);
        return Ok(());
    }
    let (read, write) = stream.into_split();
    let (mut frames, mut writer) = (FrameReader::new(read), FrameWriter::new(write));
    let theirs = tokio::select! {
        frame = frames.next() => frame?,
        () = clock.sleep(HELLO_TIMEOUT) => return Ok(()),
    };
    // A client of another version reads this, and disconnects.
    writer.feed(Frame::Hello(hello).encode()?)?;
    writer.flush().await?;
    match theirs {
        Some((Frame::Hello(theirs), _)) if theirs.version == VERSION => {}
        Some((Frame::Hello(Hello { version, program }), _)) => {
            let text = "a client speaks another version of the protocol: run both from one release";
            tracing::warn!(program, version, own = VERSION, "{text}");
            return Ok(());
        }
        _ => return Ok(()),
    }
    frames.accept_full_frames();
    let (out, queue) = mpsc::channel(QUEUE);
    tokio::select! {
        written = write_all(writer, queue) => written,
        read = ServerSession::new(service, out).run(frames) => read,
    }
}

async fn write_all(
    mut writer: FrameWriter,
    mut queue: mpsc::Receiver<bytes::Bytes>,
) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        let mut goes_on = writer.feed(frame)?;
        while goes_on {
            let Ok(frame) = queue.try_recv() else { break };
            goes_on = writer.feed(frame)?;
        }
        writer.flush().await?;
    }
    Ok(())
}

/// Pending requests of a connection by id.
pub(crate) type PendingRequests<T> = HashMap<u64, T>;
