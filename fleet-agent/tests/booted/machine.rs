//! A machine of the machine kit, which is removed when the test ends, however it ends.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The machine kit.
const KIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/machine");
const NAME: &str = "runner";
/// Names the case for the binary inside the machine.
pub(crate) const CASE: &str = "FLEET_BOOTED_CASE";

/// The only machine of its run.
pub(crate) struct Machine {
    run: PathBuf,
    /// Root tree of the system that it boots; `None` for that of this host.
    root: Option<OsString>,
}

impl Machine {
    /// Boots a machine in a run of its own.
    pub(crate) fn boot(test: &str) -> Self {
        Self::boot_root(test, None)
    }

    /// Boots the system with this root tree in a run of its own.
    pub(crate) fn boot_root(test: &str, root: Option<OsString>) -> Self {
        let name = format!("fleet-agent-{}-{test}", std::process::id());
        let machine = Self { run: std::env::temp_dir().join(name), root };
        let output = machine.kit(&["up", NAME]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "scripts/machine up: {errors}");
        machine
    }

    /// Runs a case in the machine, and forwards its output.
    pub(crate) fn run_case(&self, case: &str) {
        let binary = std::env::current_exe().expect("a running program has a file");
        let copy = self.run.join("share/booted");
        std::fs::copy(binary, copy).expect("the machine's folder can be written to");
        let script = format!(
            "{CASE}={case} /srv/share/booted --ignored --exact inside --nocapture --test-threads 1"
        );
        let output = self.kit(&["exec", NAME, "sh", "-euc", &script]);
        let text = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
        print_figures(&text);
        assert!(output.status.success(), "{case} failed in the machine:\n{text}");
        assert!(text.contains("1 passed"), "{case} did not run in the machine:\n{text}");
    }

    fn kit(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(KIT);
        command.args(arguments).env("FLEET_MACHINES", &self.run);
        if let Some(root) = &self.root {
            command.env("FLEET_MACHINE_ROOT", root);
        }
        command.output().expect("the kit can be run")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kit(&["down", "--all"]);
        assert!(std::thread::panicking() || !self.run.exists(), "{} is left", self.run.display());
    }
}

/// Returns the case to run; `None` outside of a machine of the kit.
pub(crate) fn case_to_run() -> Option<String> {
    let case = std::env::var(CASE).ok()?;
    assert!(Path::new("/.fleet-machine").exists(), "cases run in machines of the kit alone");
    Some(case)
}

/// Prints the figures of a case.
fn print_figures(text: &str) {
    use std::io::Write as _;
    for figure in text.lines().filter(|line| line.starts_with("figure: ")) {
        writeln!(std::io::stderr(), "{figure}").expect("a test can write to its standard error");
    }
}
