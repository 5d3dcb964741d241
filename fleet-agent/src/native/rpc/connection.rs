//! Client side: one connection with many concurrent calls, and streams beside it.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::frame::{Frame, FrameReader, MAX_PENDING, VERSION, write_frames};
use super::handler::untrusted_peer;
use super::protocol::{Request, RequestError};
use crate::Clock;

/// Maximum number of queued frames. The last [`MAX_PENDING`] places are for the cancellations of
/// pending calls.
const MAX_QUEUED: usize = 4 * MAX_PENDING;

/// How long the connection and the handshake may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// While a call waits: time without a received frame after which a ping is sent. If no frame
/// arrives for this time after the ping either, the connection counts as lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);

/// Reason for the loss of a connection that ended without an error.
const CLOSED: &str = "the other process has closed it";

/// Reason for the loss of a connection to a silent process.
pub(super) const SILENT: &str =
    "it does not respond: if its process is stopped, resume it with `kill -CONT PID`";

/// A connection to a program that serves a socket with [`serve`](super::serve). Dropping the
/// connection cancels all its calls and ends its streams.
///
/// A call may take long, for example a stop. So a late response does not prove that the peer hangs.
/// Therefore a ping is sent if no frame arrives for a while although a call waits. A working peer
/// responds to the ping at once.
pub struct Connection {
    inner: Arc<Inner>,
    task: AbortHandle,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("socket", &self.inner.socket).finish_non_exhaustive()
    }
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// No process listens on the socket.
    #[error("cannot connect to {socket}")]
    Connect {
        /// The socket.
        socket: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The peer is not trusted, refuses the connection, or does not respond.
    #[error("{socket}: {problem}")]
    Rejected {
        /// The socket.
        socket: String,
        /// The problem.
        problem: String,
    },
}

struct Inner {
    socket: PathBuf,
    program: String,
    any_user: bool,
    clock: Arc<dyn Clock>,
    /// Pending calls; `None` once the connection is lost.
    pending: Mutex<Option<HashMap<u64, Pending>>>,
    out: mpsc::Sender<Bytes>,
    next: AtomicU64,
    /// Number of frames received.
    received: AtomicU64,
    /// Number of waits for a response.
    expected: watch::Sender<usize>,
    lost: watch::Sender<Option<String>>,
}

struct Pending {
    item: Value,
    done: oneshot::Sender<Result<Value, RequestError>>,
}

/// A wait for a response, until this is dropped.
#[derive(Debug)]
pub struct Expectation<'a>(&'a watch::Sender<usize>);

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|expected| *expected -= 1);
    }
}

impl Connection {
    /// Connects to the socket of a program that runs as root or as the same user, and can therefore
    /// be trusted. `program` is the name of this client, for people.
    ///
    /// # Errors
    ///
    /// No process listens on the socket, or the peer is not trusted, refuses the connection, or
    /// does not respond.
    pub async fn connect(
        socket: &Path,
        program: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConnectionError> {
        Self::connect_checked(socket, program, clock, false).await
    }

    /// Like [`connect`](Self::connect), except that root may connect to a program of any user. The
    /// caller must not trust the responses of such a program.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn connect_to_any_user(
        socket: &Path,
        program: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConnectionError> {
        Self::connect_checked(socket, program, clock, true).await
    }

    async fn connect_checked(
        socket: &Path,
        program: &str,
        clock: Arc<dyn Clock>,
        any_user: bool,
    ) -> Result<Self, ConnectionError> {
        let (out, queue) = mpsc::channel(MAX_QUEUED);
        let inner = Arc::new(Inner {
            socket: socket.to_owned(),
            program: program.to_owned(),
            any_user,
            clock,
            pending: Mutex::new(Some(HashMap::new())),
            out,
            next: AtomicU64::new(0),
            received: AtomicU64::new(0),
            expected: watch::Sender::new(0),
            lost: watch::Sender::new(None),
        });
        let (frames, half) = inner.open().await?;
        let task = run(Arc::clone(&inner), frames, half, queue);
        Ok(Self { inner, task: tokio::spawn(task).abort_handle() })
    }

    /// Sends a request, and returns its result. Calls are sent in the order in which these futures
    /// are first polled. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// The request failed or was refused, or the connection was lost.
    pub async fn call<T: DeserializeOwned>(
        &self,
        request: impl Into<Request>,
    ) -> Result<T, RequestError> {
        let _expected = self.expect_response();
        let mut call = self.inner.begin(&request.into())?;
        match (&mut call.result).await {
            Ok(result) => serde_json::from_value(result?)
                .map_err(|error| RequestError::undecodable("response", &error)),
            Err(_) => Err(RequestError::Lost(self.inner.why())),
        }
    }

    /// Sends a request whose response is a stream of items.
    ///
    /// # Errors
    ///
    /// The request could not be sent, or the connection was lost. The server limits the number of
    /// connections and that of journals.
    pub async fn stream(&self, request: impl Into<Request>) -> Result<Stream, RequestError> {
        let body = &request.into();
        let request = Frame::Request { id: 0, body }.encode().map_err(refused)?;
        let _expected = self.expect_response();
        let opening = async {
            let (frames, mut half) = self.inner.open().await?;
            half.write_all(&request)
                .await
                .map_err(|error| RequestError::Lost(error.to_string()))?;
            let lost = self.inner.lost.subscribe();
            Ok(Stream { frames, _half: half, lost, is_over: false })
        };
        tokio::select! {
            opened = opening => opened,
            why = self.lost() => Err(RequestError::Lost(why)),
        }
    }

    /// Checks that the other process works until the result is dropped. Calls do this themselves;
    /// it is for streams in which the next item is due.
    #[must_use]
    pub fn expect_response(&self) -> Expectation<'_> {
        self.inner.expected.send_modify(|expected| *expected += 1);
        Expectation(&self.inner.expected)
    }

    /// Returns when the connection is lost, with the reason.
    pub async fn lost(&self) -> String {
        reason(&mut self.inner.lost.subscribe()).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
        self.inner.mark_lost("it was closed");
    }
}

/// Waits for the loss of a connection, and returns the reason.
async fn reason(lost: &mut watch::Receiver<Option<String>>) -> String {
    let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    why.unwrap_or_else(|| CLOSED.to_owned())
}

fn refused(error: io::Error) -> RequestError {
    RequestError::Refused(error.to_string())
}

/// Formats an error with its causes, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl From<ConnectionError> for RequestError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Connect { .. } => Self::Lost(chain(&error)),
            ConnectionError::Rejected { .. } => Self::Refused(chain(&error)),
        }
    }
}

/// A pending call. Dropping it cancels the call.
struct Call<'a> {
    id: u64,
    inner: &'a Inner,
    result: oneshot::Receiver<Result<Value, RequestError>>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let was_open = self.inner.pending().as_mut().and_then(|all| all.remove(&self.id));
        if was_open.is_some() {
            self.inner.enqueue(&Frame::Cancel { id: self.id });
        }
    }
}

/// Items of a response, on a connection of their own. Dropping it cancels the request.
#[derive(Debug)]
pub struct Stream {
    frames: FrameReader,
    _half: OwnedWriteHalf,
    lost: watch::Receiver<Option<String>>,
    is_over: bool,
}

impl Stream {
    /// Returns the next item; `None` at the end.
    ///
    /// # Errors
    ///
    /// The request failed or was refused, or the connection was lost.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RequestError> {
        if self.is_over {
            return Ok(None);
        }
        let frame = tokio::select! {
            // Items that have arrived are delivered before the loss.
            biased;
            frame = self.frames.next() => frame,
            why = reason(&mut self.lost) => Err(io::Error::other(why)),
        };
        if let Ok(Some((Frame::Item { body, .. }, _))) = frame {
            return serde_json::from_value(body)
                .map_err(|error| RequestError::undecodable("response", &error));
        }
        self.is_over = true;
        Err(match frame {
            Ok(Some((Frame::End { error: None, .. }, _))) => return Ok(None),
            Ok(Some((Frame::End { error: Some(error), .. }, _))) => error,
            Ok(Some((Frame::Bye(why), _))) => RequestError::Refused(why),
            Ok(Some(_)) => RequestError::Lost(protocol_error().to_string()),
            Ok(None) => RequestError::Lost(CLOSED.to_owned()),
            Err(error) => RequestError::Lost(error.to_string()),
        })
    }
}

fn protocol_error() -> io::Error {
    io::Error::other("protocol error: a server sent a frame of a client")
}

impl Inner {
    fn name(&self) -> String {
        self.socket.display().to_string()
    }

    /// Opens a connection and exchanges the handshakes.
    async fn open(&self) -> Result<(FrameReader, OwnedWriteHalf), ConnectionError> {
        tokio::select! {
            opened = self.open_patiently() => opened,
            () = self.clock.sleep(CONNECT_TIMEOUT) => {
                let problem = SILENT.to_owned();
                Err(ConnectionError::Rejected { socket: self.name(), problem })
            }
        }
    }

    async fn open_patiently(&self) -> Result<(FrameReader, OwnedWriteHalf), ConnectionError> {
        let failed = |source| ConnectionError::Connect { socket: self.name(), source };
        let rejected = |problem| ConnectionError::Rejected { socket: self.name(), problem };
        let stream = UnixStream::connect(&self.socket).await.map_err(failed)?;
        if let Some(problem) = untrusted_peer(&stream, self.any_user).map_err(failed)? {
            return Err(rejected(problem));
        }
        let (read, mut half) = stream.into_split();
        let mut frames = FrameReader::new(read);
        exchange_hello(&mut frames, &mut half, &self.program).await.map_err(rejected)?;
        Ok((frames, half))
    }

    fn pending(&self) -> MutexGuard<'_, Option<HashMap<u64, Pending>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request.
    fn begin(&self, body: &Request) -> Result<Call<'_>, RequestError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = Frame::Request { id, body }.encode().map_err(refused)?;
        let (done, result) = oneshot::channel();
        let mut pending = self.pending();
        let Some(pending) = &mut *pending else { return Err(RequestError::Lost(self.why())) };
        if pending.len() >= MAX_PENDING || self.out.capacity() <= MAX_PENDING {
            return Err(RequestError::Refused("too many requests at once".to_owned()));
        }
        pending.insert(id, Pending { item: Value::Null, done });
        // If the connection is lost, so is the call.
        drop(self.out.try_send(frame));
        Ok(Call { id, inner: self, result })
    }

    /// If the connection is lost, the frame is dropped.
    fn enqueue(&self, frame: &Frame) {
        if let Ok(bytes) = frame.encode() {
            drop(self.out.try_send(bytes));
        }
    }

    fn why(&self) -> String {
        self.lost.borrow().clone().unwrap_or_else(|| CLOSED.to_owned())
    }

    fn mark_lost(&self, why: &str) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| why.to_owned());
            is_first
        });
        *self.pending() = None;
    }

    /// Delivers a part of a response. Parts of cancelled calls are dropped.
    fn dispatch(&self, frame: Frame) -> io::Result<()> {
        self.received.fetch_add(1, Ordering::Relaxed);
        let mut pending = self.pending();
        let Some(pending) = &mut *pending else { return Ok(()) };
        match frame {
            Frame::Item { id, body } => {
                if let Some(call) = pending.get_mut(&id) {
                    call.item = body;
                }
            }
            Frame::End { id, error } => {
                if let Some(Pending { item, done }) = pending.remove(&id) {
                    drop(done.send(error.map_or(Ok(item), Err)));
                }
            }
            Frame::Pong => {}
            Frame::Bye(why) => return Err(io::Error::other(why)),
            _ => return Err(protocol_error()),
        }
        Ok(())
    }

    /// Returns when the peer has been silent for too long, despite a ping. As long as no response
    /// is expected, no ping is sent.
    async fn silence(&self) {
        let mut expected = self.expected.subscribe();
        let received = || self.received.load(Ordering::Relaxed);
        loop {
            // The sender is a field of this struct, so it exists.
            drop(expected.wait_for(|&expected| expected > 0).await);
            let before = received();
            self.clock.sleep(SILENCE_LIMIT).await;
            if received() != before || *expected.borrow() == 0 {
                continue;
            }
            self.enqueue(&Frame::Ping);
            self.clock.sleep(SILENCE_LIMIT).await;
            if received() == before {
                return;
            }
        }
    }
}

/// Sends the handshake of this client, and reads that of the server.
async fn exchange_hello(
    frames: &mut FrameReader,
    half: &mut OwnedWriteHalf,
    program: &str,
) -> Result<(), String> {
    let message_of = |error: io::Error| error.to_string();
    let hello = Frame::<Value>::Hello { version: VERSION, program: program.to_owned() };
    // A server that refuses this client may have closed the connection; its reason can still be
    // read.
    let sent = half.write_all(&hello.encode().map_err(message_of)?).await;
    match frames.next().await {
        Ok(Some((Frame::Hello { version, .. }, _))) if version == VERSION => {
            frames.accept_full_frames();
            sent.map_err(message_of)
        }
        Ok(Some((Frame::Hello { version, program }, _))) => Err(format!(
            "{program} speaks version {version} of the protocol, and this program version \
             {VERSION}: run both from one release"
        )),
        Ok(Some((Frame::Bye(why), _))) => Err(why),
        Ok(Some(_)) => Err("the socket is not served by fleet-init".to_owned()),
        Ok(None) => Err("it has closed the connection".to_owned()),
        Err(error) => Err(format!("the socket is not served by fleet-init: {error}")),
    }
}

async fn run(
    inner: Arc<Inner>,
    mut frames: FrameReader,
    half: OwnedWriteHalf,
    queue: mpsc::Receiver<Bytes>,
) {
    let read = async {
        while let Some((frame, _)) = frames.next().await? {
            inner.dispatch(frame)?;
        }
        Ok(())
    };
    let ended: io::Result<()> = tokio::select! {
        ended = read => ended,
        ended = write_frames(half, queue) => ended,
        () = inner.silence() => Err(io::Error::other(SILENT)),
    };
    inner.mark_lost(&ended.err().map_or_else(|| CLOSED.to_owned(), |error| error.to_string()));
}
