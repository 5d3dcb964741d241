//! Async waits on kernel file descriptors.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor for readability.
pub(crate) fn register_readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(descriptor, Interest::READABLE)
}

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "deprecated for types that may change their descriptor, which an `OwnedFd` cannot; \
              what replaces it is unsafe"
)]
pub(crate) fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

/// Reads the next item with `take`, which returns `WouldBlock` if no item is available.
/// Cancel-safe. Only one task may wait on a descriptor, because only the last waiting task is
/// woken.
///
/// [`AsyncFd::readable`] supports several waiting tasks, but its future is a hundred bytes larger.
/// One future of this function exists per running unit.
pub(crate) async fn read_next<T>(descriptor: &AsyncFd<OwnedFd>, take: ReadFn<T>) -> io::Result<T> {
    poll_fn(|cx| poll_next(descriptor, take, cx)).await
}

/// Returns when a descriptor is readable, and reads nothing. Otherwise like [`read_next`].
pub(crate) async fn wait_readable(descriptor: &AsyncFd<OwnedFd>) -> io::Result<()> {
    read_next(descriptor, |_| Ok(())).await
}

/// Non-blocking read from a descriptor.
pub(crate) type ReadFn<T> = fn(&OwnedFd) -> io::Result<T>;

/// Like [`read_next`], for callers that poll several sources.
pub(crate) fn poll_next<T>(
    descriptor: &AsyncFd<OwnedFd>,
    take: ReadFn<T>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    loop {
        let mut ready = ready!(descriptor.poll_read_ready(cx))?;
        if let Ok(taken) = ready.try_io(|inner| take(inner.get_ref())) {
            return Poll::Ready(taken);
        }
    }
}
