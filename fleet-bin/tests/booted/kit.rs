//! A run of the machine kit, which is gone when the test ends, however that ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The machine kit.
const KIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/machine");

/// Takes the run down when its input ends, which it does with the test, even where that is killed.
const KEEP: &str = "trap '' INT TERM HUP; read -r line; exec \"$0\" down --all";

/// How many runs this process had.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The machines of a test, and the network between them.
pub(crate) struct Kit {
    run: PathBuf,
    keeper: Child,
}

impl Kit {
    /// A run without machines. Its path is short: sockets lie in it.
    pub(crate) fn new() -> Self {
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("fleet-cluster-{}-{number}", std::process::id());
        let run = std::env::temp_dir().join(name);
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEP, KIT]).env("FLEET_MACHINES", &run).stdin(Stdio::piped());
        Self { run, keeper: keeper.spawn().expect("a shell can be run") }
    }

    /// Makes and boots machines, all at once.
    pub(crate) fn up(&self, machines: &[(&str, &str)]) {
        std::thread::scope(|scope| {
            for (name, address) in machines {
                scope.spawn(move || self.run(&["up", name, address]));
            }
        });
    }

    /// Runs a verb of the kit, which has to succeed.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = kit(&self.run, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "scripts/machine {arguments:?}: {said}");
    }

    /// Runs a shell script in a machine, and returns what it prints.
    pub(crate) fn exec(&self, machine: &str, script: &str) -> String {
        let output = self.try_exec(machine, script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script} in {machine}: {said}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The same where it may fail.
    pub(crate) fn try_exec(&self, machine: &str, script: &str) -> Output {
        kit(&self.run, &["exec", machine, "sh", "-euc", script])
    }

    /// A file in the folder that is the same in all machines, where it is `/srv/share`.
    pub(crate) fn share(&self, name: &str) -> PathBuf {
        self.run.join("share").join(name)
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("it is a child of this process");
        assert!(std::thread::panicking() || !self.run.exists(), "{} is left", self.run.display());
    }
}

fn kit(run: &Path, arguments: &[&str]) -> Output {
    let mut command = bounded(KIT);
    command.args(arguments).env("FLEET_MACHINES", run).output().expect("the kit can be run")
}

/// A program that is ended when it hangs, so that a story fails then and does not hang, too.
pub(crate) fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["180", program]).stdin(Stdio::null());
    command
}
