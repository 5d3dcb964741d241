//! What is left of all units at the end, where orphans come to this process: it is ended, too.
//!
//! Without control groups a process can leave its group, its parent and its environment behind, and
//! is not found when its unit stops. Its parents have ended then, so that by the end it is a child
//! of whoever reaps.

use std::io;
use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix;

/// How long what was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(10);

/// Kills all children, and those that come to this process by that, until there are none.
///
/// `reap` waits for all that have ended, and `ends` tells when some may have.
pub(super) async fn end(
    ends: &mut unix::Signal,
    clock: &SystemClock,
    mut reap: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let deadline = clock.now().after(GRACE);
    loop {
        let left = children()?;
        if left.is_empty() {
            return Ok(());
        }
        for orphan in left {
            // It may have ended meanwhile; nobody else waits for it, so that the number is its own.
            let _ = kill_process(orphan, Signal::KILL);
        }
        tokio::select! {
            _ = ends.recv() => {}
            () = clock.sleep_until(deadline) => {
                tracing::warn!("processes are left that nothing can end");
                return Ok(());
            }
        }
        reap()?;
    }
}

/// The children of this process. Kernels that were built without lists of children show none.
fn children() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let list = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        let numbers = list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    Ok(found)
}
