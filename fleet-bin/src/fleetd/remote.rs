//! Service manager for units that run under a separate `fleet-init`, so that they stay supervised
//! when this daemon ends.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{Clock, ServiceError, SystemClock};

use super::{Context as _, StartError};

/// Time to wait for a fleet-init that is being started concurrently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Delay between connection attempts.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Connects to the `fleet-init` at this socket. `directory` is the machine's directory.
pub(super) async fn open(
    socket: &Path,
    directory: &Path,
) -> Result<Arc<RemoteManager>, StartError> {
    refuse_orphaned_units(directory)?;
    let clock = Arc::new(SystemClock::start());
    let config = RemoteConfig {
        socket: socket.to_owned(),
        directory: Some(directory.join("remote")),
        program: concat!("fleetd ", env!("CARGO_PKG_VERSION")).to_owned(),
        clock: clock.clone(),
    };
    let deadline = clock.now().after(CONNECT_TIMEOUT);
    loop {
        match RemoteManager::open(config.clone()).await {
            Err(ServiceError::Unavailable(_)) if clock.now() < deadline => {
                clock.sleep(RETRY_DELAY).await;
            }
            opened => {
                let what = || {
                    format!(
                        "cannot use the fleet-init at {socket} (start one with \"fleet-init run \
                         --fleet --socket {socket}\", or omit native_socket, so that fleetd \
                         runs units itself)",
                        socket = socket.display()
                    )
                };
                return opened.context(what);
            }
        }
    }
}

/// Returns an error if an earlier fleetd ran units itself in `directory` and no process supervises
/// them now. This daemon could not stop such units, and `fleet-init` would start them a second
/// time.
fn refuse_orphaned_units(directory: &Path) -> Result<(), StartError> {
    let units = directory.join("units");
    let has_some = std::fs::read_dir(&units).is_ok_and(|mut entries| entries.next().is_some());
    if !has_some || is_locked(&directory.join("lock")) {
        return Ok(());
    }
    let directory = directory.display();
    Err(StartError::new(format!(
        "{directory} has the state of units that fleetd ran itself: start fleet-init with \
         --state-dir {directory} to adopt them, or, if none of them is running, remove {}",
        units.display()
    )))
}

/// Whether another process holds the lock, and therefore supervises the units.
fn is_locked(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphaned_units_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refuse_orphaned_units(folder.path()).is_ok(), "no units");
        std::fs::create_dir_all(folder.path().join("units/a.service")).unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        let refused = refuse_orphaned_units(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("--state-dir"), "{refused}");
        lock.lock().unwrap();
        assert!(refuse_orphaned_units(folder.path()).is_ok(), "a fleet-init manages them");
    }
}
