//! Server side: handles many concurrent requests of many clients.
//!
//! Each client has limits, so that it cannot exhaust this process:
//!
//! | client | limit |
//! |---|---|
//! | connects and sends nothing | it is disconnected after a timeout |
//! | connects often | the number of connections is limited, and others are refused |
//! | sends many requests | their number and size per connection are limited |
//! | reads nothing | its responses wait, with few items in a queue |
//! | disconnects | its requests are dropped |

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Serialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::{AbortHandle, JoinSet, coop};

use super::frame::{Frame, FrameReader, MAX_PENDING, VERSION, write_frames};
use super::peer::untrusted_peer;
use super::protocol::{LineWire, Request, RequestError};
use crate::Clock;
use crate::journal::Journal;

/// Limit on concurrent connections. Each followed journal has one.
const MAX_CONNECTIONS: usize = 1024;

/// How long a client may take for the handshake.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait before the server accepts connections again after a failure, for example for lack of
/// descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Number of frames queued for a client before its handlers wait.
const QUEUE: usize = 16;

/// Limit on the size in bytes of all pending requests of a connection.
const MAX_PENDING_BYTES: usize = 64 * 1024 * 1024;

/// Number of bytes of lines in one item, not counting the last line.
const ITEM_BYTES: usize = 64 * 1024;

/// Handles requests of clients.
#[async_trait]
pub trait RequestHandler: Send + Sync + 'static {
    /// Handles one request. Responds with at most one item to a call, and with any number of items
    /// in order to a request for a stream.
    ///
    /// The requests of one connection begin in the order in which they arrive: each is polled once
    /// before the next one. From then on they run concurrently. If a request is cancelled, its
    /// future is dropped.
    ///
    /// # Errors
    ///
    /// Any error; the client gets it.
    async fn handle(
        &self,
        request: Request,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError>;
}

/// Serves a socket until the future is dropped, which also drops all pending requests. If the
/// requests go to a service manager, this affects none of its units.
///
/// Only clients that run as root or as the user of this process are served. `program` is the name
/// of this server, for people.
pub async fn serve(
    listener: UnixListener,
    handler: Arc<dyn RequestHandler>,
    program: &str,
    clock: Arc<dyn Clock>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                    let (handler, clock) = (Arc::clone(&handler), Arc::clone(&clock));
                    let program = program.to_owned();
                    connections.spawn(async move {
                        if let Err(error) = serve_one(stream, handler, program, &*clock).await {
                            tracing::debug!(%error, "a client was disconnected");
                        }
                    });
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
    if let Ok(frame) = Frame::<Value>::Bye(why.to_owned()).encode() {
        drop(stream.try_write(&frame));
    }
}

async fn serve_one(
    stream: UnixStream,
    handler: Arc<dyn RequestHandler>,
    program: String,
    clock: &dyn Clock,
) -> io::Result<()> {
    if let Some(problem) = untrusted_peer(&stream, false)? {
        tracing::warn!(problem, "refused a client of the service manager");
        refuse(&stream, &problem);
        return Ok(());
    }
    let (read, mut half) = stream.into_split();
    let mut frames = FrameReader::new(read);
    let theirs = tokio::select! {
        frame = frames.next() => frame?,
        () = clock.sleep(HELLO_TIMEOUT) => return Ok(()),
    };
    // A client of another version reads this, and disconnects.
    let hello = Frame::<Value>::Hello { version: VERSION, program };
    half.write_all(&hello.encode()?).await?;
    match theirs {
        Some((Frame::Hello { version, .. }, _)) if version == VERSION => {}
        Some((Frame::Hello { version, program }, _)) => {
            let text = "a client speaks another version of the protocol: run both from one release";
            tracing::warn!(program, version, own = VERSION, "{text}");
            return Ok(());
        }
        _ => return Ok(()),
    }
    frames.accept_full_frames();
    let (out, queue) = mpsc::channel(QUEUE);
    let (open, tasks) = (HashMap::new(), JoinSet::new());
    let session = Session { handler, out, open, tasks, bytes: 0 };
    tokio::select! {
        written = write_frames(half, queue) => written,
        read = session.run(frames) => read,
    }
}

/// Requests of one client.
struct Session {
    handler: Arc<dyn RequestHandler>,
    out: mpsc::Sender<Bytes>,
    /// Pending requests, and their sizes in bytes.
    open: HashMap<u64, (AbortHandle, usize)>,
    /// Each returns the id of its request.
    tasks: JoinSet<u64>,
    /// Size in bytes of all pending requests.
    bytes: usize,
}

impl Session {
    /// Runs until the client disconnects.
    ///
    /// # Errors
    ///
    /// The connection fails, the client violates the protocol, or a handler panics.
    async fn run(mut self, mut frames: FrameReader) -> io::Result<()> {
        loop {
            tokio::select! {
                frame = frames.next() => match frame? {
                    Some((Frame::Request { id, body }, bytes)) => {
                        self.request(id, body, bytes).await?;
                    }
                    Some((Frame::Cancel { id }, _)) => self.close(id),
                    Some((Frame::Ping, _)) => {
                        // Any response in the queue serves as well.
                        drop(self.out.try_send(Frame::<Value>::Pong.encode()?));
                    }
                    Some(_) => return Err(io::Error::other("protocol error: unexpected frame")),
                    None => return Ok(()),
                },
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok(id) => self.close(id),
                    Err(error) if error.is_panic() => {
                        return Err(io::Error::other("the request handler panicked"));
                    }
                    Err(_) => {}
                },
            }
        }
    }

    async fn request(&mut self, id: u64, body: Value, bytes: usize) -> io::Result<()> {
        if self.open.contains_key(&id) {
            return Err(io::Error::other("protocol error: duplicate request id"));
        }
        let response = ResponseSender { id, out: self.out.clone(), error: None };
        // A client within its own limit is not refused because of requests that are not cleaned up
        // yet.
        let is_full = self.open.len() >= 2 * MAX_PENDING || self.bytes + bytes > MAX_PENDING_BYTES;
        if is_full && !self.open.is_empty() {
            let refused = RequestError::Refused("too many requests at once".to_owned());
            response.end(Err(refused)).await;
            return Ok(());
        }
        let mut task: Pin<Box<dyn Future<Output = u64> + Send>> =
            Box::pin(answer(Arc::clone(&self.handler), body, response));
        // Polled here first, and without tokio's budget, so that each request has begun before the
        // next one does. Calls for one unit thus take effect in their order.
        let first = coop::unconstrained(poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx))));
        if first.await.is_pending() {
            self.open.insert(id, (self.tasks.spawn(task), bytes));
            self.bytes += bytes;
        }
        Ok(())
    }

    fn close(&mut self, id: u64) {
        if let Some((task, bytes)) = self.open.remove(&id) {
            task.abort();
            self.bytes -= bytes;
        }
    }
}

async fn answer(
    handler: Arc<dyn RequestHandler>,
    request: Value,
    mut response: ResponseSender,
) -> u64 {
    let id = response.id;
    let done = match serde_json::from_value(request) {
        Ok(request) => handler.handle(request, &mut response).await,
        Err(error) => Err(RequestError::undecodable("request", &error)),
    };
    response.end(done).await;
    id
}

/// Sends the items of a response, for a [`RequestHandler`].
#[derive(Debug)]
pub struct ResponseSender {
    id: u64,
    out: mpsc::Sender<Bytes>,
    /// Reason why an item could not be sent.
    error: Option<String>,
}

impl ResponseSender {
    /// Sends an item once there is room in the queue. If the item cannot be serialised or is too
    /// large, the response ends with an error, and later items are dropped.
    pub async fn send<T: Serialize + Sync>(&mut self, body: &T) {
        if self.error.is_some() {
            return;
        }
        match (Frame::Item { id: self.id, body }).encode() {
            Ok(frame) => self.enqueue(frame).await,
            Err(error) => self.error = Some(format!("the response cannot be sent: {error}")),
        }
    }

    /// Sends the lines of a journal as they arrive. Each item is a list of the lines that are
    /// available at that time. The first item is always sent, if necessary as an empty list: it
    /// confirms that the unit has a journal.
    ///
    /// # Errors
    ///
    /// The reason why the journal ended early, after all its lines have been sent.
    pub async fn send_journal(&mut self, mut journal: Journal) -> Result<(), RequestError> {
        let mut lines = Vec::new();
        loop {
            let mut bytes = 0;
            while bytes < ITEM_BYTES
                && let Some(Some(line)) = journal.next_line().now_or_never()
            {
                bytes += line.text.len() + 1;
                lines.push(LineWire::from(line));
            }
            self.send(&lines).await;
            lines.clear();
            match journal.next_line().await {
                Some(line) => lines.push(line.into()),
                None => return journal.failure().map_or(Ok(()), |error| Err(error.into())),
            }
        }
    }

    async fn end(mut self, done: Result<(), RequestError>) {
        let error = self.error.take().map(RequestError::Refused).or(done.err());
        match (Frame::<Value>::End { id: self.id, error }).encode() {
            Ok(frame) => self.enqueue(frame).await,
            Err(error) => tracing::error!(%error, "cannot encode the end of a response"),
        }
    }

    /// If the connection has ended, the frame is dropped.
    async fn enqueue(&self, frame: Bytes) {
        match self.out.try_send(frame) {
            // Boxed: it seldom waits, and hundreds of requests would take the memory.
            Err(TrySendError::Full(frame)) => drop(Box::pin(self.out.send(frame)).await),
            Ok(()) | Err(TrySendError::Closed(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_item_ends_the_response() {
        let (out, mut queue) = mpsc::channel(10);
        let mut response = ResponseSender { id: 1, out, error: None };
        let no_json = std::collections::BTreeMap::from([((1, 2), 3)]);
        response.send(&no_json).await;
        response.send(&"x").await;
        response.end(Ok(())).await;
        let only = queue.recv().await.expect("the end is sent");
        assert!(String::from_utf8_lossy(&only).contains("cannot be sent"), "{only:?}");
        assert!(queue.recv().await.is_none(), "and nothing else");
    }
}
