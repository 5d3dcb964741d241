//! Kills the processes that remain as children of process 1 at the end.
//!
//! Without control groups, a process can leave its process group, its parent and its environment.
//! Such a process is not found when its unit stops. By the end its parents have exited, so it is a
//! child of process 1, the reaper.

use std::io;
use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix;

/// Time for killed processes to be gone.
const GRACE: Duration = Duration::from_secs(10);

/// Kills all children until none remains, including children inherited during this call.
///
/// `reap` waits for exited children. `ends` is notified when some children may have exited.
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
            // It may have exited, but only this process reaps it, so the PID is not reused.
            let _ = kill_process(orphan, Signal::KILL);
        }
        tokio::select! {
            _ = ends.recv() => {}
            () = clock.sleep_until(deadline) => {
                tracing::warn!("SIGKILL did not end all processes");
                return Ok(());
            }
        }
        reap()?;
    }
}

/// The children of this process; none on kernels without `CONFIG_PROC_CHILDREN`.
fn children() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let list = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        let numbers = list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    Ok(found)
}
