//! Starting one process of a unit.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use fleet_core::graph::{Command, Output, Place, Surroundings};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::birth::Child;
use super::cgroup::Group;
use super::child::{Preparation, Rights, Start, limits};
use super::descriptors::{is_want, limit_of_units};
use super::environment::{SEARCH_PATH, collect};
use super::identity::{Identity, Unknown, look_up, own_home};
use super::opening::{open_at_once, open_or_make};
use super::outcome::End;
use super::plan::Plan;
use super::resources::Setting;
use super::step::{NotBegun, Step};

/// Why a process could not be started: for a person, and for the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpawnProblem {
    pub(crate) words: String,
    pub(crate) end: End,
}

/// systemd's exit codes for what fails before the program runs.
const CHDIR: i32 = 200;
const NICE: i32 = 201;
const EXEC: i32 = 203;
const LIMITS: i32 = 205;
const OOM_ADJUST: i32 = 206;
const STDOUT: i32 = 209;
const GROUP: i32 = 216;
const USER: i32 = 217;
const CGROUP: i32 = 219;
const SETSID: i32 = 220;

/// Which rights to its new files nobody gets, where a unit says nothing of it.
const USUAL_MASK: u32 = 0o022;

/// Starts a command of a unit.
///
/// It runs in a session of its own, with an empty standard input. Its output goes straight
/// into the log file, not through fleet, so that it outlives the daemon. Files that fleet has
/// open are not handed down: all are opened so that they close on execution.
pub(crate) fn spawn(
    command: &Command,
    surroundings: &Surroundings,
    log: &Path,
    group: Option<(&Group, &[Setting])>,
    passed: &[(String, String)],
    extra: &[(&str, String)],
) -> Result<Child, SpawnProblem> {
    let (group, settings) = group.unzip();
    let identity = look_up(surroundings).map_err(SpawnProblem::unknown)?;
    // systemd looks for the variables before there is a process that could have an exit code.
    let environment = collect(surroundings, passed, identity.user.as_ref(), extra)
        .map_err(|words| SpawnProblem { words, end: End::NeverWas })?;
    let start = Some(start(surroundings, &identity)?);
    let program = find(&command.program).map_err(|error| SpawnProblem::exec(command, &error))?;
    let mut words = command.words_with(|name| environment.get(name)).into_iter();
    let plan = Plan {
        program,
        name: words.next().unwrap_or_default(),
        arguments: words.collect(),
        outputs: outputs(surroundings, log)?,
        preparation: Preparation {
            identity: rights(&identity),
            start,
            ..preparation(surroundings)
        },
        environment,
    };
    let started = match group.zip(settings) {
        Some((group, settings)) => {
            let inside = open(group, settings).map_err(|error| {
                SpawnProblem::of(CGROUP, format!("cannot make a control group: {error}"), &error)
            })?;
            plan.start_inside(&inside, || group.list())
        }
        None => plan.start(),
    };
    started.map_err(|why| SpawnProblem::spawn(command, surroundings, &why))
}

/// Makes a control group, with its limits.
fn open(group: &Group, settings: &[Setting]) -> io::Result<File> {
    let opened = group.open()?;
    group.limit(settings)?;
    Ok(opened)
}

/// How a child ended.
pub(crate) fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, Some(signal)) if status.core_dumped() => End::Dumped(signal),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Unseen,
    }
}

/// What the child sees to itself.
fn preparation(surroundings: &Surroundings) -> Preparation {
    Preparation {
        group: None,
        ignore_sigpipe: surroundings.ignore_sigpipe,
        oom_score_adjust: surroundings.oom_score_adjust.map(|score| score.to_string()),
        nice: surroundings.nice,
        limits: limits(&surroundings.limits, limit_of_units()),
        umask: Some(mask(surroundings)),
        identity: None,
        start: None,
    }
}

fn mask(surroundings: &Surroundings) -> u32 {
    surroundings.umask.unwrap_or(USUAL_MASK)
}

/// Who the child is to become, if that is somebody else.
fn rights(identity: &Identity) -> Option<Rights> {
    let groups = identity.groups.as_ref();
    let is_other = identity.uid.is_some() || identity.gid.is_some() || groups.is_some();
    is_other.then(|| Rights {
        uid: identity.uid.map(Uid::from_raw),
        gid: identity.gid.map(Gid::from_raw),
        groups: groups.map(|groups| groups.iter().copied().map(Gid::from_raw).collect()),
    })
}

/// Finds a program; one without a path in the places that systemd searches.
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

/// Where the child begins.
fn start(surroundings: &Surroundings, identity: &Identity) -> Result<Start, SpawnProblem> {
    let directory = working_directory(surroundings, identity)?;
    let path = CString::new(directory.as_os_str().as_bytes())
        .map_err(|error| SpawnProblem::new(CHDIR, error.to_string()))?;
    Ok(Start { path, optional: surroundings.directory.optional })
}

fn working_directory(
    surroundings: &Surroundings,
    identity: &Identity,
) -> Result<PathBuf, SpawnProblem> {
    let wanted = match &surroundings.directory.place {
        Place::Root => return Ok(PathBuf::from("/")),
        Place::At(path) => PathBuf::from(path),
        Place::Home => {
            let home = identity.user.as_ref().map(|user| user.home.clone()).or_else(own_home);
            PathBuf::from(home.unwrap_or_else(|| "/".to_owned()))
        }
    };
    match std::fs::metadata(&wanted) {
        Ok(metadata) if metadata.is_dir() => Ok(wanted),
        _ if surroundings.directory.optional => Ok(PathBuf::from("/")),
        Ok(_) => Err(SpawnProblem::new(
            CHDIR,
            format!("WorkingDirectory={} is not a directory", wanted.display()),
        )),
        Err(error) => Err(SpawnProblem::new(
            CHDIR,
            format!("cannot enter WorkingDirectory={}: {error}", wanted.display()),
        )),
    }
}

/// Where the output and the errors go; nothing is where those of this process do.
fn outputs(surroundings: &Surroundings, log: &Path) -> Result<[Option<File>; 2], SpawnProblem> {
    let (output, error) = (&surroundings.output, surroundings.error.as_ref());
    let open = |output| open_output(output, log, 0o666 & !mask(surroundings));
    let opened = open(output)?;
    let second = match error {
        Some(error) if error != output => open(error)?,
        // One file has one end, wherever both of its writers are.
        _ => opened
            .as_ref()
            .map(File::try_clone)
            .transpose()
            .map_err(|error| SpawnProblem::of(STDOUT, error.to_string(), &error))?,
    };
    Ok([opened, second])
}

/// The file that output goes to, if it goes to one; made with those permissions.
fn open_output(output: &Output, log: &Path, mode: u32) -> Result<Option<File>, SpawnProblem> {
    let mut how = OpenOptions::new();
    how.write(true);
    let (path, opened) = match output {
        Output::Inherit => return Ok(None),
        Output::Log => (log, append(log)),
        Output::Null => {
            let path = Path::new("/dev/null");
            (path, open_at_once(how, path))
        }
        Output::Append(path) | Output::File(path) | Output::Truncate(path) => {
            how.append(matches!(output, Output::Append(_)));
            how.truncate(matches!(output, Output::Truncate(_)));
            (Path::new(path), open_or_make(how, Path::new(path), mode))
        }
    };
    opened.map(Some).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> SpawnProblem {
    let words = format!("cannot open {} to write: {error}", path.display());
    SpawnProblem::of(STDOUT, words, error)
}

/// Opens a log so that every write goes to its end, wherever that is.
pub(crate) fn append(log: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(log)
}

impl SpawnProblem {
    fn new(code: i32, words: String) -> Self {
        Self { words, end: End::Code(code) }
    }

    fn unknown(who: Unknown) -> Self {
        match who {
            Unknown::User(words) => Self::new(USER, words),
            Unknown::Group(words) => Self::new(GROUP, words),
        }
    }

    fn exec(command: &Command, error: &io::Error) -> Self {
        let program = OsStr::new(&command.program).display();
        Self::of(EXEC, format!("cannot run {program}: {error}"), error)
    }

    /// What the kernel refuses for want of room is not the program's fault.
    fn spawn(command: &Command, surroundings: &Surroundings, why: &NotBegun) -> Self {
        let error = &why.error;
        let problem = match before_the_program(why.step, surroundings) {
            Some((code, what)) => Self::of(code, format!("cannot {what}: {error}"), error),
            None => Self::exec(command, error),
        };
        let scarce = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::QuotaExceeded
        );
        if scarce { Self { end: End::NeverWas, ..problem } } else { problem }
    }

    /// Such a problem, unless it is only that no more files may be open.
    fn of(code: i32, words: String, error: &io::Error) -> Self {
        let is_want = Errno::from_io_error(error).is_some_and(is_want);
        Self { words, end: if is_want { End::NeverWas } else { End::Code(code) } }
    }
}

/// The exit code and the words for a step that comes before the program.
fn before_the_program(step: Step, surroundings: &Surroundings) -> Option<(i32, String)> {
    let (code, what) = match step {
        Step::Begin | Step::Program => return None,
        Step::Output => (STDOUT, "hand it its input and output"),
        Step::Session => (SETSID, "give it a session of its own"),
        Step::Directory => (CHDIR, "enter its working directory"),
        Step::Group => (CGROUP, "move it into its control group"),
        Step::OomScore => (OOM_ADJUST, "set how readily it is ended when memory is short"),
        Step::Limits => (LIMITS, "set its limits"),
        Step::Groups => (GROUP, "change to its groups"),
        Step::Identity => (USER, "change to its user"),
        Step::Nice => {
            let level = surroundings.nice.unwrap_or_default();
            return Some((NICE, format!("set its nice level to {level}")));
        }
    };
    Some((code, what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever our own is.
    #[test]
    fn who_names_no_mask_has_the_usual_one() {
        let usual = preparation(&Surroundings::default());
        assert_eq!(usual.umask, Some(0o022));
        let named = Surroundings { umask: Some(0), ..Surroundings::default() };
        assert_eq!(preparation(&named).umask, Some(0));
    }
}
