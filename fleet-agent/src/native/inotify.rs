//! What the kernel tells of changes to files.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::{Context, Poll};

use rustix::fs::inotify::{self, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::async_fd::{poll_next, read_next, register_readable};

/// Tells when something happens to files or directories.
#[derive(Debug)]
pub(crate) struct FileWatch {
    descriptor: AsyncFd<OwnedFd>,
}

impl FileWatch {
    /// Tells of nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Self { descriptor: register_readable(inotify::init(flags)?)? })
    }

    /// Tells when that file is written.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let changes = Self::new()?;
        changes.watch(path, WatchFlags::MODIFY)?;
        Ok(changes)
    }

    /// From now on tells of these events at that path, too.
    pub(crate) fn watch(&self, path: &Path, events: WatchFlags) -> rustix::io::Result<()> {
        inotify::add_watch(self.descriptor.get_ref(), path, events).map(drop)
    }

    /// Returns when something has happened. May be dropped at any time.
    pub(crate) async fn next(&self) -> io::Result<()> {
        read_next(&self.descriptor, take).await
    }

    /// As [`next`](Self::next).
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_next(&self.descriptor, take, cx)
    }
}

/// Takes what there is, which room is made for only then: each unit that runs waits.
fn take(descriptor: &OwnedFd) -> io::Result<()> {
    let mut events = [0; 4096];
    Ok(rustix::io::read(descriptor, &mut events).map(drop)?)
}
