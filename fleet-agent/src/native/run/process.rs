//! Starts one process of a unit.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fleet_core::graph::{Command, DirectoryPath, ExecEnvironment, ExecOutput};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::descriptors::NamedDescriptor;
use super::exec_context::{ExecContext, SEARCH_PATH, collect};
use crate::native::linux::cgroup::Group;
use crate::native::linux::child::{
    ChildSetup, Credentials, ExecStep, InheritedDescriptors, SpawnError, WorkingDirectory, limits,
};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::files::{open_nonblocking, open_or_create};
use crate::native::linux::identity::{Identity, UnknownAccount, look_up, own_home};
use crate::native::linux::limits::{CgroupSetting, is_out_of_descriptors, unit_nofile_limit};
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

/// File mode creation mask of units without `UMask=`.
const DEFAULT_UMASK: u32 = 0o022;

/// Starts a command of a unit.
///
/// The command runs in a session of its own, with an empty stdin. It writes directly to the log
/// file, so its output is still stored after the daemon has ended. Of the
/// descriptors of fleet it inherits only `descriptors`, because all others are close-on-exec.
pub(crate) fn spawn(
    command: &Command,
    exec_env: &ExecEnvironment,
    log: &Path,
    group: Option<(&Group, &[CgroupSetting])>,
    passed: &[(String, String)],
    extra: &[(&str, String)],
    descriptors: &[NamedDescriptor],
) -> Result<Child, SpawnFailure> {
    let (group, settings) = group.unzip();
    let identity = look_up(exec_env).map_err(SpawnFailure::unknown)?;
    // As in systemd, a failure here has no exit code, since there is no process yet.
    let environment = collect(exec_env, passed, identity.user.as_ref(), extra)
        .map_err(|message| SpawnFailure { message, end: ProcessExit::NotSpawned })?;
    let start = Some(start(exec_env, &identity)?);
    let program = find(&command.program).map_err(|error| SpawnFailure::exec(command, &error))?;
    let inherited = InheritedDescriptors::duplicate(descriptors.iter().map(|it| &it.descriptor))
        .map_err(|error| {
            SpawnFailure::of(FDS, format!("cannot pass descriptors: {error}"), &error)
        })?;
    let mut words = command.argv(|name| environment.get(name)).into_iter();
    let context = ExecContext {
        program,
        name: words.next().unwrap_or_default(),
        arguments: words.collect(),
        outputs: outputs(exec_env, log)?,
        setup: ChildSetup {
            identity: rights(&identity).filter(|_| !command.privileged),
            start,
            descriptors: inherited,
            ..setup(exec_env)
        },
        environment,
    };
    let started = match group.zip(settings) {
        Some((group, settings)) => {
            let inside = open(group, settings).map_err(|error| {
                SpawnFailure::of(CGROUP, format!("cannot create a control group: {error}"), &error)
            })?;
            context.start_in_cgroup(&inside, || group.list())
        }
        None => context.start(),
    };
    started.map_err(|why| SpawnFailure::spawn(command, exec_env, &why))
}

/// Creates a control group with its limits.
fn open(group: &Group, settings: &[CgroupSetting]) -> io::Result<File> {
    let opened = group.open()?;
    group.limit(settings)?;
    Ok(opened)
}

/// Returns the setup in the child.
fn setup(exec_env: &ExecEnvironment) -> ChildSetup {
    ChildSetup {
        group: None,
        ignore_sigpipe: exec_env.ignore_sigpipe,
        oom_score_adjust: exec_env.oom_score_adjust.map(|score| score.to_string()),
        nice: exec_env.nice,
        limits: limits(&exec_env.limits, unit_nofile_limit()),
        umask: Some(mask(exec_env)),
        identity: None,
        start: None,
        descriptors: InheritedDescriptors::default(),
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

/// Finds a program; one without a path in systemd's search path.
fn find(program: &str) -> io::Result<PathBuf> {
    if program.starts_with('/') {
        return runnable(Path::new(program)).map(|()| PathBuf::from(program));
    }
    let candidates = SEARCH_PATH.iter().map(|directory| Path::new(directory).join(program));
    let found = candidates.into_iter().find(|path| runnable(path).is_ok());
    found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
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
        DirectoryPath::Home => {
            let home = identity.user.as_ref().map(|user| user.home.clone()).or_else(own_home);
            PathBuf::from(home.unwrap_or_else(|| "/".to_owned()))
        }
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
    fn spawn(command: &Command, exec_env: &ExecEnvironment, why: &SpawnError) -> Self {
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

    /// Creates a failure that is reported as the exit code `code`. A lack of descriptors is no
    /// fault of the command, so such a failure is reported as `NotSpawned` instead.
    fn of(code: i32, message: String, error: &io::Error) -> Self {
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
        let usual = setup(&ExecEnvironment::default());
        assert_eq!(usual.umask, Some(0o022));
        let named = ExecEnvironment { umask: Some(0), ..ExecEnvironment::default() };
        assert_eq!(setup(&named).umask, Some(0));
    }
}
