//! A process to start, its environment, and the two ways to start it. Also whether the start may
//! have to wait for a remote file system.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use fleet_core::graph::{Command, DirectoryPath, ExecEnvironment, ExecOutput, Run};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use tokio::process::Command as Process;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::native::executor::plan::{ExecFailure, ExecPlan};
use crate::native::executor::sandbox::needs_executor;
use crate::native::executor::{self, Executor};
use crate::native::linux::child::{ChildSetup, Program, SpawnError, is_pid_variable};
use crate::native::linux::files::{parse_file, read_text};
use crate::native::linux::identity::User;
use crate::native::linux::limits::is_out_of_descriptors;
use crate::native::linux::process_info::{INVOCATION_ID, LISTEN_PID, SYSTEMD_EXEC_PID};
use crate::native::linux::spawn::{Child, SpawnRequest};

/// A process to start.
#[derive(Debug)]
pub(crate) struct ExecContext {
    /// Path of its program.
    pub(crate) program: PathBuf,
    /// Its `argv[0]`.
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    /// Environment of the process. The values of `SYSTEMD_EXEC_PID` and `LISTEN_PID` are only
    /// placeholders, because the pid is not known before the spawn.
    pub(crate) environment: BTreeMap<String, String>,
    /// Standard input; `None` is empty.
    pub(crate) input: Option<File>,
    /// Files for stdout and stderr; `None` inherits ours.
    pub(crate) outputs: [Option<File>; 2],
    pub(crate) setup: ChildSetup,
    /// The order, if the program is an executor.
    pub(crate) order: Option<ExecOrder>,
}

/// The order to an executor.
#[derive(Debug)]
pub(crate) struct ExecOrder {
    /// The other end of its standard input.
    connection: UnixStream,
    plan: Box<ExecPlan>,
    /// Time to wait for the program of the unit to begin.
    patience: Duration,
}

/// A process that was not started.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The child failed before its exec.
    Spawn(SpawnError),
    /// The executor failed before its exec.
    Executor(ExecFailure),
}

impl<E: Into<SpawnError>> From<E> for StartError {
    fn from(error: E) -> Self {
        Self::Spawn(error.into())
    }
}

impl ExecContext {
    /// Returns the process of an executor. Until it executes the program of the unit, its
    /// environment identifies it as a process of the run.
    pub(crate) fn confined(
        executor: &Executor,
        plan: ExecPlan,
        patience: Duration,
        outputs: [Option<File>; 2],
        setup: ChildSetup,
    ) -> io::Result<Self> {
        let (connection, input) = UnixStream::pair()?;
        let identifying = [INVOCATION_ID, SYSTEMD_EXEC_PID, LISTEN_PID].into_iter();
        let of_plan = |name: &str| Some((name.to_owned(), plan.environment.get(name)?.clone()));
        Ok(Self {
            program: executor.program().to_owned(),
            name: executor::NAME.to_owned(),
            arguments: Vec::new(),
            environment: identifying.filter_map(of_plan).collect(),
            input: Some(File::from(OwnedFd::from(input))),
            outputs,
            setup,
            order: Some(ExecOrder { connection, plan: Box::new(plan), patience }),
        })
    }

    /// Starts the process directly in the control group whose directory is `group`. If the system
    /// does not support that, or kills the child at once, opens the process list of the group with
    /// `list`. The child then enters the group itself before the exec.
    pub(crate) fn start_in_cgroup(
        mut self,
        group: &File,
        list: impl FnOnce() -> io::Result<File>,
    ) -> Result<Child, StartError> {
        let order = self.order.take();
        let program = self.program()?;
        let child = match self.spawn_request(&program)?.clone_child(Some(group.as_fd()))? {
            Some(child) => {
                drop(self);
                child
            }
            None => {
                self.setup.group = Some(list()?);
                self.spawn(program)?
            }
        };
        executed(child, order)
    }

    /// Starts the process.
    pub(crate) fn start(mut self) -> Result<Child, StartError> {
        let order = self.order.take();
        let program = self.program()?;
        let child = match self.spawn_request(&program)?.clone_child(None)? {
            Some(child) => {
                drop(self);
                child
            }
            None => self.spawn(program)?,
        };
        executed(child, order)
    }

    /// Spawns the process with the standard library, including the setup before the exec.
    pub(crate) fn spawn(self, program: Program) -> io::Result<Child> {
        let mut process = Process::new(self.program);
        process.kill_on_drop(false).stdin(self.input.map_or_else(Stdio::null, Stdio::from));
        let [output, error] = self.outputs.map(|to| to.map_or_else(Stdio::inherit, Stdio::from));
        process.stdout(output).stderr(error);
        // While these low numbers are taken, the standard library opens its pipe at a higher one,
        // which the child does not overwrite.
        let _taken = take_numbers_below(self.setup.descriptors.first_free())?;
        self.setup.apply(&mut process, program);
        process.spawn().map(|child| Child::Tokio(Box::new(child)))
    }

    /// Returns the program to execute.
    pub(crate) fn program(&self) -> io::Result<Program> {
        let texts = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(CString::new).collect::<Result<Vec<_>, _>>()
        };
        let name = std::iter::once(self.name.clone());
        let variables = self.environment.iter().filter(|it| !is_pid_variable(it.0));
        let variables = variables.map(|(name, value)| format!("{name}={value}"));
        Ok(Program::new(
            text(&self.program)?,
            texts(&mut name.chain(self.arguments.iter().cloned()))?,
            texts(&mut { variables })?,
            |name| self.environment.contains_key(name),
        ))
    }

    fn spawn_request<'a>(&'a self, program: &'a Program) -> io::Result<SpawnRequest<'a>> {
        let input = match &self.input {
            Some(input) => input,
            None => dev_null()?,
        };
        Ok(SpawnRequest { program, input, outputs: &self.outputs, setup: &self.setup })
    }
}

/// Waits until an executor has executed the program of the unit. No other copy of its standard
/// input may be open here, because the end of the connection is awaited.
fn executed(mut child: Child, order: Option<ExecOrder>) -> Result<Child, StartError> {
    let Some(ExecOrder { mut connection, plan, patience }) = order else { return Ok(child) };
    match executor::command(&mut connection, &plan, patience) {
        None => Ok(child),
        Some(failure) => {
            // It may still wait. If it has ended, there is nothing to kill.
            drop(child.start_kill());
            Err(StartError::Executor(failure))
        }
    }
}

/// Opens descriptors until all numbers below `first` are in use.
fn take_numbers_below(first: i32) -> io::Result<Vec<OwnedFd>> {
    let mut taken = Vec::new();
    loop {
        let next = fcntl_dupfd_cloexec(dev_null()?, 0)?;
        if next.as_raw_fd() >= first {
            return Ok(taken);
        }
        taken.push(next);
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

/// Limit on the size of an environment file in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Search path for programs without a path, as in systemd.
pub(crate) const SEARCH_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Collects the environment of one process. Each source overrides the sources before it.
///
/// | order | source |
/// |---|---|
/// | 1 | `PATH`, and variables that the service manager passes to all units |
/// | 2 | `extra`: variables about the service |
/// | 3 | `HOME`, `USER`, `LOGNAME`, `SHELL` if `User=` is set |
/// | 4 | `PassEnvironment=` from fleet's own environment |
/// | 5 | `Environment=` |
/// | 6 | `EnvironmentFile=` |
/// | 7 | removals by `UnsetEnvironment=` |
/// | 8 | variables of `extra` that identify processes: `INVOCATION_ID`, `SYSTEMD_EXEC_PID` |
pub(crate) fn collect(
    exec_env: &ExecEnvironment,
    passed: &[(String, String)],
    user: Option<&User>,
    extra: &[(&str, String)],
) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::from([("PATH".to_owned(), SEARCH_PATH.join(":"))]);
    all.extend(passed.iter().cloned());
    let own = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
    all.extend(extra.iter().map(own));
    if let Some(user) = user {
        all.extend(user.variables());
    }
    for name in &exec_env.pass_environment {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.clone(), value);
        }
    }
    all.extend(exec_env.environment.iter().cloned());
    for file in &exec_env.environment_files {
        match read_text(Path::new(&file.path), MAX_BYTES).and_then(without_zero) {
            Ok(text) => all.extend(parse_file(&text)),
            // A temporary shortage of descriptors is no property of the file.
            Err(error)
                if file.optional
                    && !Errno::from_io_error(&error).is_some_and(is_out_of_descriptors) => {}
            Err(error) => {
                return Err(format!("cannot read its environment file {}: {error}", file.path));
            }
        }
    }
    for unset in &exec_env.unset_environment {
        match unset.split_once('=') {
            Some((name, value)) if all.get(name).is_some_and(|set| set == value) => {
                all.remove(name);
            }
            Some(_) => {}
            None => {
                all.remove(unset);
            }
        }
    }
    let finds = |name: &str| [INVOCATION_ID, SYSTEMD_EXEC_PID].contains(&name);
    all.extend(extra.iter().filter(|it| finds(it.0)).map(own));
    Ok(all)
}

/// Returns the text, or an error if it contains NUL, which variables cannot contain.
fn without_zero(text: String) -> io::Result<String> {
    if text.contains('\0') { Err(io::Error::other("it contains a NUL byte")) } else { Ok(text) }
}

/// Directories of the system itself.
const LOCAL_DIRECTORIES: [&str; 12] = [
    "/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin",
    "/sys", "/usr",
];

/// Runs `work`. If `may_block` is set, first moves the other tasks of this thread to another
/// thread, because `work` may block for a long time.
///
/// This is for file systems that do not respond, such as a mount whose server is gone.
///
/// A process that uses a file on such a file system blocks in the kernel, and nothing can prevent
/// that. But a blocked runtime thread would also delay the tasks of other units in its queue. So
/// the thread first moves these tasks to another thread.
///
/// The move is cheap compared with a remote file access, but it doubles the system time of a
/// process start. So it is only done for units that use files outside of the system's own
/// directories, such as `/usr`. If those directories do not respond, the machine is unusable
/// anyway.
pub(crate) fn block_in_place_if<T>(may_block: bool, work: impl FnOnce() -> T) -> T {
    let has_others = || {
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread)
    };
    if may_block && has_others() { block_in_place(work) } else { work() }
}

/// Whether the start of a run may access a remote file system.
pub(crate) fn run_may_block(run: &Run) -> bool {
    !run.conditions.is_empty() || looks_up_account(&run.exec_environment)
}

/// Whether the start of a process may access a remote file system.
pub(crate) fn spawn_may_block(command: &Command, exec_env: &ExecEnvironment) -> bool {
    let files = exec_env.environment_files.iter().map(|file| file.path.as_str());
    let outputs = [Some(&exec_env.output), exec_env.error.as_ref()];
    let outputs = outputs.into_iter().flatten().filter_map(file_of);
    let mut named = files.chain(outputs).chain([command.program.as_str()]);
    let directory = match &exec_env.directory.path {
        DirectoryPath::Root => false,
        DirectoryPath::At(path) => may_block(path),
        DirectoryPath::Home => true,
    };
    // An executor takes some milliseconds, for which this thread waits.
    let waits = needs_executor(exec_env);
    directory || waits || looks_up_account(exec_env) || named.any(may_block)
}

/// Whether accounts are looked up, which may require a remote server.
fn looks_up_account(exec_env: &ExecEnvironment) -> bool {
    let groups = &exec_env.supplementary_groups;
    exec_env.user.is_some() || exec_env.group.is_some() || !groups.is_empty()
}

fn file_of(output: &ExecOutput) -> Option<&str> {
    match output {
        ExecOutput::Log | ExecOutput::Null | ExecOutput::Inherit => None,
        ExecOutput::File(path) | ExecOutput::Append(path) | ExecOutput::Truncate(path) => {
            Some(path)
        }
    }
}

/// Whether a path is outside of the system's own directories. A program name without a slash is
/// only searched for in these directories, so it counts as inside.
fn may_block(path: &str) -> bool {
    path.starts_with('/') && !LOCAL_DIRECTORIES.iter().any(|own| Path::new(path).starts_with(own))
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::EnvironmentFile;

    use super::*;

    /// Starts a program as an executor, which must fail. Returns the failed step.
    fn failed_step(program: &str, patience: Duration) -> String {
        let plan = ExecPlan { arguments: vec!["/bin/web".to_owned()], ..ExecPlan::default() };
        let (executor, setup) = (Executor::at(program), ChildSetup::default());
        let nowhere = File::options().write(true).open("/dev/null").expect("it exists");
        let context =
            ExecContext::confined(&executor, plan, patience, [Some(nowhere), None], setup);
        match context.expect("sockets can be created").start() {
            Err(StartError::Executor(failure)) => failure.step,
            other => panic!("{other:?}"),
        }
    }

    /// Regression: the end of the connection counted as the exec of the program.
    #[tokio::test]
    async fn executor_that_ends_in_its_setup_is_a_failed_start() {
        let expected = "set up its process: the executor ended before the program began";
        for program in ["/bin/false", "/bin/cat"] {
            assert_eq!(failed_step(program, Duration::from_secs(30)), expected, "{program}");
        }
    }

    /// Regression: the supervisor waited for the server of a file system forever.
    #[tokio::test]
    async fn executor_that_takes_too_long_is_killed() {
        let step = failed_step("/usr/bin/yes", Duration::from_millis(10));
        assert_eq!(step, "run /bin/web: the set-up took longer than 0 s");
    }

    #[test]
    fn later_sources_override_and_identity_is_last() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let exec_env = ExecEnvironment {
            environment: vec![
                pair("A", "unit"),
                pair("B", "b"),
                pair("MAINPID", "1"),
                pair(INVOCATION_ID, "8"),
            ],
            unset_environment: ["B", "A=other", INVOCATION_ID, SYSTEMD_EXEC_PID, "NOTIFY_SOCKET"]
                .map(str::to_owned)
                .into(),
            ..ExecEnvironment::default()
        };
        let extra = [
            (INVOCATION_ID, "7".to_owned()),
            (SYSTEMD_EXEC_PID, String::new()),
            ("MAINPID", "2".to_owned()),
            ("NOTIFY_SOCKET", "@x".to_owned()),
            ("PIDFILE", "/run/x".to_owned()),
        ];
        let all = collect(&exec_env, &[pair("A", "machine")], None, &extra);
        let all = all.expect("no file is read");
        let of = |name: &str| all.get(name).map(String::as_str);
        assert_eq!((of("A"), of("B"), of("PIDFILE")), (Some("unit"), None, Some("/run/x")));
        assert_eq!((of("MAINPID"), of("NOTIFY_SOCKET")), (Some("1"), None));
        assert_eq!((of(INVOCATION_ID), of(SYSTEMD_EXEC_PID)), (Some("7"), Some("")));
        assert!(of("PATH").is_some_and(|path| path.starts_with("/usr/local/sbin:")));
    }

    #[test]
    fn optional_environment_file_is_ignored_on_error() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| home.path().join(name).display().to_string();
        for (name, bytes) in [("good", &b"A=1\n"[..]), ("bytes", b"A=\xff\n"), ("zero", b"A=\0\n")]
        {
            std::fs::write(path(name), bytes).expect("it can be written");
        }
        let read = |path: String, optional: bool| {
            let environment_files = vec![EnvironmentFile { path, optional }];
            let exec_env = ExecEnvironment { environment_files, ..ExecEnvironment::default() };
            collect(&exec_env, &[], None, &[]).map(|all| all.get("A").cloned())
        };
        for optional in [true, false] {
            assert_eq!(read(path("good"), optional), Ok(Some("1".to_owned())));
        }
        for name in ["none", "bytes", "zero", "", "good/none"] {
            assert_eq!(read(path(name), true), Ok(None), "{name}");
            read(path(name), false).expect_err(name);
        }
    }

    #[test]
    fn paths_outside_system_directories_may_block() {
        for (path, expected) in [
            ("true", false),
            ("/bin/true", false),
            ("/usr/local/bin/mine", false),
            ("/binary/true", true),
            ("/srv/mine", true),
            ("/home/me/mine", true),
        ] {
            assert_eq!(may_block(path), expected, "{path}");
        }
    }
}
