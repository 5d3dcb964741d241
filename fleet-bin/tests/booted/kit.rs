//! A run of `scripts/machine`, which is cleaned up however the test ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Path of the machine script.
const KIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/machine");

/// Script that removes the run when its input ends. That happens even if the test is killed.
const CLEANUP: &str = "trap '' INT TERM HUP; read -r line; exec \"$0\" down --all";

/// Number of runs that this process has created.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The machines of a test, and the network between them.
pub(crate) struct Kit {
    run: PathBuf,
    cleanup: Child,
}

impl Kit {
    /// Creates a run without machines. Its path is short because socket paths are limited.
    pub(crate) fn new() -> Self {
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("fleet-cluster-{}-{number}", std::process::id());
        let run = std::env::temp_dir().join(name);
        let mut cleanup = Command::new("sh");
        cleanup.args(["-c", CLEANUP, KIT]).env("FLEET_MACHINES", &run).stdin(Stdio::piped());
        Self { run, cleanup: cleanup.spawn().expect("a shell can be run") }
    }

    /// Creates and boots machines concurrently.
    pub(crate) fn up(&self, machines: &[(&str, &str)]) {
        std::thread::scope(|scope| {
            for (name, address) in machines {
                scope.spawn(move || self.run(&["up", name, address]));
            }
        });
    }

    /// Runs a command of the machine script, which must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = kit(&self.run, arguments);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "scripts/machine {arguments:?}: {printed}");
    }

    /// Runs a shell script in a machine, which must succeed. Returns its standard output.
    pub(crate) fn exec(&self, machine: &str, script: &str) -> String {
        let output = self.try_exec(machine, script);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script} in {machine}: {printed}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Runs a shell script in a machine, which may fail.
    pub(crate) fn try_exec(&self, machine: &str, script: &str) -> Output {
        kit(&self.run, &["exec", machine, "sh", "-euc", script])
    }

    /// Returns the path of a file in the folder that all machines mount at `/srv/share`.
    pub(crate) fn share(&self, name: &str) -> PathBuf {
        self.run.join("share").join(name)
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        drop(self.cleanup.stdin.take());
        self.cleanup.wait().expect("the cleanup shell is a child of this process");
        assert!(
            std::thread::panicking() || !self.run.exists(),
            "{} was not removed",
            self.run.display()
        );
    }
}

fn kit(run: &Path, arguments: &[&str]) -> Output {
    let mut command = bounded(KIT);
    command
        .args(arguments)
        .env("FLEET_MACHINES", run)
        .output()
        .expect("the machine script can be run")
}

/// Returns a command that `timeout` ends if it hangs, so that the scenario fails.
pub(crate) fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["180", program]).stdin(Stdio::null());
    command
}
