//! Kills the processes that remain as children of process 1 at the end.
//!
//! Without control groups, units are found by process group, parent and environment. A process that
//! changes all three is not found when its unit stops. When its parent exits, the kernel makes it a
//! child of process 1, so process 1 kills it at the end.

use std::io;
use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix;

/// Maximum time to wait until the killed processes have exited.
const GRACE: Duration = Duration::from_secs(10);

/// Kills all children of this process until none remains, including children that it inherits
/// during this call. Gives up after [`GRACE`].
///
/// `ends` reports that children may have exited; `reap` then collects their exit statuses.
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
        for orphan in &left {
            // It may have exited, but only this process reaps it, so the PID is not reused.
            let _ = kill_process(*orphan, Signal::KILL);
        }
        tokio::select! {
            _ = ends.recv() => {}
            () = clock.sleep_until(deadline) => {
                let processes: Vec<_> = left.iter().map(|pid| pid.as_raw_pid()).collect();
                tracing::warn!(?processes, "SIGKILL did not end all orphans: exiting anyway");
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
