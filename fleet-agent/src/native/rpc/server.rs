//! Server side: handles many concurrent requests of many clients.
//!
//! Each client has limits, so that it cannot exhaust this process:
//!
//! | client | limit |
//! |---|---|
//! | connects and sends nothing | it is disconnected after a timeout |
//! | connects often | the number of connections is limited, and others are refused |
//! | reads many journals | their number is limited, so that other requests find a connection |
//! | sends many requests | their number and size per connection are limited |
//! | reads nothing | its responses wait, with few items in a queue |
//! | disconnects | its requests are dropped |

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::panic::AssertUnwindSafe;
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
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet, coop};

use super::frame::{Frame, FrameReader, MAX_PENDING, VERSION, write_frames};
use super::handler::untrusted_peer;
use super::protocol::{LineWire, ManagerRequest, Request, RequestError};
use crate::Clock;
use crate::journal::Journal;

/// Limit on concurrent connections. Each followed journal has one.
const MAX_CONNECTIONS: usize = 1024;

/// Limit on concurrent journals of all clients. The rest of the connections is for calls and for
/// changes of units, so readers of journals cannot lock out other clients.
const MAX_JOURNALS: usize = MAX_CONNECTIONS / 4 * 3;

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
    let journals = Semaphore::new(MAX_JOURNALS);
    let server = Server { handler, program: program.to_owned(), journals };
    server.run(listener, MAX_CONNECTIONS, clock).await;
}

/// State that all connections share.
struct Server {
    handler: Arc<dyn RequestHandler>,
    program: String,
    /// Has a permit for each further journal.
    journals: Semaphore,
}

impl Server {
    async fn run(self, listener: UnixListener, max_connections: usize, clock: Arc<dyn Clock>) {
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if connections.len() < max_connections => {
                        let (server, clock) = (Arc::clone(&server), Arc::clone(&clock));
                        connections.spawn(async move {
                            if let Err(error) = serve_one(stream, server, &*clock).await {
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

    /// Handles a request. A panic of the handler is an error of this request alone.
    async fn handle(
        &self,
        request: Value,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        let request: Request = serde_json::from_value(request)
            .map_err(|error| RequestError::undecodable("request", &error))?;
        let _permit = match request {
            Request::Manager(ManagerRequest::Journal { .. }) => {
                Some(self.journals.try_acquire().map_err(|_| too_many_journals())?)
            }
            _ => None,
        };
        let handled = AssertUnwindSafe(self.handler.handle(request, response)).catch_unwind().await;
        handled.unwrap_or_else(|_| {
            tracing::error!("the handler of a request panicked");
            Err(RequestError::Refused("the request handler panicked".to_owned()))
        })
    }
}

fn too_many_journals() -> RequestError {
    let why = "too many journals are read at once: end some of the commands that follow a journal";
    RequestError::Refused(why.to_owned())
}

/// Sends the reason of a refusal, unless that would block.
fn refuse(stream: &UnixStream, why: &str) {
    if let Ok(frame) = Frame::<Value>::Bye(why.to_owned()).encode() {
        drop(stream.try_write(&frame));
    }
}

async fn serve_one(stream: UnixStream, server: Arc<Server>, clock: &dyn Clock) -> io::Result<()> {
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
    let hello = Frame::<Value>::Hello { version: VERSION, program: server.program.clone() };
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
    let session = Session { server, out, open, tasks, bytes: 0 };
    tokio::select! {
        written = write_frames(half, queue) => written,
        read = session.run(frames) => read,
    }
}

/// Requests of one client.
struct Session {
    server: Arc<Server>,
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
    /// The connection fails, or the client violates the protocol.
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
                // A cancelled request is closed already.
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(id) = ended {
                        self.close(id);
                    }
                }
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
            Box::pin(answer(Arc::clone(&self.server), body, response));
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

async fn answer(server: Arc<Server>, request: Value, mut response: ResponseSender) -> u64 {
    let id = response.id;
    let done = server.handle(request, &mut response).await;
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
    use crate::SystemClock;
    use crate::native::rpc::Connection;

    /// Follows journals without an end, and panics at some of the calls.
    struct FaultyHandler;

    #[async_trait]
    impl RequestHandler for FaultyHandler {
        async fn handle(
            &self,
            request: Request,
            response: &mut ResponseSender,
        ) -> Result<(), RequestError> {
            match request {
                Request::Manager(ManagerRequest::Journal { .. }) => {
                    response.send(&Vec::<LineWire>::new()).await;
                    std::future::pending().await
                }
                Request::Manager(ManagerRequest::List) => panic!("at once"),
                Request::Manager(ManagerRequest::Reload) => {
                    tokio::task::yield_now().await;
                    panic!("later")
                }
                _ => Ok(()),
            }
        }
    }

    /// Limit on connections.
    const CONNECTIONS: usize = 8;

    /// Serves with this limit on journals. Returns a connection, the server and its directory.
    async fn served(journals: usize) -> (Connection, JoinSet<()>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let (program, journals) = ("test".to_owned(), Semaphore::new(journals));
        let server = Server { handler: Arc::new(FaultyHandler), program, journals };
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(listener, CONNECTIONS, Arc::clone(&clock)));
        let connection = Connection::connect(&socket, "test", clock).await.unwrap();
        (connection, tasks, directory)
    }

    fn journal() -> ManagerRequest {
        let query = fleet_core::journal::JournalQuery::default().into();
        ManagerRequest::Journal { unit: "a.service".to_owned(), query }
    }

    #[tokio::test]
    async fn journals_leave_connections_for_other_requests() {
        let (connection, _server, _directory) = served(2).await;
        let mut followed = Vec::new();
        for _ in 0..2 {
            let mut stream = connection.stream(journal()).await.unwrap();
            stream.next::<Vec<LineWire>>().await.unwrap();
            followed.push(stream);
        }
        let mut refused = connection.stream(journal()).await.unwrap();
        let error = refused.next::<Vec<LineWire>>().await.unwrap_err();
        assert!(
            matches!(&error, RequestError::Refused(why) if why.contains("journals")),
            "{error}"
        );
        let mut watch = connection.stream(ManagerRequest::Watch).await.unwrap();
        assert!(watch.next::<Value>().await.unwrap().is_none(), "it is handled");
        // An ended journal makes room.
        drop(followed.pop());
        let is_served = async || {
            let mut stream = connection.stream(journal()).await.unwrap();
            stream.next::<Vec<LineWire>>().await.is_ok()
        };
        while !is_served().await {}
    }

    #[tokio::test]
    async fn connections_over_the_limit_are_refused() {
        let (connection, _server, _directory) = served(2).await;
        let mut others = Vec::new();
        for _ in 1..CONNECTIONS {
            others.push(connection.stream(ManagerRequest::Watch).await.expect("there is room"));
        }
        let error = connection.stream(ManagerRequest::Watch).await.unwrap_err();
        let is_why = matches!(&error, RequestError::Refused(why) if why.contains("connections"));
        assert!(is_why, "{error}");
    }

    #[tokio::test]
    async fn panic_of_a_handler_ends_only_its_request() {
        let (connection, _server, _directory) = served(2).await;
        let mut followed = connection.stream(journal()).await.unwrap();
        followed.next::<Vec<LineWire>>().await.unwrap();
        for request in [ManagerRequest::List, ManagerRequest::Reload] {
            let error = connection.call::<()>(request).await.unwrap_err();
            let is_why = matches!(&error, RequestError::Refused(why) if why.contains("panicked"));
            assert!(is_why, "{error}");
        }
        let unit = "a.service".parse().unwrap();
        connection.call::<()>(ManagerRequest::Stop { unit }).await.expect("it is connected");
    }

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
