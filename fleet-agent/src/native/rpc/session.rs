//! Server side of one connection, after the handshake.

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

use super::frame::{EndStatus, Frame, FrameReader, MAX_PENDING};
use super::response::{FlowControl, ResponseSender};
use super::server::{PendingRequests, RequestHandler};

/// Limit on the size in bytes of all pending requests of a connection.
const MAX_PENDING_BYTES: usize = 64 * 1024 * 1024;

/// Requests of one client.
pub(crate) struct ServerSession {
    service: Arc<dyn RequestHandler>,
    out: mpsc::Sender<Bytes>,
    open: PendingRequests<PendingRequest>,
    tasks: JoinSet<()>,
    /// Request answered by each task.
    request_of_task: HashMap<Id, u64>,
    /// Size in bytes of all pending requests.
    bytes: usize,
}

struct PendingRequest {
    task: AbortHandle,
    flow: Arc<FlowControl>,
    bytes: usize,
}

impl ServerSession {
    pub(crate) fn new(service: Arc<dyn RequestHandler>, out: mpsc::Sender<Bytes>) -> Self {
        let (open, request_of_task) = (PendingRequests::new(), HashMap::new());
        Self { service, out, open, tasks: JoinSet::new(), request_of_task, bytes: 0 }
    }

    /// Runs until the client disconnects.
    ///
    /// # Errors
    ///
    /// The connection fails, or the client violates the protocol.
    pub(crate) async fn run(mut self, mut frames: FrameReader) -> io::Result<()> {
        loop {
            tokio::select! {
                frame = frames.next() => match frame? {
                    Some((frame, bytes)) => self.dispatch(frame, bytes).await?,
                    None => return Ok(()),
                },
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended).await,
            }
        }
    }

    async fn dispatch(&mut self, frame: Frame, bytes: usize) -> io::Result<()> {
        match frame {
            Frame::Request { id, body } => return self.request(id, body, bytes).await,
            Frame::Grant { id, items } => {
                if let Some(pending) = self.open.get(&id) {
                    pending.flow.grant(items);
                }
            }
            Frame::Cancel { id } => self.close(id),
            _ => return Err(io::Error::other("protocol error: a client sent a frame of a server")),
        }
        Ok(())
    }

    async fn request(&mut self, id: u64, body: Value, bytes: usize) -> io::Result<()> {
        if self.open.contains_key(&id) {
            return Err(io::Error::other("protocol error: duplicate request id"));
        }
        let response = ResponseSender::new(id, self.out.clone());
        // A client within its own limit is not refused because of responses that are not cleaned up
        // yet.
        let is_full = self.open.len() >= 2 * MAX_PENDING || self.bytes + bytes > MAX_PENDING_BYTES;
        if is_full && !self.open.is_empty() {
            response.end(EndStatus::Refused("too many requests at once".to_owned())).await;
            return Ok(());
        }
        let flow = response.flow();
        let mut answer: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(answer(Arc::clone(&self.service), body, response));
        // Polled here first, and without tokio's budget, so that each request has begun before the
        // next one does. Calls for one unit thus take effect in their order.
        let first = coop::unconstrained(poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))));
        if first.await.is_pending() {
            let task = self.tasks.spawn(answer);
            self.request_of_task.insert(task.id(), id);
            self.open.insert(id, PendingRequest { task, flow, bytes });
            self.bytes += bytes;
        }
        Ok(())
    }

    async fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (task, broke_off) = match &ended {
            Ok((task, ())) => (*task, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let Some(id) = self.request_of_task.remove(&task) else { return };
        if self.open.get(&id).is_some_and(|it| it.task.id() == task) {
            self.close(id);
            if broke_off {
                let status = EndStatus::Refused("the request handler panicked".to_owned());
                ResponseSender::new(id, self.out.clone()).end(status).await;
            }
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(pending) = self.open.remove(&id) {
            pending.task.abort();
            self.bytes -= pending.bytes;
        }
    }
}

async fn answer(service: Arc<dyn RequestHandler>, request: Value, mut response: ResponseSender) {
    let status = match service.handle(request, &mut response).await {
        Ok(()) => EndStatus::Done,
        Err(error) => EndStatus::Failed(error),
    };
    response.end(status).await;
}
