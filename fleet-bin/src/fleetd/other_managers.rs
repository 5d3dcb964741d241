//! Service managers in other processes: a separate `fleet-init`, so that units stay supervised when
//! this daemon ends, or systemd.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{Clock, ServiceError, SystemClock, SystemdConfig};

use super::config::SystemdSettings;
use super::{Context as _, StartError};

/// Time to wait for a fleet-init that is being started concurrently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Delay between connection attempts.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Connects to the `fleet-init` at this socket. `directory` is the machine's directory.
pub(super) async fn open_fleet_init(
    socket: &Path,
    directory: &Path,
) -> Result<Arc<RemoteManager>, StartError> {
    refuse_orphaned_units(directory)?;
    let clock = Arc::new(SystemClock::start());
    let mut config = RemoteConfig::new(socket, concat!("fleetd ", env!("CARGO_PKG_VERSION")));
    config.directory = Some(directory.join("remote"));
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

/// Returns the configuration for the systemd that these settings select for this process.
pub(crate) fn systemd_config(settings: &SystemdSettings) -> Result<SystemdConfig, StartError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    config_of(settings, rustix::process::geteuid().is_root(), runtime)
}

/// Returns the configuration for the system's systemd or for a user's, as `systemd_user` in the
/// settings selects. If that is not set, root uses the system's, and any other user uses its own.
/// `runtime_directory` is the value of `XDG_RUNTIME_DIR`.
///
/// # Errors
///
/// A user's systemd is selected, but `runtime_directory` is `None`.
fn config_of(
    settings: &SystemdSettings,
    is_root: bool,
    runtime_directory: Option<PathBuf>,
) -> Result<SystemdConfig, StartError> {
    let mut config = match (settings.user.unwrap_or(!is_root), runtime_directory) {
        (false, _) => SystemdConfig::system(),
        (true, Some(directory)) => SystemdConfig::user(&directory),
        (true, None) => {
            return Err(StartError::new(
                "cannot find the user's systemd: XDG_RUNTIME_DIR is not set; log in as that user, \
                 or write systemd_user = false to use the system's",
            ));
        }
    };
    if let Some(directory) = &settings.directory {
        config.directory.clone_from(directory);
    }
    Ok(config)
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

    #[test]
    fn selects_the_configured_systemd() {
        let here = || Some(PathBuf::from("/run/user/7"));
        let settings = |user| SystemdSettings { user, directory: None };
        let rows = [
            (settings(None), true, "/run/dbus/system_bus_socket", "/run/fleet/units"),
            (settings(None), false, "/run/user/7/bus", "/run/user/7/fleet/units"),
            (settings(Some(false)), false, "/run/dbus/system_bus_socket", "/run/fleet/units"),
            (settings(Some(true)), true, "/run/user/7/bus", "/run/user/7/fleet/units"),
        ];
        for (settings, is_root, socket, directory) in rows {
            let config = config_of(&settings, is_root, here()).expect("no systemd was selected");
            assert_eq!(config.socket, PathBuf::from(socket), "{settings:?}");
            assert_eq!(config.directory, PathBuf::from(directory), "{settings:?}");
        }
        let error = config_of(&settings(None), false, None).err().expect("a systemd was selected");
        assert!(error.to_string().contains("XDG_RUNTIME_DIR is not set"), "{error}");
        let own = SystemdSettings { directory: here(), ..settings(None) };
        let config = config_of(&own, true, None).expect("no systemd was selected");
        assert_eq!(Some(config.directory), here());
    }
}
