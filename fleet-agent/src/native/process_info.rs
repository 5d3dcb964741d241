//! What there is to see of one process.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;

use super::run_state::ProcessId;
use crate::clock::pause;

/// The variable by which a process is known to belong to a run of a unit.
pub(crate) const INVOCATION_ID: &str = "INVOCATION_ID";

/// The variable that tells a process its own number if the service manager has exec_pid it, and all
/// that it begins in turn the number of that one.
pub(crate) const SYSTEMD_EXEC_PID: &str = "SYSTEMD_EXEC_PID";

/// How often one process is looked at, a millisecond apart, that is about to execute a program, or
/// to end.
const MAX_PROBES: usize = 20;

/// A process that runs; one that has ended and waits for its parent does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessInfo {
    pub(crate) id: ProcessId,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// The run of a unit that it was started in, as far as it can be seen.
    pub(crate) invocation: Option<String>,
    /// The process that a service manager began, of which this one is or wait_readable, as far as it can
    /// be seen.
    pub(crate) exec_pid: Option<u32>,
}

/// What the kernel tells of a process in one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) process: ProcessInfo,
    /// Of one that has ended nothing is left but this.
    pub(crate) runs: bool,
    /// Its first thread has ended, while others go on.
    has_lost_first_thread: bool,
    /// It is a part of the kernel.
    is_kernel: bool,
    /// How long its environment is, in bytes; nothing while it begins to execute a program, and
    /// where the kernel does not tell.
    environment: Option<usize>,
}

/// What the kernel tells of the process of that number.
pub(crate) fn stat(pid: u32) -> io::Result<Result<Stat, Unreadable>> {
    // Longer than any, and read at once: this is done at the start of each process.
    let mut text = [0; 4096];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut it| it.read(&mut text));
    let parsed = |length| parse_stat(pid, &String::from_utf8_lossy(text.get(..length)?));
    Ok(read_result(read)?.and_then(|length| parsed(length).ok_or(Unreadable::Hidden)))
}

/// Why nothing is told of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// There is none of that number.
    Gone,
    /// It is not ours to see.
    Hidden,
}

/// What was read of a process. That this daemon has no more files or memory says nothing of it.
fn read_result<T>(read: io::Result<T>) -> io::Result<Result<T, Unreadable>> {
    let error = match read {
        Ok(read) => return Ok(Ok(read)),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
        Some(Errno::NOENT | Errno::SRCH) => Ok(Err(Unreadable::Gone)),
        _ => Ok(Err(Unreadable::Hidden)),
    }
}

/// The kernel's `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// Reads a line of `/proc/PID/stat`. The name of the program stands in brackets and may hold
/// anything, so what follows is counted from the last bracket.
fn parse_stat(pid: u32, text: &str) -> Option<Stat> {
    let (_, after) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<u32>().ok();
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x");
    let has_lost_first_thread = has_ended && number(17)? > 1;
    let id = ProcessId { pid, start: fields.get(19)?.parse().ok()? };
    let (parent, group) = (number(1)?, number(2)?);
    Some(Stat {
        process: ProcessInfo { id, parent, group, invocation: None, exec_pid: None },
        runs: !has_ended || has_lost_first_thread,
        has_lost_first_thread,
        is_kernel: number(6)? & KERNEL_THREAD != 0,
        environment: environment_length(&fields),
    })
}

/// From its beginning to its end. The kernel sets both to the beginning at first, and tells where
/// the program's code ends after that.
fn environment_length(fields: &[&str]) -> Option<usize> {
    let place = |field: usize| fields.get(field)?.parse::<usize>().ok().filter(|&place| place > 0);
    place(24).and_then(|_end_of_code| place(48)?.checked_sub(place(47)?))
}

/// What there is to see of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Running(ProcessInfo),
    /// It runs, and its environment could not be seen: it begins to execute a program, or is about
    /// to end.
    Transient(ProcessInfo),
    /// It is none that could be a unit's.
    Irrelevant,
    /// It has ended, and nobody has waited for it yet.
    Zombie,
    /// There is none of that number any more.
    Gone,
}

/// How often an environment is read that does not come out as long as the kernel says: it is being
/// replaced, or there is a place in it that cannot be read at all.
const MAX_READS: usize = 4;

/// Looks at the process of that number.
pub(crate) fn probe(pid: u32) -> io::Result<ProbeResult> {
    let mut seen = probe_once(pid)?;
    for _ in 1..MAX_READS {
        match seen {
            Ok(probe) => return Ok(probe),
            Err(_) => seen = probe_once(pid)?,
        }
    }
    Ok(seen.unwrap_or_else(|as_far_as_it_goes| as_far_as_it_goes))
}

/// What there is to see, or as much as could be seen of it.
fn probe_once(pid: u32) -> io::Result<Result<ProbeResult, ProbeResult>> {
    let variables = environment(format_args!("{pid}"))?;
    let stat = match stat(pid)? {
        Ok(stat) if stat.has_lost_first_thread => return probe_threads(stat.process).map(Ok),
        Ok(stat) => stat,
        Err(Unreadable::Hidden) => return Ok(Ok(ProbeResult::Irrelevant)),
        Err(Unreadable::Gone) => return Ok(Ok(ProbeResult::Gone)),
    };
    Ok(match variables {
        _ if !stat.runs => Ok(ProbeResult::Zombie),
        _ if stat.is_kernel => Ok(ProbeResult::Irrelevant),
        Err(Unreadable::Hidden) => Ok(ProbeResult::Running(stat.process)),
        Ok(variables) if is_whole(&variables, stat.environment)? => {
            Ok(ProbeResult::Running(stat.process.with_environment(&variables)))
        }
        Ok(variables) if stat.environment.is_some() => {
            Err(ProbeResult::Running(stat.process.with_environment(&variables)))
        }
        _ => Ok(ProbeResult::Transient(stat.process)),
    })
}

/// Looks at a process whose first thread has ended: the others show the same environment. Where
/// none does they are about to end, which takes its time. Whoever was born of them is on the next
/// list.
fn probe_threads(process: ProcessInfo) -> io::Result<ProbeResult> {
    let pid = process.id.pid;
    let Ok(threads) = read_result(std::fs::read_dir(format!("/proc/{pid}/task")))? else {
        return Ok(ProbeResult::Gone);
    };
    for thread in threads {
        let Ok(thread) = read_result(thread)? else { return Ok(ProbeResult::Gone) };
        let thread = thread.file_name();
        match environment(format_args!("{pid}/task/{}", thread.display()))? {
            // Some kernels show none where others say that there is none.
            Ok(variables) if variables.is_empty() => {}
            Ok(variables) => return Ok(ProbeResult::Running(process.with_environment(&variables))),
            Err(Unreadable::Hidden) => return Ok(ProbeResult::Running(process)),
            Err(Unreadable::Gone) => {}
        }
    }
    Ok(ProbeResult::Transient(process))
}

/// Whether that is all of an environment that is so long. What is read breaks off, and may do so
/// before its beginning, where the process has executed a program meanwhile.
fn is_whole(variables: &[u8], length: Option<usize>) -> io::Result<bool> {
    static IS_TOLD: OnceLock<bool> = OnceLock::new();
    if length == Some(variables.len()) {
        return Ok(true);
    }
    let is_told = match IS_TOLD.get() {
        Some(told) => *told,
        None => match stat(std::process::id())? {
            Ok(own) => *IS_TOLD.get_or_init(|| own.environment.is_some()),
            Err(_) => false,
        },
    };
    Ok(!is_told)
}

/// Looks at the process of that number until it has become what it becomes, if that is soon.
pub(crate) fn probe_until_settled(pid: u32) -> io::Result<ProbeResult> {
    for _ in 0..MAX_PROBES {
        let result = probe(pid)?;
        if !matches!(result, ProbeResult::Transient(_)) {
            return Ok(result);
        }
        pause(Duration::from_millis(1));
    }
    probe(pid)
}

impl ProcessInfo {
    fn with_environment(self, variables: &[u8]) -> Self {
        let exec_pid = value(variables, SYSTEMD_EXEC_PID).and_then(|number| number.parse().ok());
        Self { invocation: value(variables, INVOCATION_ID), exec_pid, ..self }
    }
}

/// What a process was given as its environment, or one of its threads, which is named so below
/// `/proc`.
fn environment(of: std::fmt::Arguments<'_>) -> io::Result<Result<Vec<u8>, Unreadable>> {
    read_result(std::fs::read(format!("/proc/{of}/environ")))
}

/// The value of a variable in an environment as the kernel tells it.
fn value(environment: &[u8], name: &str) -> Option<String> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_files_is_not_the_end_of_a_process() {
        let errno = |no: Errno| read_result::<()>(Err(no.into()));
        assert!(errno(Errno::MFILE).is_err());
        assert!(matches!(errno(Errno::NOENT), Ok(Err(Unreadable::Gone))));
        assert!(matches!(errno(Errno::SRCH), Ok(Err(Unreadable::Gone))));
        assert!(matches!(errno(Errno::ACCESS), Ok(Err(Unreadable::Hidden))));
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let line = "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 2";
        let Stat { process, runs, is_kernel, .. } = parse_stat(7, line).expect("it is well formed");
        assert_eq!((process.id.start, process.parent, process.group), (4711, 1, 7));
        assert_eq!((runs, is_kernel), (true, false));
        let ended = parse_stat(7, &line.replace(" S ", " Z ")).expect("it is well formed");
        assert_eq!((ended.process, ended.runs), (process, false));
        assert_eq!(ended.environment, None);
        let long = format!("{line}{} 140 147 0", " 8".repeat(25));
        assert_eq!(parse_stat(7, &long).expect("it is well formed").environment, Some(7));
        for (text, before) in [("140 147", "0 0"), (" 8 8 8 8", " 8 8 0 8")] {
            let becomes =
                parse_stat(7, &long.replacen(text, before, 1)).expect("it is well formed");
            assert_eq!(becomes.environment, None, "{before}");
        }
        // Its first thread has ended, and another has not.
        let others = line.replace(" S ", " Z ").replace(" 20 0 1 ", " 20 0 2 ");
        let others = parse_stat(7, &others).expect("it is well formed");
        assert!(others.runs && others.has_lost_first_thread);
        assert!(parse_stat(7, &line.replace("4194560", "2129984")).expect("it is so").is_kernel);
        assert_eq!(parse_stat(7, "7 (a"), None);
    }

    #[test]
    fn this_very_process_shows_what_it_was_given() {
        let own = std::process::id();
        let variables = environment(format_args!("{own}")).expect("it can be read");
        let length = variables.map(|it| it.len()).ok();
        let stat = stat(own).expect("it can be read").expect("it runs");
        assert_eq!((stat.process.id.pid, stat.environment), (own, length));
        assert_eq!(probe(u32::MAX).expect("nothing is in the way"), ProbeResult::Gone);
    }

    /// A process with a second thread, if it is told to be one. By itself it does nothing.
    #[test]
    fn one_to_be_looked_at() {
        if std::env::var_os("LOOKED_AT").is_some() {
            loop {
                std::thread::park();
            }
        }
    }

    /// A process that is killed whatever becomes of the test.
    struct Killed(std::process::Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).expect("it is a child");
        }
    }

    fn second_thread(child: &mut std::process::Child) -> u32 {
        let number = |it: std::fs::DirEntry| it.file_name().to_str()?.parse::<u32>().ok();
        loop {
            let ended = child.try_wait().expect("it is a child");
            assert_eq!(ended, None, "it has ended by itself");
            let all = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("it runs");
            if let Some(thread) = all.flatten().filter_map(number).find(|&it| it != child.id()) {
                return thread;
            }
            std::thread::yield_now();
        }
    }

    /// The list of all processes never came to its end as long as such a one was on it.
    #[test]
    fn one_whose_threads_have_all_ended_is_about_to_end() {
        use nix::sys::wait::{WaitPidFlag, waitpid};
        let mut itself = std::process::Command::new(std::env::current_exe().expect("it is one"));
        itself
            .args(["--exact", "native::process_info::tests::one_to_be_looked_at"])
            .env("LOOKED_AT", "1");
        let child = itself.stdout(std::process::Stdio::null()).spawn().expect("it can run");
        let (pid, mut child) = (child.id(), Killed(child));
        let second = i32::try_from(second_thread(&mut child.0)).expect("it is small");
        let second = nix::unistd::Pid::from_raw(second);
        // Who traces a thread has it stay when it has ended.
        nix::sys::ptrace::seize(second, nix::sys::ptrace::Options::empty()).expect("it is ours");
        child.0.kill().expect("it is a child");
        let thread = format!("/proc/{pid}/task/{second}/stat");
        let has_ended = || std::fs::read_to_string(&thread).expect("it is held").contains(") Z ");
        while !(has_ended() && matches!(stat(pid), Ok(Ok(it)) if it.has_lost_first_thread)) {
            std::thread::yield_now();
        }
        let (seen, all) = (probe(pid), super::super::process_table::read_all());
        waitpid(second, Some(WaitPidFlag::__WALL)).expect("it is ours");
        let is_it = |process: &ProcessInfo| process.id.pid == pid && process.invocation.is_none();
        assert!(matches!(&seen, Ok(ProbeResult::Transient(process)) if is_it(process)), "{seen:?}");
        assert!(all.expect("it comes to its end").iter().any(is_it));
    }

    #[test]
    fn each_thread_shows_what_its_process_was_given() {
        let mut shell = std::process::Command::new("/bin/sleep");
        let mut child = shell.arg("1000").env(INVOCATION_ID, "a").spawn().expect("there is one");
        let Ok(ProbeResult::Running(process)) = probe_until_settled(child.id()) else {
            panic!("it runs")
        };
        assert_eq!(process.invocation.as_deref(), Some("a"));
        let unseen = ProcessInfo { invocation: None, ..process.clone() };
        let by_threads = probe_threads(unseen).expect("they can be read");
        child.kill().and_then(|()| child.wait()).expect("it is a child");
        assert_eq!(by_threads, ProbeResult::Running(process));
    }
}
