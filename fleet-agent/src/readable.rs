//! Waiting for a file descriptor of the kernel's to have something to say.

use std::io;
use std::os::fd::OwnedFd;

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
