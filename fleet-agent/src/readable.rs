//! Waiting for a file descriptor of the kernel's to have something to say.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor that will have something to be read.
pub(crate) fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    interesting(descriptor, Interest::READABLE)
}

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "deprecated for types that may change their descriptor, which an `OwnedFd` cannot; \
              what replaces it is unsafe"
)]
pub(crate) fn interesting(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

/// What a descriptor has next, as `take` takes it, which tells by `WouldBlock` that there is
/// nothing. May be dropped at any time; of several who wait at once, the last hears of it.
///
/// The future of [`AsyncFd::readable`], which several may wait for, takes a hundred bytes, and what
/// waits here is there for each unit that runs.
pub(crate) async fn next<T>(descriptor: &AsyncFd<OwnedFd>, take: Take<T>) -> io::Result<T> {
    poll_fn(|cx| poll_next(descriptor, take, cx)).await
}

/// Returns when a descriptor has something to be read, and takes nothing. Otherwise as [`next`].
pub(crate) async fn comes(descriptor: &AsyncFd<OwnedFd>) -> io::Result<()> {
    next(descriptor, |_| Ok(())).await
}

/// How something is taken from a descriptor.
pub(crate) type Take<T> = fn(&OwnedFd) -> io::Result<T>;

/// As [`next`], for who waits for more than that.
pub(crate) fn poll_next<T>(
    descriptor: &AsyncFd<OwnedFd>,
    take: Take<T>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    loop {
        let mut ready = ready!(descriptor.poll_read_ready(cx))?;
        if let Ok(taken) = ready.try_io(|inner| take(inner.get_ref())) {
            return Poll::Ready(taken);
        }
    }
}
