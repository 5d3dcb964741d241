//! Service managers in other processes: a separate `fleet-init`, so that units stay supervised when
//! this daemon ends, or systemd.
//!
//! Also refuses another service manager while units of the earlier one still run. A service manager
//! knows only the units that it has started itself. After a change of `service_manager` it would
//! start every unit of the machine a second time.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use fleet_agent::files::write_atomic;
use fleet_agent::native::linux::{current_boot, is_current_boot};
use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{
    Clock, NativeManager, ServiceError, ServiceManager as _, SystemClock, SystemdConfig,
    SystemdManager, SystemdScope,
};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use super::config::{ServiceManagerKind, SystemdSettings};
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

/// Name of the file in the machine's directory that stores the service manager.
const FILE: &str = "service-manager.json";

/// Number of units that an error names.
const NAMED: usize = 5;

/// A service manager that may have left units running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum EarlierManager {
    Native,
    FleetInit { socket: PathBuf },
    Systemd { user: bool, socket: PathBuf, directory: PathBuf, links: PathBuf },
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct StoredManager {
    /// Boot of the machine or container, which the units do not outlive.
    boot: String,
    manager: EarlierManager,
}

impl EarlierManager {
    /// Returns the service manager of this configuration.
    pub(crate) fn of(kind: &ServiceManagerKind) -> Result<Self, StartError> {
        Ok(match kind {
            ServiceManagerKind::Native(_) => Self::Native,
            ServiceManagerKind::FleetInit(socket) => Self::FleetInit { socket: socket.clone() },
            ServiceManagerKind::Systemd(settings) => {
                let config = systemd_config(settings)?;
                Self::Systemd {
                    user: config.scope == SystemdScope::User,
                    socket: config.socket,
                    directory: config.directory,
                    links: config.links,
                }
            }
        })
    }

    /// Returns whether both know the same units. It does not matter how systemd is reached. A
    /// `fleet-init` knows its units whatever its socket is.
    fn knows_units_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Native, Self::Native) | (Self::FleetInit { .. }, Self::FleetInit { .. }) => true,
            (
                Self::Systemd { directory, links, .. },
                Self::Systemd { directory: d, links: l, .. },
            ) => (directory, links) == (d, l),
            _ => false,
        }
    }

    /// Names the files of the machine's directory that show that it may have left units running.
    fn records(&self, machine: &Path) -> String {
        match self {
            Self::Native => {
                let [boot, runtime] = ["boot", "runtime"].map(|file| machine.join(file));
                format!("{} and {}", boot.display(), runtime.display())
            }
            Self::FleetInit { .. } | Self::Systemd { .. } => {
                machine.join(FILE).display().to_string()
            }
        }
    }

    /// Returns the units that it has left running on the machine with this directory.
    async fn running_units(&self, machine: &Path) -> Result<Vec<UnitName>, ServiceError> {
        match self.clone() {
            Self::Native => NativeManager::running_units(machine),
            Self::FleetInit { socket } => {
                let program = concat!("fleetd ", env!("CARGO_PKG_VERSION"));
                let config = RemoteConfig::new(socket, program);
                let units = RemoteManager::open(config).await?.list().await?;
                let running = units.into_iter().filter(|unit| !unit.has_ended());
                Ok(running.map(|unit| unit.unit).collect())
            }
            Self::Systemd { user, socket, directory, links } => {
                // The links are in `systemd/user` below the user's runtime directory.
                let mut config = match links.ancestors().nth(2) {
                    Some(runtime_directory) if user => SystemdConfig::user(runtime_directory),
                    _ => SystemdConfig::system(),
                };
                (config.socket, config.directory, config.links) = (socket, directory, links);
                SystemdManager::running_units(config).await
            }
        }
    }
}

impl fmt::Display for EarlierManager {
    /// Formats the settings that select the service manager.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("service_manager = \"native\""),
            Self::FleetInit { socket } => write!(f, "native_socket = {socket:?}"),
            Self::Systemd { user, directory, .. } => write!(
                f,
                "service_manager = \"systemd\", systemd_user = {user} and units_directory = \
                 {directory:?}"
            ),
        }
    }
}

/// Returns an error if units of another service manager than `next` still run on the machine with
/// this directory.
pub(crate) async fn refuse_running_units(
    machine: &Path,
    next: &EarlierManager,
) -> Result<(), StartError> {
    let file = machine.join(FILE);
    let stored = read(&file).context(|| {
        format!(
            "cannot read {}, which names the service manager of the units: if none of them runs, \
             remove it",
            file.display()
        )
    })?;
    // The records of native units show by themselves that there are some. A fleet-init can adopt
    // these units.
    let native = matches!(next, EarlierManager::Systemd { .. }).then_some(EarlierManager::Native);
    for earlier in native.into_iter().chain(stored) {
        if earlier.knows_units_of(next) {
            continue;
        }
        let running = earlier.running_units(machine).await.map_err(|error| {
            let what = format!(
                "cannot change to {next}: whether units still run under {earlier} is unknown; \
                 change the setting back, or, if none of its units runs, remove {}",
                earlier.records(machine)
            );
            StartError::because(what, error)
        })?;
        if !running.is_empty() {
            return Err(refusal(&earlier, next, &running));
        }
    }
    Ok(())
}

fn refusal(earlier: &EarlierManager, next: &EarlierManager, running: &[UnitName]) -> StartError {
    let mut names: Vec<String> = running.iter().take(NAMED).map(ToString::to_string).collect();
    let more = running.len() - names.len();
    names.extend((more > 0).then(|| format!("{more} more")));
    StartError::new(format!(
        "cannot change to {next}: units still run under {earlier}, and would start a second time \
         ({}); set {earlier} again and start fleetd, stop these units or drain the machine \
         (\"fleetctl machine drain\"), and then change the setting",
        names.join(", ")
    ))
}

/// Stores the service manager that runs the units of the machine with this directory from now on.
/// Native units need no entry, because their own records show them. A full disk keeps no daemon
/// from starting, so a failure is only logged.
pub(crate) fn remember(machine: &Path, manager: &EarlierManager) {
    let file = machine.join(FILE);
    let write = || -> io::Result<()> {
        let stored = read(&file)?;
        let is_plain = stored.is_none() && *manager == EarlierManager::Native;
        if is_plain || stored.as_ref() == Some(manager) {
            return Ok(());
        }
        let stored = StoredManager { boot: current_boot()?, manager: manager.clone() };
        write_atomic(&file, &serde_json::to_vec(&stored)?, true)
    };
    if let Err(error) = write() {
        tracing::warn!(
            %error,
            file = %file.display(),
            "cannot store the service manager: if the setting changes, running units may start a \
             second time"
        );
    }
}

/// Reads the service manager of this boot; `None` if there is none. After a reboot no unit runs.
fn read(file: &Path) -> io::Result<Option<EarlierManager>> {
    let text = match std::fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let stored: StoredManager = serde_json::from_slice(&text)?;
    Ok(is_current_boot(&stored.boot)?.then_some(stored.manager))
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

    fn systemd(home: &Path, directory: &str) -> EarlierManager {
        EarlierManager::Systemd {
            user: false,
            socket: home.join("no-bus"),
            directory: home.join(directory),
            links: home.join("links"),
        }
    }

    async fn refused(machine: &Path, next: &EarlierManager) -> Option<String> {
        refuse_running_units(machine, next).await.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn unknown_state_of_systemd_units_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (home, native) = (home.path(), EarlierManager::Native);
        let (one, other) = (systemd(home, "one"), systemd(home, "other"));
        assert_eq!(refused(home, &one).await, None, "nothing has run here");
        remember(home, &one);
        std::fs::create_dir(home.join("one")).unwrap();
        assert_eq!(refused(home, &native).await, None, "it has loaded no unit");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        std::fs::write(home.join("one/boot"), boot.trim()).unwrap();
        std::fs::write(home.join("one/a.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
        assert_eq!(refused(home, &one).await, None, "the same service manager");
        for next in [native, other] {
            let error = refused(home, &next).await.expect("systemd cannot be reached");
            assert!(error.contains("change the setting back"), "{error}");
        }
        std::fs::write(home.join("one/boot"), "earlier").unwrap();
        assert_eq!(refused(home, &systemd(home, "other")).await, None, "after a reboot");
    }

    #[tokio::test]
    async fn service_manager_of_an_earlier_boot_does_not_count() {
        let home = tempfile::tempdir().unwrap();
        let init = EarlierManager::FleetInit { socket: home.path().join("none") };
        // The container has restarted, so another process is its first.
        let restarted = current_boot().unwrap() + "0";
        for boot in ["earlier".to_owned(), restarted] {
            let stored = StoredManager { boot, manager: init.clone() };
            std::fs::write(home.path().join(FILE), serde_json::to_vec(&stored).unwrap()).unwrap();
            assert_eq!(refused(home.path(), &EarlierManager::Native).await, None);
        }
        remember(home.path(), &init);
        let error = refused(home.path(), &EarlierManager::Native).await.expect("it is not there");
        assert!(error.contains("native_socket = ") && error.contains(FILE), "{error}");
    }

    /// Regression: after a reboot with a full disk, a daemon with systemd refused to start.
    #[tokio::test]
    async fn file_that_cannot_be_written_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        let (home, init) = (home.path(), EarlierManager::FleetInit { socket: "/none".into() });
        // Makes the write fail, as a full disk does.
        std::fs::create_dir(home.join(format!("{FILE}.new"))).unwrap();
        remember(home, &init);
        assert!(!home.join(FILE).exists());
        assert_eq!(refused(home, &EarlierManager::Native).await, None);
    }

    #[tokio::test]
    async fn unreadable_records_have_their_own_remedies() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        std::fs::write(home.join(FILE), "").unwrap();
        let error = refused(home, &EarlierManager::Native).await.expect("it is damaged");
        assert!(error.contains("if none of them runs, remove it"), "{error}");
        std::fs::remove_file(home.join(FILE)).unwrap();
        std::fs::create_dir(home.join("boot")).unwrap();
        let error = refused(home, &systemd(home, "one")).await.expect("nothing can be read");
        assert!(!error.contains(FILE) && error.contains("runtime"), "{error}");
    }

    #[test]
    fn refusal_names_units_and_remedy() {
        let units: Vec<UnitName> =
            (0..7).map(|number| format!("u{number}.service").parse().unwrap()).collect();
        let next = systemd(Path::new("/run"), "units");
        let error = refusal(&EarlierManager::Native, &next, &units).to_string();
        for part in ["u0.service, ", "u4.service, 2 more", "machine drain", "\"native\" again"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
