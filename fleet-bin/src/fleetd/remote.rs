//! A machine whose units are run by a `fleet-init` that lives on when this daemon ends.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{Clock, ServiceError, ServiceManager, SystemClock};

use super::error::{Context as _, StartError};

/// How long to wait for a fleet-init that is started at the same time.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait before looking for it again.
const PAUSE: Duration = Duration::from_millis(50);

/// The service manager of the `fleet-init` that listens there. `directory` is what belongs to this
/// machine.
pub(super) async fn open(
    socket: &Path,
    directory: &Path,
) -> Result<Arc<dyn ServiceManager>, StartError> {
    refuse_forgotten(directory)?;
    let clock = Arc::new(SystemClock::start());
    let config = RemoteConfig {
        socket: socket.to_owned(),
        directory: Some(directory.join("remote")),
        program: concat!("fleetd ", env!("CARGO_PKG_VERSION")).to_owned(),
        clock: clock.clone(),
    };
    let deadline = clock.now().after(PATIENCE);
    loop {
        match RemoteManager::open(config.clone()).await {
            Err(ServiceError::Unavailable(_)) if clock.now() < deadline => clock.sleep(PAUSE).await,
            opened => {
                let what = || {
                    format!(
                        "cannot run units by fleet-init: start it with \"fleet-init run --fleet \
                         --socket {}\", or leave native_socket out, so that fleetd runs them \
                         itself",
                        socket.display()
                    )
                };
                return Ok(opened.context(what)?);
            }
        }
    }
}

/// Refuses to leave behind units that this daemon ran itself before: nobody would stop them, and
/// they would be started once more.
fn refuse_forgotten(directory: &Path) -> Result<(), StartError> {
    let units = directory.join("units");
    let has_some = std::fs::read_dir(&units).is_ok_and(|mut entries| entries.next().is_some());
    if !has_some || is_held(&directory.join("lock")) {
        return Ok(());
    }
    let directory = directory.display();
    Err(StartError::new(format!(
        "units that fleetd ran itself are in {directory}: start fleet-init with --state-dir \
         {directory}, which takes them over, or, if none of them runs, remove {}",
        units.display()
    )))
}

/// Whether somebody sees to what is there.
fn is_held(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_before_are_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refuse_forgotten(folder.path()).is_ok(), "there are none");
        std::fs::create_dir_all(folder.path().join("units/a.service")).unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        let refused = refuse_forgotten(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("--state-dir"), "{refused}");
        lock.lock().unwrap();
        assert!(refuse_forgotten(folder.path()).is_ok(), "a fleet-init sees to them");
    }
}
