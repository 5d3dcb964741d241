//! One connection of the listening side, after both have said who they are.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, coop};

use super::frame::{Frame, Frames, How, MOST_OPEN};
use super::replies::{Credit, Replies};
use super::server::{Open, Service};

/// How many bytes of asks that are not answered a connection may have.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The asks of a client.
pub(super) struct Conversation {
    service: Arc<dyn Service>,
    out: mpsc::Sender<Bytes>,
    open: Open<Answering>,
    tasks: JoinSet<()>,
    /// Which ask a task answers.
    asks: HashMap<Id, u64>,
    /// The bytes of all that is open.
    bytes: usize,
}

struct Answering {
    task: AbortHandle,
    credit: Arc<Credit>,
    bytes: usize,
}

impl Conversation {
    pub(super) fn new(service: Arc<dyn Service>, out: mpsc::Sender<Bytes>) -> Self {
        let (open, asks) = (Open::new(), HashMap::new());
        Self { service, out, open, tasks: JoinSet::new(), asks, bytes: 0 }
    }

    /// Runs until the client goes.
    ///
    /// # Errors
    ///
    /// The connection breaks off, or the client says what no client does.
    pub(super) async fn run(mut self, mut frames: Frames) -> io::Result<()> {
        loop {
            tokio::select! {
                frame = frames.next() => match frame? {
                    Some((frame, bytes)) => self.take(frame, bytes).await?,
                    None => return Ok(()),
                },
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended).await,
            }
        }
    }

    async fn take(&mut self, frame: Frame, bytes: usize) -> io::Result<()> {
        match frame {
            Frame::Ask { id, what } => return self.ask(id, what, bytes).await,
            Frame::More { id, items } => {
                if let Some(answering) = self.open.get(&id) {
                    answering.credit.grant(items);
                }
            }
            Frame::Cancel { id } => self.close(id),
            _ => return Err(io::Error::other("a client says what only a server does")),
        }
        Ok(())
    }

    async fn ask(&mut self, id: u64, what: Value, bytes: usize) -> io::Result<()> {
        if self.open.contains_key(&id) {
            return Err(io::Error::other("two asks have one number"));
        }
        let replies = Replies::new(id, self.out.clone());
        // A client that keeps to its bound is not refused for answers not yet cleared away.
        let is_full = self.open.len() >= 2 * MOST_OPEN || self.bytes + bytes > MOST_BYTES;
        if is_full && !self.open.is_empty() {
            replies.end(How::Refused("too much is asked at once".to_owned())).await;
            return Ok(());
        }
        let credit = replies.credit();
        let mut answer: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(answer(Arc::clone(&self.service), what, replies));
        // Polled here and without a limit, so that each is under way before the next one is: calls
        // about one unit take effect in their order.
        let first = coop::unconstrained(poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))));
        if first.await.is_pending() {
            let task = self.tasks.spawn(answer);
            self.asks.insert(task.id(), id);
            self.open.insert(id, Answering { task, credit, bytes });
            self.bytes += bytes;
        }
        Ok(())
    }

    async fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (task, broke_off) = match &ended {
            Ok((task, ())) => (*task, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let Some(id) = self.asks.remove(&task) else { return };
        if self.open.get(&id).is_some_and(|it| it.task.id() == task) {
            self.close(id);
            if broke_off {
                let how = How::Refused("what answers it has ended by a defect".to_owned());
                Replies::new(id, self.out.clone()).end(how).await;
            }
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(answering) = self.open.remove(&id) {
            answering.task.abort();
            self.bytes -= answering.bytes;
        }
    }
}

async fn answer(service: Arc<dyn Service>, ask: Value, mut replies: Replies) {
    let how = match service.answer(ask, &mut replies).await {
        Ok(()) => How::Done,
        Err(error) => How::Failed(error),
    };
    replies.end(how).await;
}
