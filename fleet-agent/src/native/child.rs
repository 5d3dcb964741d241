//! What a process of a unit does between its beginning and its program.
//!
//! This is the one place of the service manager with unsafe code: the standard library cannot know
//! what runs in a process that is a copy of one thread of ours. Nothing there may take a lock or
//! allocate, for another thread may have held the lock when the copy was made. So all that needs
//! either is prepared before, and the child makes system calls alone.

use std::fs::File;
use std::io;

use rustix::fs::Mode;
use tokio::process::Command as Process;

/// What the child does for itself.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    /// The list of processes of the control group that it enters.
    pub(crate) group: Option<File>,
    /// Which rights to its new files nobody gets.
    pub(crate) umask: Option<u32>,
}

impl Preparation {
    /// Has the process prepare itself so. One that needs nothing of it starts without a copy of
    /// this daemon's memory map, which is faster.
    pub(crate) fn apply(self, process: &mut Process) {
        if self.group.is_none() && self.umask.is_none() {
            return;
        }
        let prepare = move || self.enter();
        // SAFETY: `enter` only makes system calls, with memory and descriptors that were there
        // before: it allocates nothing, takes no lock, and cannot panic.
        #[expect(unsafe_code, reason = "there is no safe way to enter a control group at birth")]
        unsafe {
            process.pre_exec(prepare);
        }
    }

    /// Runs in the child.
    fn enter(&self) -> io::Result<()> {
        if let Some(group) = &self.group {
            // The process that writes is the one that is meant by 0.
            rustix::io::write(group, b"0")?;
        }
        if let Some(mask) = self.umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        Ok(())
    }
}
