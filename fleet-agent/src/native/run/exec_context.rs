//! A process to start, and the two ways to start it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use tokio::process::Command as Process;

use crate::native::linux::child::ChildSetup;
use crate::native::linux::exec_step::SpawnError;
use crate::native::linux::process_info::SYSTEMD_EXEC_PID;
use crate::native::linux::program::Program;
use crate::native::linux::spawn::{Child, SpawnRequest};

/// A process to start.
#[derive(Debug)]
pub(crate) struct ExecContext {
    /// Path of its program.
    pub(crate) program: PathBuf,
    /// Its `argv[0]`.
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    /// Environment of the process. The value of `SYSTEMD_EXEC_PID` is only a placeholder, because
    /// the pid is not known before the spawn.
    pub(crate) environment: BTreeMap<String, String>,
    /// Files for stdout and stderr; `None` inherits ours.
    pub(crate) outputs: [Option<File>; 2],
    pub(crate) setup: ChildSetup,
}

impl ExecContext {
    /// Starts the process directly in the control group whose directory is `group`. If the system
    /// does not support that, or kills the child at once, opens the process list of the group with
    /// `list`. The child then enters the group itself before the exec.
    pub(crate) fn start_in_cgroup(
        mut self,
        group: &File,
        list: impl FnOnce() -> io::Result<File>,
    ) -> Result<Child, SpawnError> {
        let program = self.program()?;
        if let Some(child) = self.spawn_request(&program)?.clone_child(Some(group.as_fd()))? {
            return Ok(child);
        }
        self.setup.group = Some(list()?);
        Ok(self.spawn(program)?)
    }

    /// Starts the process.
    pub(crate) fn start(self) -> Result<Child, SpawnError> {
        let program = self.program()?;
        match self.spawn_request(&program)?.clone_child(None)? {
            Some(child) => Ok(child),
            None => Ok(self.spawn(program)?),
        }
    }

    /// Spawns the process with the standard library, including the setup before the exec.
    pub(crate) fn spawn(self, program: Program) -> io::Result<Child> {
        let mut process = Process::new(self.program);
        process.kill_on_drop(false).stdin(Stdio::null());
        let [output, error] = self.outputs.map(|to| to.map_or_else(Stdio::inherit, Stdio::from));
        process.stdout(output).stderr(error);
        self.setup.apply(&mut process, program);
        process.spawn().map(|child| Child::Tokio(Box::new(child)))
    }

    /// Returns the program to execute.
    pub(crate) fn program(&self) -> io::Result<Program> {
        let texts = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(CString::new).collect::<Result<Vec<_>, _>>()
        };
        let name = std::iter::once(self.name.clone());
        let variables = self.environment.iter().filter(|it| it.0 != SYSTEMD_EXEC_PID);
        let variables = variables.map(|(name, value)| format!("{name}={value}"));
        Ok(Program::new(
            text(&self.program)?,
            texts(&mut name.chain(self.arguments.iter().cloned()))?,
            texts(&mut { variables })?,
            self.environment.contains_key(SYSTEMD_EXEC_PID),
        ))
    }

    fn spawn_request<'a>(&'a self, program: &'a Program) -> io::Result<SpawnRequest<'a>> {
        Ok(SpawnRequest { program, input: dev_null()?, outputs: &self.outputs, setup: &self.setup })
    }
}

fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Returns an empty input, which is shared by all processes.
fn dev_null() -> io::Result<&'static File> {
    static DEV_NULL: OnceLock<File> = OnceLock::new();
    match DEV_NULL.get() {
        Some(dev_null) => Ok(dev_null),
        None => File::open("/dev/null").map(|opened| DEV_NULL.get_or_init(|| opened)),
    }
}
