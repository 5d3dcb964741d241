//! Client side: one connection with many concurrent requests.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::frame::{
    EndStatus, Frame, FrameReader, FrameWriter, Hello, MAX_PENDING, VERSION, WINDOW,
};
use super::peer::{untrusted_peer, untrusted_peer_unless_root};

/// Maximum number of queued frames, above which requests are refused. Without this limit the queue
/// would grow forever if the peer does not read, for example because it is stopped. Each request
/// that times out leaves two frames in the queue: the request and its cancellation.
const MAX_QUEUED: usize = 4 * MAX_PENDING;

/// A connection to a program that serves a socket with [`serve_with`](super::serve_with). Dropping
/// the connection cancels all its requests.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<ConnectionInner>,
    task: AbortHandle,
}

/// Reason for the loss of a connection that ended without an error.
const CLOSED: &str = "the other process has closed it";

/// Reason why a request cannot be made.
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
    /// The peer is not trusted, or refuses the connection.
    #[error("{socket}: {problem}")]
    Rejected {
        /// The socket.
        socket: String,
        /// The problem.
        problem: String,
    },
    /// The connection is lost.
    #[error("the connection to fleet-init is lost: {0}")]
    Lost(String),
}

/// Reason why there is no response.
#[derive(Debug)]
pub enum RequestError {
    /// The request failed, with an error defined by the handler.
    Failed(Value),
    /// The request was not handled, for this reason.
    Refused(String),
    /// The connection was lost, so the outcome of the request is unknown.
    Lost(String),
}

#[derive(Debug)]
struct ConnectionInner {
    /// Receivers of responses; `None` once the connection is lost.
    waiting: Mutex<Option<HashMap<u64, mpsc::Sender<ResponsePart>>>>,
    /// Queue of outgoing frames. Its length is bounded: above [`MAX_QUEUED`] frames, new requests
    /// are refused. Each pending request can add only two kinds of frames: one cancellation, and a
    /// few grants that permit the server to send more items.
    out: mpsc::UnboundedSender<Bytes>,
    /// Number of frames in the queue.
    queued: AtomicUsize,
    next: AtomicU64,
    /// Number of frames received.
    received: AtomicU64,
    lost: watch::Sender<Option<String>>,
}

#[derive(Debug)]
enum ResponsePart {
    Item(Value),
    End(EndStatus),
}

impl Connection {
    /// Connects to the socket of a program that runs as root or as the same user, and can therefore
    /// be trusted. `program` is the name of this client, for people.
    ///
    /// # Errors
    ///
    /// No process listens on the socket, the peer is not trusted, or the peer refuses the
    /// connection.
    pub async fn connect(path: &Path, program: &str) -> Result<Self, ConnectionError> {
        Self::connect_checked(untrusted_peer, path, program).await
    }

    /// Like [`connect`](Self::connect), except that root may connect to a program of any user. The
    /// caller must not trust the responses of such a program.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn connect_to_any_user(path: &Path, program: &str) -> Result<Self, ConnectionError> {
        Self::connect_checked(untrusted_peer_unless_root, path, program).await
    }

    async fn connect_checked(
        untrusted_peer: impl Fn(&UnixStream) -> io::Result<Option<String>>,
        path: &Path,
        program: &str,
    ) -> Result<Self, ConnectionError> {
        let socket = path.display().to_string();
        let failed = |source| ConnectionError::Connect { socket: socket.clone(), source };
        let stream = UnixStream::connect(path).await.map_err(failed)?;
        let turned = |problem| ConnectionError::Rejected { socket: socket.clone(), problem };
        if let Some(problem) = untrusted_peer(&stream).map_err(failed)? {
            return Err(turned(problem));
        }
        let (read, write) = stream.into_split();
        let (mut frames, mut writer) = (FrameReader::new(read), FrameWriter::new(write));
        exchange_hello(&mut frames, &mut writer, program).await.map_err(turned)?;
        let (out, queue) = mpsc::unbounded_channel();
        let waiting = Mutex::new(Some(HashMap::new()));
        let (queued, next, received) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let lost = watch::Sender::new(None);
        let shared = Arc::new(ConnectionInner { waiting, out, queued, next, received, lost });
        let task = tokio::spawn(run(Arc::clone(&shared), frames, writer, queue)).abort_handle();
        Ok(Self { shared, task })
    }

    /// Sends a request. When this function returns, the request is in the queue, behind all earlier
    /// requests.
    ///
    /// # Errors
    ///
    /// [`RequestError::Lost`] if the connection is lost. [`RequestError::Refused`] if the request
    /// is too large, or if too many requests are pending.
    pub fn request<T: Serialize>(&self, body: &T) -> Result<Response, RequestError> {
        let refused = |error: &dyn std::error::Error| RequestError::Refused(error.to_string());
        let body = serde_json::to_value(body).map_err(|error| refused(&error))?;
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let frame = Frame::Request { id, body }.encode().map_err(|error| refused(&error))?;
        // One more than the window, for the end.
        let (sender, parts) = mpsc::channel(WINDOW as usize + 1);
        let mut waiting = self.shared.waiting();
        let Some(waiting) = &mut *waiting else { return Err(RequestError::Lost(self.why())) };
        if waiting.len() >= MAX_PENDING || self.shared.is_queue_full() {
            return Err(RequestError::Refused("too many requests at once".to_owned()));
        }
        waiting.insert(id, sender);
        self.shared.enqueue(frame);
        Ok(Response { id, parts, shared: Arc::clone(&self.shared), taken: 0, is_over: false })
    }

    /// Returns when the connection is lost, with the reason.
    pub async fn lost(&self) -> String {
        let mut lost = self.shared.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => self.why(),
        }
    }

    /// Returns the number of frames received so far.
    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Closes the connection for this reason.
    pub(crate) fn abort(&self, why: &str) {
        self.shared.mark_lost(why);
        self.task.abort();
    }

    fn why(&self) -> String {
        self.shared.lost.borrow().clone().unwrap_or_else(|| CLOSED.to_owned())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.mark_lost("it was closed");
    }
}

/// Response to one request. Dropping it cancels the request.
#[derive(Debug)]
pub struct Response {
    id: u64,
    parts: mpsc::Receiver<ResponsePart>,
    shared: Arc<ConnectionInner>,
    /// Number of items read since the last grant.
    taken: u32,
    is_over: bool,
}

impl Response {
    /// Returns the next item; `None` at the end of the response.
    ///
    /// # Errors
    ///
    /// The request failed or was refused, or the connection was lost.
    pub async fn next(&mut self) -> Result<Option<Value>, RequestError> {
        if self.is_over {
            return Ok(None);
        }
        match self.parts.recv().await {
            Some(ResponsePart::Item(item)) => {
                self.grant_items();
                Ok(Some(item))
            }
            Some(ResponsePart::End(status)) => {
                self.is_over = true;
                match status {
                    EndStatus::Done => Ok(None),
                    EndStatus::Failed(error) => Err(RequestError::Failed(error)),
                    EndStatus::Refused(why) => Err(RequestError::Refused(why)),
                }
            }
            None => {
                self.is_over = true;
                let why = self.shared.lost.borrow().clone();
                Err(RequestError::Lost(why.unwrap_or_else(|| CLOSED.to_owned())))
            }
        }
    }

    fn grant_items(&mut self) {
        self.taken += 1;
        if self.taken >= WINDOW / 2 {
            let items = std::mem::take(&mut self.taken);
            self.shared.send_control(&Frame::Grant { id: self.id, items });
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        let was_open = self.shared.waiting().as_mut().and_then(|all| all.remove(&self.id));
        if was_open.is_some() {
            self.shared.send_control(&Frame::Cancel { id: self.id });
        }
    }
}

impl ConnectionInner {
    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, mpsc::Sender<ResponsePart>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_queue_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= MAX_QUEUED
    }

    /// If the connection is lost, the frame is dropped.
    fn enqueue(&self, frame: Bytes) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        drop(self.out.send(frame));
    }

    fn send_control(&self, frame: &Frame) {
        if let Ok(bytes) = frame.encode() {
            self.enqueue(bytes);
        }
    }

    fn mark_lost(&self, why: &str) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| why.to_owned());
            is_first
        });
        *self.waiting() = None;
    }

    /// Delivers a part of a response. Parts of cancelled requests are dropped.
    fn dispatch(&self, frame: Frame) -> io::Result<()> {
        let mut waiting = self.waiting();
        let Some(waiting) = &mut *waiting else { return Ok(()) };
        let (id, part) = match frame {
            Frame::Item { id, body } => (id, ResponsePart::Item(body)),
            Frame::End { id, status } => (id, ResponsePart::End(status)),
            Frame::Bye(why) => return Err(io::Error::other(why)),
            _ => return Err(io::Error::other("protocol error: a server sent a frame of a client")),
        };
        let is_end = matches!(part, ResponsePart::End(_));
        if let Some(sender) = waiting.get(&id)
            && let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(part)
        {
            return Err(io::Error::other(
                "protocol error: the server sent more items than granted",
            ));
        }
        if is_end {
            waiting.remove(&id);
        }
        Ok(())
    }
}

/// Sends the handshake of this client, and reads that of the server.
async fn exchange_hello(
    frames: &mut FrameReader,
    writer: &mut FrameWriter,
    program: &str,
) -> Result<(), String> {
    let message_of = |error: io::Error| error.to_string();
    let hello = Hello { version: VERSION, program: program.to_owned() };
    writer.feed(Frame::Hello(hello).encode().map_err(message_of)?).map_err(message_of)?;
    // A server that refuses this client may have closed the connection; its reason can still be
    // read.
    let sent = writer.flush().await;
    match frames.next().await {
        Ok(Some((Frame::Hello(theirs), _))) if theirs.version == VERSION => {
            frames.accept_full_frames();
            sent.map_err(message_of)
        }
        Ok(Some((Frame::Hello(Hello { version, program }), _))) => Err(format!(
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
    shared: Arc<ConnectionInner>,
    mut frames: FrameReader,
    mut writer: FrameWriter,
    mut queue: mpsc::UnboundedReceiver<Bytes>,
) {
    let read = async {
        loop {
            match frames.next().await? {
                Some((frame, _)) => {
                    shared.received.fetch_add(1, Ordering::Relaxed);
                    shared.dispatch(frame)?;
                }
                None => return Ok(()),
            }
        }
    };
    let write = async {
        while let Some(frame) = queue.recv().await {
            let mut fed = 1;
            let mut goes_on = writer.feed(frame)?;
            while goes_on {
                let Ok(frame) = queue.try_recv() else { break };
                goes_on = writer.feed(frame)?;
                fed += 1;
            }
            shared.queued.fetch_sub(fed, Ordering::Relaxed);
            writer.flush().await?;
        }
        Ok(())
    };
    let ended: io::Result<()> = tokio::select! { ended = read => ended, ended = write => ended };
    let why = ended.err().map_or_else(|| CLOSED.to_owned(), |error| error.to_string());
    shared.mark_lost(&why);
}
