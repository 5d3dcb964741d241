//! Server side of the response to one request.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use fleet_core::Timestamp;
use fleet_core::journal::JournalLine;
use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, TryAcquireError, mpsc};

use super::frame::{EndStatus, Frame, WINDOW, encode_item};
use super::protocol::LineWire;
use crate::ServiceError;
use crate::journal::Journal;

/// Number of bytes of lines in one item, not counting the last line.
const ITEM_BYTES: usize = 64 * 1024;

/// Sends the items of a response, for a [`RequestHandler`](super::RequestHandler).
#[derive(Debug)]
pub struct ResponseSender {
    id: u64,
    out: mpsc::Sender<Bytes>,
    flow: Arc<FlowControl>,
    /// Whether it has ended early, because an item could not be sent.
    has_failed: bool,
}

impl ResponseSender {
    pub(crate) fn new(id: u64, out: mpsc::Sender<Bytes>) -> Self {
        let flow = Arc::new(FlowControl(Semaphore::new(WINDOW as usize)));
        Self { id, out, flow, has_failed: false }
    }

    pub(crate) fn flow(&self) -> Arc<FlowControl> {
        Arc::clone(&self.flow)
    }

    /// Sends an item once the client has room for it. If the item cannot be serialised or is too
    /// large, the response ends with an error, and later items are dropped.
    pub async fn send<T: Serialize + Sync>(&mut self, item: &T) {
        self.flow.take().await;
        self.enqueue(encode_item(self.id, item)).await;
    }

    /// Sends the lines of a journal as they arrive, without times and cursors. Each item is a list
    /// of the lines that are available at that time. The first item is always sent, if necessary as
    /// an empty list: it confirms that the unit has a journal.
    ///
    /// # Errors
    ///
    /// The reason why the journal ended early, after all its lines have been sent. The handler
    /// should return this error for the request.
    pub async fn send_journal(&mut self, journal: Journal) -> Result<(), ServiceError> {
        self.send_lines(journal, |line| line.text).await
    }

    /// Like [`send_journal`](Self::send_journal), but each line is a pair: its time in milliseconds
    /// since 1970, or null if unknown, and its text.
    ///
    /// # Errors
    ///
    /// As for [`send_journal`](Self::send_journal).
    pub async fn send_journal_with_times(&mut self, journal: Journal) -> Result<(), ServiceError> {
        self.send_lines(journal, |line| (line.at.map(Timestamp::as_millis), line.text)).await
    }

    /// Like [`send_journal`](Self::send_journal), with times and cursors.
    pub(crate) async fn send_journal_with_cursors(
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
            while bytes < ITEM_BYTES
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

    /// Ends the response.
    pub(crate) async fn end(mut self, status: EndStatus) {
        self.enqueue(Frame::End { id: self.id, status }.encode()).await;
    }

    /// If the connection has ended, the frame is dropped.
    async fn enqueue(&mut self, frame: io::Result<Bytes>) {
        if self.has_failed {
            return;
        }
        let id = self.id;
        let message_of = |error: io::Error| {
            self.has_failed = true;
            let status = EndStatus::Refused(format!("the response cannot be sent: {error}"));
            Frame::End { id, status }.encode()
        };
        match frame.or_else(message_of) {
            Ok(bytes) => match self.out.try_send(bytes) {
                // Boxed: it seldom waits, and hundreds of requests would take the memory.
                Err(TrySendError::Full(bytes)) => drop(Box::pin(self.out.send(bytes)).await),
                Ok(()) | Err(TrySendError::Closed(_)) => {}
            },
            Err(error) => tracing::error!(
                %error,
                "cannot encode a response: the client receives none"
            ),
        }
    }
}

/// Number of items that the reader of a response has room for.
#[derive(Debug)]
pub(crate) struct FlowControl(Semaphore);

impl FlowControl {
    async fn take(&self) {
        let permit = match self.0.try_acquire() {
            Err(TryAcquireError::NoPermits) => Box::pin(self.0.acquire()).await.ok(),
            taken => taken.ok(),
        };
        if let Some(permit) = permit {
            permit.forget();
        }
    }

    /// Permits the server to send `items` more items. At most a full window is permitted at any
    /// time, even if the client grants more.
    pub(crate) fn grant(&self, items: u32) {
        let room = (WINDOW as usize).saturating_sub(self.0.available_permits());
        self.0.add_permits(room.min(items as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn excessive_grants_are_limited_to_window() {
        let (out, mut queue) = mpsc::channel(1000);
        let mut response = ResponseSender::new(1, out);
        let flow = response.flow();
        (0..3).for_each(|_| flow.grant(u32::MAX));
        let mut sent = 0;
        while response.send(&"x").now_or_never().is_some() {
            sent += 1;
        }
        assert_eq!(sent, WINDOW);
        flow.grant(1);
        assert!(response.send(&"x").now_or_never().is_some());
        let mut waiting = 0;
        while queue.try_recv().is_ok() {
            waiting += 1;
        }
        assert_eq!(waiting, WINDOW + 1);
    }

    #[tokio::test]
    async fn failed_item_ends_the_response() {
        let (out, mut queue) = mpsc::channel(10);
        let mut response = ResponseSender::new(1, out);
        let no_json = std::collections::BTreeMap::from([((1, 2), 3)]);
        response.send(&no_json).await;
        response.send(&"x").await;
        response.end(EndStatus::Done).await;
        let only = queue.recv().await.expect("the end is sent");
        assert!(String::from_utf8_lossy(&only).contains("cannot be sent"), "{only:?}");
        assert!(queue.recv().await.is_none(), "and nothing else");
    }

    #[tokio::test]
    async fn sender_resumes_after_room_or_grant() {
        let (out, mut queue) = mpsc::channel(1);
        let mut response = ResponseSender::new(1, out);
        let flow = response.flow();
        let sending = tokio::spawn(async move {
            for item in 0..=WINDOW {
                response.send(&item).await;
            }
        });
        for _ in 0..WINDOW {
            assert!(queue.recv().await.is_some(), "it waits for room in the queue");
        }
        assert!(queue.recv().now_or_never().is_none(), "and then for the reader");
        flow.grant(1);
        assert!(queue.recv().await.is_some());
        sending.await.expect("it ends");
    }
}
