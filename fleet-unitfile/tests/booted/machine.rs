//! A machine booted by `scripts/machine`. It is removed at the end of the test, even if the test
//! fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fleet_unitfile::SpecifierContext;
use fleet_unitfile::specifier::Specifier;

/// The machine kit.
const KIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/machine");
const NAME: &str = "reader";

/// A machine, the only one of its run.
pub(crate) struct Machine {
    run: PathBuf,
}

impl Machine {
    /// Boots a machine in a run of this process.
    pub(crate) fn boot() -> Self {
        let name = format!("fleet-booted-{}", std::process::id());
        let machine = Self { run: std::env::temp_dir().join(name) };
        machine.kit(&["up", NAME]);
        machine
    }

    /// Returns the directory that the machine sees as `/srv/share`.
    pub(crate) fn share(&self) -> PathBuf {
        self.run.join("share")
    }

    /// Runs a shell script in the machine, and returns its output.
    pub(crate) fn shell(&self, script: &str) -> String {
        self.kit(&["exec", NAME, "sh", "-euc", script])
    }

    /// Returns the values of specifiers in this machine.
    pub(crate) fn context(&self) -> SpecifierContext {
        let ask = |script: &str| self.shell(script).trim_end().to_owned();
        let release = |field: &str| ask(&format!(". /etc/os-release; echo \"${{{field}:-}}\""));
        let boot_id = ask("tr -d - </proc/sys/kernel/random/boot_id");
        let architecture = "busctl get-property org.freedesktop.systemd1 \
             /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager Architecture | \
             cut -d '\"' -f 2";
        SpecifierContext::system_manager()
            .with(Specifier::Architecture, ask(architecture))
            .with(Specifier::BootId, boot_id)
            .with(Specifier::BuildId, release("BUILD_ID"))
            .with(Specifier::HostName, ask("hostname"))
            .with(Specifier::ImageId, release("IMAGE_ID"))
            .with(Specifier::ImageVersion, release("IMAGE_VERSION"))
            .with(Specifier::KernelRelease, ask("uname -r"))
            .with(Specifier::MachineId, ask("cat /etc/machine-id"))
            .with(Specifier::OsId, release("ID"))
            .with(Specifier::VariantId, release("VARIANT_ID"))
            .with(Specifier::VersionId, release("VERSION_ID"))
    }

    fn kit(&self, arguments: &[&str]) -> String {
        let output = kit(&self.run, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "scripts/machine {arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("the machine prints UTF-8")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        kit(&self.run, &["down", "--all"]);
        assert!(std::thread::panicking() || !self.run.exists(), "{} is left", self.run.display());
    }
}

#[expect(clippy::disallowed_methods, reason = "the machine kit is another program")]
fn kit(run: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(KIT);
    command.args(arguments).env("FLEET_MACHINES", run).output().expect("the kit can be run")
}
