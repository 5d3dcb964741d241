//! Starts one process of a unit.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_core::graph::{Command, DirectoryPath, ExecEnvironment, ExecOutput};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::descriptors::NamedDescriptor;
use super::exec_context::{ExecContext, SEARCH_PATH, StartError, collect};
use super::exec_resources::ExecResources;
use crate::native::executor::Executor;
use crate::native::executor::plan::{DirectoryPlan, ExecFailure, ExecPlan, IdentityPlan};
use crate::native::executor::sandbox::{SandboxContext, confine};
use crate::native::linux::cgroup::{Group, filters};
use crate::native::linux::child::{
    ChildSetup, Credentials, ExecStep, InheritedDescriptors, WorkingDirectory, limits,
};
use crate::native::linux::dynamic_user::DynamicIds;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::files::{open_nonblocking, open_or_create};
use crate::native::linux::identity::{Identity, UnknownAccount, look_up, own_home};
use crate::native::linux::limits::{CgroupLimits, is_out_of_descriptors, unit_nofile_limit};
use crate::native::linux::spawn::Child;
use crate::native::log::append;

/// Failure to start a process: a message for people, and the exit to report to the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpawnFailure {
    pub(crate) message: String,
    pub(crate) end: ProcessExit,
}

/// systemd's exit codes for failures before the exec.
const CHDIR: i32 = 200;
const NICE: i32 = 201;
const FDS: i32 = 202;
const EXEC: i32 = 203;
const LIMITS: i32 = 205;
const OOM_ADJUST: i32 = 206;
const STDOUT: i32 = 209;
const GROUP: i32 = 216;
const USER: i32 = 217;
const CGROUP: i32 = 219;
const SETSID: i32 = 220;
const SECCOMP: i32 = 228;

/// File mode creation mask of units without `UMask=`.
const DEFAULT_UMASK: u32 = 0o022;

/// Starts a command of a unit.
///
/// The command runs in a session of its own, with an empty stdin. It writes directly to the log
/// file, so its output is still stored after the daemon has ended. Of the descriptors of fleet it
/// inherits only those of `context`, because all others are close-on-exec.
pub(crate) fn spawn(
    command: &Command,
    exec_env: &ExecEnvironment,
    log: &Path,
    group: Option<(&Group, &CgroupLimits)>,
    passed: &[(String, String)],
    mut extra: Vec<(&str, String)>,
    context: &SpawnContext<'_>,
) -> Result<Child, SpawnFailure> {
    let identity = look_up(exec_env, context.dynamic).map_err(SpawnFailure::unknown)?;
    extra.extend(context.resources.create(exec_env, &identity)?);
    // As in systemd, a failure here has no exit code, since there is no process yet.
    let environment = collect(exec_env, passed, identity.user.as_ref(), &extra)
        .map_err(|message| SpawnFailure { message, end: ProcessExit::NotSpawned })?;
    let inherited = context.descriptors.iter().map(|it| &it.descriptor);
    let descriptors = InheritedDescriptors::duplicate(inherited).map_err(|error| {
        SpawnFailure::of(FDS, format!("cannot pass descriptors: {error}"), &error)
    })?;
    let setup = ChildSetup { descriptors, ..setup(exec_env) };
    let executor = context.executor.filter(|_| !command.unconfined);
    let context = match executor {
        Some(executor) => {
            let patience = context.patience;
            let plan = plan(command, exec_env, &identity, environment, context)?;
            ExecContext::confined(executor, plan, patience, outputs(exec_env, log)?, setup)
                .map_err(|error| SpawnFailure::exec(command, &error))?
        }
        None => {
            let outputs = outputs(exec_env, log)?;
            direct(command, exec_env, &identity, environment, outputs, setup)?
        }
    };
    let started = match group {
        Some((group, limits)) => {
            let inside = open(group, limits).map_err(|error| {
                SpawnFailure::of(CGROUP, format!("cannot create a control group: {error}"), &error)
            })?;
            context.start_in_cgroup(&inside, || group.list())
        }
        None => context.start(),
    };
    started.map_err(|why| SpawnFailure::spawn(command, exec_env, &why))
}

/// Facts about a run that the start of a process depends on.
#[derive(Debug)]
pub(crate) struct SpawnContext<'a> {
    /// The program that confines the process, if the unit needs it.
    pub(crate) executor: Option<&'a Executor>,
    pub(crate) resources: &'a ExecResources,
    /// The user of the run, if it is a dynamic one.
    pub(crate) dynamic: Option<&'a DynamicIds>,
    /// An empty file without permissions.
    pub(crate) empty_file: &'a Path,
    /// Time that an executor may take.
    pub(crate) patience: Duration,
    /// The main process, unless this is its start.
    pub(crate) main: Option<u32>,
    /// Descriptors that the process inherits from number 3 on.
    pub(crate) descriptors: &'a [NamedDescriptor],
}

/// Returns a process that is executed without an executor.
fn direct(
    command: &Command,
    exec_env: &ExecEnvironment,
    identity: &Identity,
    environment: BTreeMap<String, String>,
    outputs: [Option<File>; 2],
    setup: ChildSetup,
) -> Result<ExecContext, SpawnFailure> {
    let start = Some(start(exec_env, identity)?);
    let program = find(command, exec_env).map_err(|error| SpawnFailure::exec(command, &error))?;
    let mut words = command.argv(|name| environment.get(name)).into_iter();
    Ok(ExecContext {
        program,
        name: words.next().unwrap_or_default(),
        arguments: words.collect(),
        outputs,
        setup: ChildSetup {
            identity: rights(identity).filter(|_| !command.privileged),
            start,
            umask: Some(mask(exec_env)),
            limits: limits(&exec_env.limits, unit_nofile_limit()),
            ..setup
        },
        environment,
        input: None,
        order: None,
    })
}

/// Returns the steps of an executor.
fn plan(
    command: &Command,
    exec_env: &ExecEnvironment,
    identity: &Identity,
    environment: BTreeMap<String, String>,
    context: &SpawnContext<'_>,
) -> Result<ExecPlan, SpawnFailure> {
    let path = match &exec_env.directory.path {
        DirectoryPath::Root => "/".to_owned(),
        DirectoryPath::At(path) => path.clone(),
        DirectoryPath::Home => home(identity),
    };
    let mut limits = exec_env.limits.clone();
    if let Some(usual) = unit_nofile_limit() {
        limits.entry("nofile").or_insert((usual.current, usual.maximum));
    }
    let mut plan = ExecPlan {
        limits: limits.into_iter().map(|(name, limit)| (name.to_owned(), limit)).collect(),
        identity: rights(identity).filter(|_| !command.privileged).map(|_| IdentityPlan {
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups.clone(),
        }),
        umask: mask(exec_env),
        directory: DirectoryPlan { path, optional: exec_env.directory.optional },
        ignore_sigpipe: exec_env.ignore_sigpipe,
        candidates: candidates(command, exec_env).map(|it| it.display().to_string()).collect(),
        arguments: command.argv(|name| environment.get(name)),
        environment,
        ..ExecPlan::default()
    };
    let context = SandboxContext {
        private_tmp: context.resources.private_tmp(),
        empty_file: context.empty_file.display().to_string(),
        ids: (identity.uid, identity.gid),
        main: context.main,
    };
    confine(&mut plan, exec_env, &context).map_err(|error| {
        SpawnFailure::new(SECCOMP, format!("cannot restrict its system calls: {error}"))
    })?;
    Ok(plan)
}

/// Creates a control group with its limits.
fn open(group: &Group, limits: &CgroupLimits) -> io::Result<File> {
    let opened = group.open()?;
    group.limit(&limits.settings)?;
    filters::attach(opened.as_fd(), &limits.filters)?;
    Ok(opened)
}

/// Returns the setup in the child that an executor needs too.
fn setup(exec_env: &ExecEnvironment) -> ChildSetup {
    ChildSetup {
        ignore_sigpipe: exec_env.ignore_sigpipe,
        oom_score_adjust: exec_env.oom_score_adjust.map(|score| score.to_string()),
        nice: exec_env.nice,
        ..ChildSetup::default()
    }
}

fn mask(exec_env: &ExecEnvironment) -> u32 {
    exec_env.umask.unwrap_or(DEFAULT_UMASK)
}

/// Returns the credentials to change to, if they differ from ours.
fn rights(identity: &Identity) -> Option<Credentials> {
    let groups = identity.groups.as_ref();
    let is_other = identity.uid.is_some() || identity.gid.is_some() || groups.is_some();
    is_other.then(|| Credentials {
        uid: identity.uid.map(Uid::from_raw),
        gid: identity.gid.map(Gid::from_raw),
        groups: groups.map(|groups| groups.iter().copied().map(Gid::from_raw).collect()),
    })
}

/// Finds a program.
fn find(command: &Command, exec_env: &ExecEnvironment) -> io::Result<PathBuf> {
    let mut problem = io::Error::from(io::ErrorKind::NotFound);
    for path in candidates(command, exec_env) {
        match runnable(&path) {
            Ok(()) => return Ok(path),
            Err(error) if command.program.starts_with('/') => problem = error,
            Err(_) => {}
        }
    }
    Err(problem)
}

/// Returns the paths of a program. One without a path is in a directory of the search path.
fn candidates(command: &Command, exec_env: &ExecEnvironment) -> impl Iterator<Item = PathBuf> {
    let program = Path::new(&command.program);
    let own = exec_env.search_path.iter().map(String::as_str);
    let usual = SEARCH_PATH.into_iter().filter(|_| exec_env.search_path.is_empty());
    // An absolute path replaces the directory.
    let count = if program.is_absolute() { 1 } else { usize::MAX };
    own.chain(usual).map(move |directory| Path::new(directory).join(program)).take(count)
}

fn runnable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?)
}

/// Returns the working directory of the child.
fn start(
    exec_env: &ExecEnvironment,
    identity: &Identity,
) -> Result<WorkingDirectory, SpawnFailure> {
    let directory = working_directory(exec_env, identity)?;
    let path = CString::new(directory.as_os_str().as_bytes())
        .map_err(|error| SpawnFailure::new(CHDIR, error.to_string()))?;
    Ok(WorkingDirectory { path, optional: exec_env.directory.optional })
}

fn working_directory(
    exec_env: &ExecEnvironment,
    identity: &Identity,
) -> Result<PathBuf, SpawnFailure> {
    let wanted = match &exec_env.directory.path {
        DirectoryPath::Root => return Ok(PathBuf::from("/")),
        DirectoryPath::At(path) => PathBuf::from(path),
        DirectoryPath::Home => PathBuf::from(home(identity)),
    };
    match std::fs::metadata(&wanted) {
        Ok(metadata) if metadata.is_dir() => Ok(wanted),
        _ if exec_env.directory.optional => Ok(PathBuf::from("/")),
        Ok(_) => Err(SpawnFailure::new(
            CHDIR,
            format!("its working directory {} is not a directory", wanted.display()),
        )),
        Err(error) => Err(SpawnFailure::new(
            CHDIR,
            format!("cannot enter its working directory {}: {error}", wanted.display()),
        )),
    }
}

fn home(identity: &Identity) -> String {
    let home = identity.user.as_ref().map(|user| user.home.clone()).or_else(own_home);
    home.unwrap_or_else(|| "/".to_owned())
}

/// Opens stdout and stderr; `None` inherits ours.
fn outputs(exec_env: &ExecEnvironment, log: &Path) -> Result<[Option<File>; 2], SpawnFailure> {
    let (output, error) = (&exec_env.output, exec_env.error.as_ref());
    let open = |output| open_output(output, log, 0o666 & !mask(exec_env));
    let opened = open(output)?;
    let second = match error {
        Some(error) if error != output => open(error)?,
        // Both writers share one file offset.
        _ => opened
            .as_ref()
            .map(File::try_clone)
            .transpose()
            .map_err(|error| SpawnFailure::of(STDOUT, error.to_string(), &error))?,
    };
    Ok([opened, second])
}

/// Opens the file to which a command writes its stdout or stderr. Returns `None` if the command
/// inherits the output of the daemon. A new file gets the permissions `mode`.
fn open_output(output: &ExecOutput, log: &Path, mode: u32) -> Result<Option<File>, SpawnFailure> {
    let mut options = OpenOptions::new();
    options.write(true);
    let (path, opened) = match output {
        ExecOutput::Inherit => return Ok(None),
        ExecOutput::Log => (log, append(log)),
        ExecOutput::Null => {
            let path = Path::new("/dev/null");
            (path, open_nonblocking(options, path))
        }
        ExecOutput::Append(path) | ExecOutput::File(path) | ExecOutput::Truncate(path) => {
            options.append(matches!(output, ExecOutput::Append(_)));
            options.truncate(matches!(output, ExecOutput::Truncate(_)));
            (Path::new(path), open_or_create(options, Path::new(path), mode))
        }
    };
    opened.map(Some).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> SpawnFailure {
    let message = format!("cannot open {} for writing: {error}", path.display());
    SpawnFailure::of(STDOUT, message, error)
}

impl SpawnFailure {
    fn new(code: i32, message: String) -> Self {
        Self { message, end: ProcessExit::Code(code) }
    }

    /// Creates the failure to take a dynamic user.
    pub(crate) fn dynamic_user(name: &str, error: &io::Error) -> Self {
        Self::of(USER, format!("cannot create its dynamic user {name:?}: {error}"), error)
    }

    fn unknown(account: UnknownAccount) -> Self {
        match account {
            UnknownAccount::User(message) => Self::new(USER, message),
            UnknownAccount::Group(message) => Self::new(GROUP, message),
        }
    }

    fn exec(command: &Command, error: &io::Error) -> Self {
        let program = OsStr::new(&command.program).display();
        Self::of(EXEC, format!("cannot run {program}: {error}"), error)
    }

    /// A lack of kernel resources is not the program's fault.
    fn spawn(command: &Command, exec_env: &ExecEnvironment, why: &StartError) -> Self {
        let why = match why {
            StartError::Spawn(why) => why,
            StartError::Executor(failure) => return Self::executor(failure),
        };
        let error = &why.error;
        let problem = match before_the_program(why.step, exec_env) {
            Some((code, action)) => Self::of(code, format!("cannot {action}: {error}"), error),
            None => Self::exec(command, error),
        };
        let scarce = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::QuotaExceeded
        );
        if scarce { Self { end: ProcessExit::NotSpawned, ..problem } } else { problem }
    }

    /// Creates the failure that an executor has reported.
    fn executor(failure: &ExecFailure) -> Self {
        let message = match failure.errno {
            0 => format!("cannot {}", failure.step),
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                format!("cannot {}: {error}", failure.step)
            }
        };
        Self::new(failure.code, message)
    }

    /// Creates a failure that is reported as the exit code `code`. A lack of descriptors is no
    /// fault of the command, so such a failure is reported as `NotSpawned` instead.
    pub(super) fn of(code: i32, message: String, error: &io::Error) -> Self {
        let is_out_of_descriptors = Errno::from_io_error(error).is_some_and(is_out_of_descriptors);
        Self {
            message,
            end: if is_out_of_descriptors {
                ProcessExit::NotSpawned
            } else {
                ProcessExit::Code(code)
            },
        }
    }
}

/// Returns the exit code and a description for a step before the exec.
fn before_the_program(step: ExecStep, exec_env: &ExecEnvironment) -> Option<(i32, String)> {
    let (code, action) = match step {
        ExecStep::Begin | ExecStep::Program => return None,
        ExecStep::Output => (STDOUT, "set up its input and output"),
        ExecStep::Session => (SETSID, "create its session"),
        ExecStep::Descriptors => (FDS, "pass its file descriptors"),
        ExecStep::Directory => (CHDIR, "enter its working directory"),
        ExecStep::Group => (CGROUP, "move it into its control group"),
        ExecStep::OomScore => (OOM_ADJUST, "set its OOM score adjustment"),
        ExecStep::Limits => (LIMITS, "set its limits"),
        ExecStep::Groups => (GROUP, "change to its groups"),
        ExecStep::Identity => (USER, "change to its user"),
        ExecStep::Nice => {
            let level = exec_env.nice.unwrap_or_default();
            return Some((NICE, format!("set its nice level to {level}")));
        }
    };
    Some((code, action.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regardless of our own mask.
    #[test]
    fn missing_umask_uses_default() {
        assert_eq!(mask(&ExecEnvironment::default()), 0o022);
        let named = ExecEnvironment { umask: Some(0), ..ExecEnvironment::default() };
        assert_eq!(mask(&named), 0);
    }
}
