//! The answer to one ask, on its way.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{Semaphore, TryAcquireError};

use super::asks::LineWire;
use super::frame::{Frame, How, WINDOW, encode_item};
use crate::{Journal, JournalLine, ServiceError};

/// How many bytes of lines one item holds, and a line more.
const LINES: usize = 64 * 1024;

/// Where a [`Service`](super::Service) puts the items of an answer.
#[derive(Debug)]
pub struct Replies {
    id: u64,
    out: mpsc::Sender<Bytes>,
    credit: Arc<Credit>,
    /// Whether it has ended early, as a part of it could not be sent.
    is_cut: bool,
}

impl Replies {
    pub(super) fn new(id: u64, out: mpsc::Sender<Bytes>) -> Self {
        let credit = Arc::new(Credit(Semaphore::new(WINDOW as usize)));
        Self { id, out, credit, is_cut: false }
    }

    pub(super) fn credit(&self) -> Arc<Credit> {
        Arc::clone(&self.credit)
    }

    /// Sends an item, once its reader has room for it. One that cannot be written as JSON, or is
    /// too large, ends the answer, and nothing comes after it.
    pub async fn send<T: Serialize + Sync>(&mut self, item: &T) {
        self.credit.take().await;
        self.put(encode_item(self.id, item)).await;
    }

    /// Sends lines as they come, as many at a time as are there: each item is a list of them, and
    /// the first one, which says that there is a journal, may be empty.
    ///
    /// # Errors
    ///
    /// Why the journal broke, after all lines that came before. Whoever ends the answer with it
    /// passes it on.
    pub async fn send_journal(&mut self, journal: Journal) -> Result<(), ServiceError> {
        self.send_lines(journal, |line| line.text).await
    }

    /// The same with all that is known of each line.
    pub(super) async fn send_whole_journal(
        &mut self,
        journal: Journal,
    ) -> Result<(), ServiceError> {
        self.send_lines(journal, LineWire::from).await
    }

    async fn send_lines<T: Serialize + Sync + Send>(
        &mut self,
        mut journal: Journal,
        wire: impl Fn(JournalLine) -> T,
    ) -> Result<(), ServiceError> {
        let mut lines = Vec::new();
        loop {
            let mut bytes = 0;
            while bytes < LINES
                && let Some(Some(line)) = journal.next_line().now_or_never()
            {
                bytes += line.text.len() + 1;
                lines.push(wire(line));
            }
            self.send(&lines).await;
            lines.clear();
            match journal.next_line().await {
                Some(line) => lines.push(wire(line)),
                None => return journal.failure().map_or(Ok(()), Err),
            }
        }
    }

    /// Ends the answer.
    pub(super) async fn end(mut self, how: How) {
        self.put(Frame::End { id: self.id, how }.encode()).await;
    }

    /// Where the connection has ended, nobody misses the frame.
    async fn put(&mut self, frame: io::Result<Bytes>) {
        if self.is_cut {
            return;
        }
        let id = self.id;
        let in_words = |error: io::Error| {
            self.is_cut = true;
            let how = How::Refused(format!("the answer cannot be sent: {error}"));
            Frame::End { id, how }.encode()
        };
        match frame.or_else(in_words) {
            Ok(bytes) => match self.out.try_send(bytes) {
                // In a place of its own: it is seldom waited for, and hundreds of asks would have
                // the room.
                Err(TrySendError::Full(bytes)) => drop(Box::pin(self.out.send(bytes)).await),
                Ok(()) | Err(TrySendError::Closed(_)) => {}
            },
            Err(error) => tracing::error!(%error, "an answer is lost"),
        }
    }
}

/// How many items the reader of an answer has room for.
#[derive(Debug)]
pub(super) struct Credit(Semaphore);

impl Credit {
    async fn take(&self) {
        let permit = match self.0.try_acquire() {
            Err(TryAcquireError::NoPermits) => Box::pin(self.0.acquire()).await.ok(),
            taken => taken.ok(),
        };
        if let Some(permit) = permit {
            permit.forget();
        }
    }

    /// The reader has room for so many more; whatever it says, for no more than the window.
    pub(super) fn grant(&self, items: u32) {
        let room = (WINDOW as usize).saturating_sub(self.0.available_permits());
        self.0.add_permits(room.min(items as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_grants_without_measure_gets_no_more_than_the_window() {
        let (out, mut queue) = mpsc::channel(1000);
        let mut replies = Replies::new(1, out);
        let credit = replies.credit();
        (0..3).for_each(|_| credit.grant(u32::MAX));
        let mut sent = 0;
        while replies.send(&"x").now_or_never().is_some() {
            sent += 1;
        }
        assert_eq!(sent, WINDOW);
        credit.grant(1);
        assert!(replies.send(&"x").now_or_never().is_some());
        let mut waiting = 0;
        while queue.try_recv().is_ok() {
            waiting += 1;
        }
        assert_eq!(waiting, WINDOW + 1);
    }

    #[tokio::test]
    async fn nothing_comes_after_what_could_not_be_sent() {
        let (out, mut queue) = mpsc::channel(10);
        let mut replies = Replies::new(1, out);
        let no_json = std::collections::BTreeMap::from([((1, 2), 3)]);
        replies.send(&no_json).await;
        replies.send(&"x").await;
        replies.end(How::Done).await;
        let only = queue.recv().await.expect("that it has ended is told");
        assert!(String::from_utf8_lossy(&only).contains("cannot be sent"), "{only:?}");
        assert!(queue.recv().await.is_none(), "and nothing else");
    }

    #[tokio::test]
    async fn who_waits_for_room_or_for_the_reader_goes_on_when_there_is_some() {
        let (out, mut queue) = mpsc::channel(1);
        let mut replies = Replies::new(1, out);
        let credit = replies.credit();
        let sending = tokio::spawn(async move {
            for item in 0..=WINDOW {
                replies.send(&item).await;
            }
        });
        for _ in 0..WINDOW {
            assert!(queue.recv().await.is_some(), "it waits for room in the queue");
        }
        assert!(queue.recv().now_or_never().is_none(), "and then for the reader");
        credit.grant(1);
        assert!(queue.recv().await.is_some());
        sending.await.expect("it ends");
    }
}
