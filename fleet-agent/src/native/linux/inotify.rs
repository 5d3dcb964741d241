//! File change notifications (inotify).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::{Context, Poll};

use rustix::fs::inotify::{self, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::async_fd::{poll_next, read_next, register_readable};

/// Watches files and directories.
#[derive(Debug)]
pub(crate) struct FileWatch {
    descriptor: AsyncFd<OwnedFd>,
}

impl FileWatch {
    /// Creates a watch without any paths.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Self { descriptor: register_readable(inotify::init(flags)?)? })
    }

    /// Creates a watch for writes to this file.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let changes = Self::new()?;
        changes.watch(path, WatchFlags::MODIFY)?;
        Ok(changes)
    }

    /// Adds these events at this path.
    pub(crate) fn watch(&self, path: &Path, events: WatchFlags) -> rustix::io::Result<()> {
        inotify::add_watch(self.descriptor.get_ref(), path, events).map(drop)
    }

    /// Returns once an event has arrived. Cancel-safe.
    pub(crate) async fn next(&self) -> io::Result<()> {
        read_next(&self.descriptor, take).await
    }

    /// Like [`next`](Self::next).
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_next(&self.descriptor, take, cx)
    }
}

/// Discards the pending events. The buffer exists only during the call, because a permanent buffer
/// would be needed for each running unit.
fn take(descriptor: &OwnedFd) -> io::Result<()> {
    let mut events = [0; 4096];
    Ok(rustix::io::read(descriptor, &mut events).map(drop)?)
}
