//! Runs of the program, and what came of them.

use std::fmt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// How long a run may take. Much longer than it ever should.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What came of a run.
pub(crate) struct Fleetctl {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Fleetctl {
    /// Runs the program in a folder, with arguments that are separated by blanks.
    pub(crate) async fn run(folder: &Path, endpoint: &str, line: &str) -> Self {
        let output = command(folder, endpoint, line).output();
        let output = tokio::time::timeout(DEADLINE, output).await;
        output.unwrap_or_else(|_| panic!("{line}: it does not end")).unwrap().into()
    }

    /// The same run, which must have gone well.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// The same, with the lines that tell of units in order: they are printed as units get there.
    pub(crate) fn sorted(mut self) -> Self {
        let tells = |line: &&str| {
            ["Unit ", "Destroyed ", "{\"action\""].iter().any(|start| line.starts_with(start))
        };
        let (mut told, rest): (Vec<_>, Vec<_>) = self.stdout.lines().partition(tells);
        told.sort_unstable();
        self.stdout = rest.iter().chain(&told).flat_map(|line| [line, "\n"]).collect();
        self
    }
}

/// The program, with nothing of this process's own environment but what it cannot do without.
pub(crate) fn command(folder: &Path, endpoint: &str, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    command.args(line.split(' ').filter(|arg| !arg.is_empty()));
    command.current_dir(folder).env_clear().env("FLEETCTL_ENDPOINT", endpoint);
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

/// Everything, for snapshots: the code, standard output, and standard error after a rule.
impl fmt::Display for Fleetctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {}\n{}", self.code, self.stdout.replace('\t', "→"))?;
        if !self.stderr.is_empty() {
            write!(f, "---\n{}", self.stderr)?;
        }
        Ok(())
    }
}
