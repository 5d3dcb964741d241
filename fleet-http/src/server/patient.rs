//! A connection that is patient with its client, but not for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::idle::Seat;
use super::pause::pause;
use crate::duplex::BoxedDuplex;

type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection whose writes fail when nothing is read at the other end for too long.
pub(super) struct Patient {
    stream: BoxedDuplex,
    limit: Duration,
    /// Hears when all is sent.
    seat: Arc<Seat>,
    /// Runs while something waits to be read at the other end.
    stalled: Option<Pause>,
}

impl Patient {
    /// A connection that waits as long as `limit` until something more is read.
    pub(super) fn new(stream: BoxedDuplex, limit: Duration, seat: Arc<Seat>) -> Self {
        Self { stream, limit, seat, stalled: None }
    }

    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            self.stalled = None;
            return attempt;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(pause(limit)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.stream).poll_flush(cx);
        if attempt.is_ready() {
            self.seat.flushed();
        }
        self.judge(cx, attempt)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
