//! Runs of the program, and their results.

use std::fmt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// Time limit of a run, much longer than any should take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Result of a run.
pub(crate) struct Fleetctl {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Fleetctl {
    /// Runs the program in a folder, with arguments separated by blanks.
    pub(crate) async fn run(folder: &Path, endpoint: &str, line: &str) -> Self {
        let output = command(folder, endpoint, line).output();
        let output = tokio::time::timeout(DEADLINE, output).await;
        output.unwrap_or_else(|_| panic!("{line}: timeout")).unwrap().into()
    }

    /// Asserts that the run was successful.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// Sorts the lines about units, which arrive in any order.
    pub(crate) fn sorted(mut self) -> Self {
        let is_report = |line: &&str| {
            ["Unit ", "Destroyed ", "{\"action\""].iter().any(|start| line.starts_with(start))
        };
        let (mut reports, rest): (Vec<_>, Vec<_>) = self.stdout.lines().partition(is_report);
        reports.sort_unstable();
        self.stdout = rest.iter().chain(&reports).flat_map(|line| [line, "\n"]).collect();
        self
    }
}

/// Returns a command for the program, with no environment except the endpoint.
pub(crate) fn command(folder: &Path, endpoint: &str, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    command.args(line.split(' ').filter(|arg| !arg.is_empty()));
    command.current_dir(folder).env_clear().env("FLEETCTL_ENDPOINT", endpoint).env("TZ", "UTC");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

impl From<Output> for Fleetctl {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Formats exit code and standard output, then standard error after a rule, for snapshots.
impl fmt::Display for Fleetctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {}\n{}", self.code, self.stdout.replace('\t', "→"))?;
        if !self.stderr.is_empty() {
            write!(f, "---\n{}", self.stderr)?;
        }
        Ok(())
    }
}
