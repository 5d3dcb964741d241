//! The asking side: one connection, with many asks on it.

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

use super::frame::{Frame, Frames, Hello, How, MOST_OPEN, Sink, VERSION, WINDOW};
use super::peer::{stranger, stranger_to_ask};

/// How many frames may wait to be written before nothing more can be asked. Whoever does not read,
/// as one that is stopped, has no end of them otherwise: each that was asked in vain leaves an ask
/// and a cancel.
const MOST_WAITING: usize = 4 * MOST_OPEN;

/// A connection to a program that serves a socket by [`serve_with`](super::serve_with). Dropping it
/// gives up all that is asked on it.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// Why nothing can be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Nobody listens there.
    #[error("nobody listens at {place}")]
    Connect {
        /// The socket.
        place: String,
        /// Why it could not be reached.
        #[source]
        source: io::Error,
    },
    /// Somebody is there who should not be, or who does not want to be asked.
    #[error("{place}: {problem}")]
    Turned {
        /// The socket.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// The connection is over.
    #[error("the connection is lost: {0}")]
    Lost(String),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// It is an error, in the words of who answers.
    Failed(Value),
    /// Nobody has looked at it, for this reason.
    Refused(String),
    /// The connection was lost, so whether something was done is not known.
    Lost(String),
}

#[derive(Debug)]
struct Shared {
    /// Who waits for answers; none any more once the connection is lost.
    waiting: Mutex<Option<HashMap<u64, mpsc::Sender<Part>>>>,
    /// Bounded by [`MOST_WAITING`], and by what is open: each has one cancel, and what its window
    /// lets it grant.
    out: mpsc::UnboundedSender<Bytes>,
    /// How many frames are in there.
    queued: AtomicUsize,
    next: AtomicU64,
    /// How many frames were read.
    heard: AtomicU64,
    lost: watch::Sender<Option<String>>,
}

#[derive(Debug)]
enum Part {
    Item(Value),
    End(How),
}

impl Link {
    /// Connects to the socket at that path, of a program of root's or of the own user, which may
    /// be relied on. `program` is who asks, for people.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or somebody who is not to be asked.
    pub async fn connect(path: &Path, program: &str) -> Result<Self, LinkError> {
        Self::connect_unless(stranger, path, program).await
    }

    /// The same, only that root may ask a program of any user, whose word it takes for no more
    /// than that.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn connect_to_ask(path: &Path, program: &str) -> Result<Self, LinkError> {
        Self::connect_unless(stranger_to_ask, path, program).await
    }

    async fn connect_unless(
        stranger: impl Fn(&UnixStream) -> io::Result<Option<String>>,
        path: &Path,
        program: &str,
    ) -> Result<Self, LinkError> {
        let place = path.display().to_string();
        let failed = |source| LinkError::Connect { place: place.clone(), source };
        let stream = UnixStream::connect(path).await.map_err(failed)?;
        let turned = |problem| LinkError::Turned { place: place.clone(), problem };
        if let Some(problem) = stranger(&stream).map_err(failed)? {
            return Err(turned(problem));
        }
        let (read, write) = stream.into_split();
        let (mut frames, mut sink) = (Frames::new(read), Sink::new(write));
        greet(&mut frames, &mut sink, program).await.map_err(turned)?;
        let (out, queue) = mpsc::unbounded_channel();
        let waiting = Mutex::new(Some(HashMap::new()));
        let (queued, next, heard) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let lost = watch::Sender::new(None);
        let shared = Arc::new(Shared { waiting, out, queued, next, heard, lost });
        let task = tokio::spawn(run(Arc::clone(&shared), frames, sink, queue)).abort_handle();
        Ok(Self { shared, task })
    }

    /// Asks for something. It is under way when this returns, behind all that was asked before.
    ///
    /// # Errors
    ///
    /// [`AskError::Lost`], and [`AskError::Refused`] for what is too large or one too many.
    pub fn ask<T: Serialize>(&self, what: &T) -> Result<Answer, AskError> {
        let refused = |error: &dyn std::error::Error| AskError::Refused(error.to_string());
        let what = serde_json::to_value(what).map_err(|error| refused(&error))?;
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let frame = Frame::Ask { id, what }.encode().map_err(|error| refused(&error))?;
        // One more than the window, for the end.
        let (sender, parts) = mpsc::channel(WINDOW as usize + 1);
        let mut waiting = self.shared.waiting();
        let Some(waiting) = &mut *waiting else { return Err(AskError::Lost(self.why())) };
        if waiting.len() >= MOST_OPEN || self.shared.has_many_waiting() {
            return Err(AskError::Refused("too much is asked at once".to_owned()));
        }
        waiting.insert(id, sender);
        self.shared.put(frame);
        Ok(Answer { id, parts, shared: Arc::clone(&self.shared), taken: 0, is_over: false })
    }

    /// Returns when the connection is lost, and why.
    pub async fn lost(&self) -> String {
        let mut lost = self.shared.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => self.why(),
        }
    }

    /// How much the other side has said.
    pub(super) fn heard(&self) -> u64 {
        self.shared.heard.load(Ordering::Relaxed)
    }

    /// Gives it up, for that reason.
    pub(super) fn give_up(&self, why: &str) {
        self.shared.lose(why);
        self.task.abort();
    }

    fn why(&self) -> String {
        self.shared.lost.borrow().clone().unwrap_or_else(|| "it has ended".to_owned())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.lose("it was given up");
    }
}

/// The answer to one ask. Dropping it tells the other side that nobody reads it any more.
#[derive(Debug)]
pub struct Answer {
    id: u64,
    parts: mpsc::Receiver<Part>,
    shared: Arc<Shared>,
    /// How many items were taken since more were asked for.
    taken: u32,
    is_over: bool,
}

impl Answer {
    /// The next item; nothing at the end.
    ///
    /// # Errors
    ///
    /// The answer is an error, or has broken off.
    pub async fn next(&mut self) -> Result<Option<Value>, AskError> {
        if self.is_over {
            return Ok(None);
        }
        match self.parts.recv().await {
            Some(Part::Item(item)) => {
                self.make_room();
                Ok(Some(item))
            }
            Some(Part::End(how)) => {
                self.is_over = true;
                match how {
                    How::Done => Ok(None),
                    How::Failed(error) => Err(AskError::Failed(error)),
                    How::Refused(why) => Err(AskError::Refused(why)),
                }
            }
            None => {
                self.is_over = true;
                let why = self.shared.lost.borrow().clone();
                Err(AskError::Lost(why.unwrap_or_else(|| "it has ended".to_owned())))
            }
        }
    }

    fn make_room(&mut self) {
        self.taken += 1;
        if self.taken >= WINDOW / 2 {
            let items = std::mem::take(&mut self.taken);
            self.shared.say(&Frame::More { id: self.id, items });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let was_open = self.shared.waiting().as_mut().and_then(|all| all.remove(&self.id));
        if was_open.is_some() {
            self.shared.say(&Frame::Cancel { id: self.id });
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, mpsc::Sender<Part>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_many_waiting(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= MOST_WAITING
    }

    /// Where the connection is lost, nobody misses the frame.
    fn put(&self, frame: Bytes) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        drop(self.out.send(frame));
    }

    fn say(&self, frame: &Frame) {
        if let Ok(bytes) = frame.encode() {
            self.put(bytes);
        }
    }

    fn lose(&self, why: &str) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| why.to_owned());
            is_first
        });
        *self.waiting() = None;
    }

    /// Hands a part of an answer to who waits for it; an answer that nobody reads is passed over.
    fn take(&self, frame: Frame) -> io::Result<()> {
        let mut waiting = self.waiting();
        let Some(waiting) = &mut *waiting else { return Ok(()) };
        let (id, part) = match frame {
            Frame::Item { id, what } => (id, Part::Item(what)),
            Frame::End { id, how } => (id, Part::End(how)),
            Frame::Bye(why) => return Err(io::Error::other(why)),
            _ => return Err(io::Error::other("it says what only a client does")),
        };
        let is_end = matches!(part, Part::End(_));
        if let Some(sender) = waiting.get(&id)
            && let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(part)
        {
            return Err(io::Error::other("it sends more than there is room for"));
        }
        if is_end {
            waiting.remove(&id);
        }
        Ok(())
    }
}

/// Says who asks, and hears who answers.
async fn greet(frames: &mut Frames, sink: &mut Sink, program: &str) -> Result<(), String> {
    let in_words = |error: io::Error| error.to_string();
    let hello = Hello { version: VERSION, program: program.to_owned() };
    sink.feed(Frame::Hello(hello).encode().map_err(in_words)?).map_err(in_words)?;
    // Whoever turns this process away may have closed the connection; what it said is there.
    let sent = sink.flush().await;
    match frames.next().await {
        Ok(Some((Frame::Hello(theirs), _))) if theirs.version == VERSION => {
            frames.trust();
            sent.map_err(in_words)
        }
        Ok(Some((Frame::Hello(Hello { version, program }), _))) => Err(format!(
            "{program} speaks version {version} of the protocol, and this program version \
             {VERSION}: run both from one release"
        )),
        Ok(Some((Frame::Bye(why), _))) => Err(why),
        Ok(Some(_)) => Err("what listens there is no fleet-init".to_owned()),
        Ok(None) => Err("it has closed the connection".to_owned()),
        Err(error) => Err(format!("what listens there is no fleet-init: {error}")),
    }
}

async fn run(
    shared: Arc<Shared>,
    mut frames: Frames,
    mut sink: Sink,
    mut queue: mpsc::UnboundedReceiver<Bytes>,
) {
    let read = async {
        loop {
            match frames.next().await? {
                Some((frame, _)) => {
                    shared.heard.fetch_add(1, Ordering::Relaxed);
                    shared.take(frame)?;
                }
                None => return Ok(()),
            }
        }
    };
    let write = async {
        while let Some(frame) = queue.recv().await {
            let mut fed = 1;
            let mut goes_on = sink.feed(frame)?;
            while goes_on {
                let Ok(frame) = queue.try_recv() else { break };
                goes_on = sink.feed(frame)?;
                fed += 1;
            }
            shared.queued.fetch_sub(fed, Ordering::Relaxed);
            sink.flush().await?;
        }
        Ok(())
    };
    let ended: io::Result<()> = tokio::select! { ended = read => ended, ended = write => ended };
    let why = ended.err().map_or_else(|| "it has ended".to_owned(), |error| error.to_string());
    shared.lose(&why);
}
