//! Environment of the cases: a manager, units, and systemd's own tools for comparison.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use fleet_agent::{ManagedUnit, ServiceError, ServiceManager, SystemdConfig, SystemdManager};
use fleet_core::{Epoch, Generation, SystemdState};
use fleet_unitfile::{UnitFile, UnitName};

pub(crate) use crate::wait::{DEADLINE, wait_until};

/// A unit that runs until it is stopped.
pub(crate) const SLEEP: &str = "[Service]\nExecStart=/bin/sleep 100000\n";

/// Parses a unit name.
pub(crate) fn name(text: &str) -> UnitName {
    text.parse().expect("the name is well formed")
}

/// A manager of the machine's systemd.
pub(crate) struct Bench {
    pub(crate) config: SystemdConfig,
    pub(crate) manager: Arc<SystemdManager>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let config = SystemdConfig::system();
        let manager = SystemdManager::open(config.clone()).await.expect("it opens");
        Self { config, manager }
    }

    /// Returns the path of a unit's link.
    pub(crate) fn link(&self, unit: &str) -> PathBuf {
        self.config.links.join(unit)
    }

    pub(crate) async fn try_load(&self, unit: &str, text: &str) -> Result<(), ServiceError> {
        let file = UnitFile::parse(text).expect("the unit file is well formed");
        self.manager.load(&name(unit), &file, Epoch(1)).await
    }

    /// Loads units and reloads, as an agent does.
    pub(crate) async fn load(&self, units: &[(&str, &str)]) {
        for (unit, text) in units {
            self.try_load(unit, text).await.unwrap_or_else(|error| panic!("{unit}: {error}"));
        }
        self.manager.reload().await.expect("the files are read");
    }

    pub(crate) async fn start(&self, unit: &str) -> Result<(), ServiceError> {
        self.manager.start(&name(unit), Generation(1)).await
    }

    pub(crate) async fn run(&self, unit: &str, text: &str) {
        self.load(&[(unit, text)]).await;
        self.start(unit).await.expect("it starts");
    }

    pub(crate) async fn unload(&self, unit: &str) {
        self.manager.unload(&name(unit)).await.expect("it is unloaded");
    }

    pub(crate) async fn get(&self, unit: &str) -> ManagedUnit {
        let unit = self.manager.get(&name(unit)).await.expect("the call succeeds");
        unit.expect("the unit is known")
    }

    pub(crate) async fn state(&self, unit: &str) -> SystemdState {
        self.get(unit).await.state
    }

    /// Waits until the unit's state satisfies the condition.
    pub(crate) async fn wait_for(
        &self,
        unit: &str,
        mut good: impl FnMut(&SystemdState) -> bool,
    ) -> SystemdState {
        let mut changes = self.manager.changes();
        let wait = async {
            loop {
                let state = self.state(unit).await;
                if good(&state) {
                    return state;
                }
                changes.next().await;
            }
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(state) => state,
            Err(_) => panic!("{unit} did not get there: {:?}", self.state(unit).await),
        }
    }

    /// Waits until systemd can be reached and a call has succeeded.
    pub(crate) async fn wait_for_connection(&self) {
        wait_until("systemd can be reached", async || self.manager.list().await.is_ok()).await;
    }
}

/// Runs a shell script, and returns its output.
pub(crate) fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().expect("it can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Re-executes systemd and waits until it responds again. The command returns earlier, and calls in
/// between get no response.
pub(crate) fn systemd_begins_anew() {
    shell(
        "systemctl daemon-reexec; \
         until busctl --system get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 \
             org.freedesktop.systemd1.Manager Version; do :; done",
    );
}

/// Returns a property of a unit, as shown by `systemctl`.
pub(crate) fn show(unit: &str, property: &str) -> String {
    shell(&format!("systemctl show --value -p {property} {unit}"))
}

/// Prints a line that the test harness does not capture.
pub(crate) fn print_line(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{text}").expect("a test can write to its standard error");
}
