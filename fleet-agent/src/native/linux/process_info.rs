//! Reads the properties of one process.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::clock::pause;

/// Environment variable that assigns a process to a run of a unit.
pub(crate) const INVOCATION_ID: &str = "INVOCATION_ID";

/// Environment variable with the pid of the process that the service manager started. The
/// descendants of that process inherit the variable with the same value.
pub(crate) const SYSTEMD_EXEC_PID: &str = "SYSTEMD_EXEC_PID";

/// Environment variable with the pid of the process for which descriptors are meant.
pub(crate) const LISTEN_PID: &str = "LISTEN_PID";

/// Maximum number of repeated probes, one millisecond apart, of a process that is about to exec or
/// exit.
const MAX_PROBES: usize = 20;

/// Identity of a process, unique even if its process ID is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// Start time, in clock ticks since boot.
    pub(crate) start: u64,
}

/// A running process; a zombie is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessInfo {
    pub(crate) id: ProcessId,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// Invocation ID of its run, if it can be read.
    pub(crate) invocation: Option<String>,
    /// Value of [`SYSTEMD_EXEC_PID`], if it can be read: the pid of this process or of the ancestor
    /// that a service manager started.
    pub(crate) exec_pid: Option<u32>,
}

/// Content of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) process: ProcessInfo,
    /// A zombie has no other properties.
    pub(crate) runs: bool,
    /// The main thread has ended, while others run.
    has_lost_first_thread: bool,
    /// It is a kernel thread.
    is_kernel: bool,
    /// Length of the environment in bytes. `None` at the beginning of an exec, and on kernels that
    /// do not report the length.
    environment: Option<usize>,
}

/// Reads `/proc/PID/stat`.
pub(crate) fn stat(pid: u32) -> io::Result<Result<Stat, Unreadable>> {
    // Longer than any content, so one read is enough: this happens at the start of each process.
    let mut text = [0; 4096];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut it| it.read(&mut text));
    let parsed = |length| parse_stat(pid, &String::from_utf8_lossy(text.get(..length)?));
    Ok(read_result(read)?.and_then(|length| parsed(length).ok_or(Unreadable::Hidden)))
}

/// Reason why a process cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// There is no process with this pid.
    Gone,
    /// Permission is denied.
    Hidden,
}

/// Separates two kinds of read errors. Errors caused by the examined process become the inner
/// `Err`. A lack of descriptors or memory in this daemon becomes the outer `Err`.
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

/// Parses `/proc/PID/stat`. The program name is in brackets and may itself contain brackets and
/// spaces, so fields are counted from the last closing bracket. Returns `None` if a field is
/// missing.
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

/// Computes the length of the environment from its start and end addresses.
///
/// Returns `None` at the beginning of an exec. At that time both addresses are still the start of
/// the environment, which looks like a length of zero. The kernel then has not yet set the end
/// address of the code, so a missing end address shows this case.
fn environment_length(fields: &[&str]) -> Option<usize> {
    let address =
        |field: usize| fields.get(field)?.parse::<usize>().ok().filter(|&address| address > 0);
    address(24).and_then(|_end_of_code| address(48)?.checked_sub(address(47)?))
}

/// Result of a probe of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Running(ProcessInfo),
    /// The process runs, but its environment currently cannot be read: the process is at the
    /// beginning of an exec, or about to exit.
    Transient(ProcessInfo),
    /// The process cannot belong to a unit.
    Irrelevant,
    /// The process has ended, and has not been reaped yet.
    Zombie,
    /// There is no process with this pid any more.
    Gone,
}

/// Maximum number of reads of an environment whose length differs from the reported one. Either an
/// exec is replacing the environment, or a part of it can never be read.
const MAX_READS: usize = 4;

/// Probes a process.
pub(crate) fn probe(pid: u32) -> io::Result<ProbeResult> {
    let mut result = probe_once(pid)?;
    for _ in 1..MAX_READS {
        match result {
            Ok(probe) => return Ok(probe),
            Err(_) => result = probe_once(pid)?,
        }
    }
    Ok(result.unwrap_or_else(|as_far_as_it_goes| as_far_as_it_goes))
}

/// Returns the result, or as an error the part that could be read.
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
        Ok(variables) if is_complete(&variables, stat.environment)? => {
            Ok(ProbeResult::Running(stat.process.with_environment(&variables)))
        }
        Ok(variables) if stat.environment.is_some() => {
            Err(ProbeResult::Running(stat.process.with_environment(&variables)))
        }
        _ => Ok(ProbeResult::Transient(stat.process)),
    })
}

/// Probes a process whose main thread has ended. The environment is read from another thread of the
/// process, since all threads share it.
///
/// If no thread has an environment any more, the process is about to end, and the result is
/// `Transient`. A caller that lists all processes then reads the list again, because this process
/// may have left children behind.
fn probe_threads(process: ProcessInfo) -> io::Result<ProbeResult> {
    let pid = process.id.pid;
    let Ok(threads) = read_result(std::fs::read_dir(format!("/proc/{pid}/task")))? else {
        return Ok(ProbeResult::Gone);
    };
    for thread in threads {
        let Ok(thread) = read_result(thread)? else { return Ok(ProbeResult::Gone) };
        let thread = thread.file_name();
        match environment(format_args!("{pid}/task/{}", thread.display()))? {
            // Some kernels return an empty environment instead of an error.
            Ok(variables) if variables.is_empty() => {}
            Ok(variables) => return Ok(ProbeResult::Running(process.with_environment(&variables))),
            Err(Unreadable::Hidden) => return Ok(ProbeResult::Running(process)),
            Err(Unreadable::Gone) => {}
        }
    }
    Ok(ProbeResult::Transient(process))
}

/// Returns whether the environment was read completely, judged by the length that the kernel
/// reports. A read may stop early, even at the start, if the process executes a program at that
/// time. On a kernel that reports no lengths, every read counts as complete.
fn is_complete(variables: &[u8], length: Option<usize>) -> io::Result<bool> {
    static REPORTS_LENGTH: OnceLock<bool> = OnceLock::new();
    if length == Some(variables.len()) {
        return Ok(true);
    }
    let reports_length = match REPORTS_LENGTH.get() {
        Some(reports) => *reports,
        None => match stat(std::process::id())? {
            Ok(own) => *REPORTS_LENGTH.get_or_init(|| own.environment.is_some()),
            Err(_) => false,
        },
    };
    Ok(!reports_length)
}

/// Probes a process, and repeats the probe at most [`MAX_PROBES`] times while the result is
/// `Transient`.
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

/// Reads the environment of a process, or of a thread given as `PID/task/TID`.
fn environment(of: std::fmt::Arguments<'_>) -> io::Result<Result<Vec<u8>, Unreadable>> {
    read_result(std::fs::read(format!("/proc/{of}/environ")))
}

/// Returns the value of a variable in an environment in the kernel's format.
fn value(environment: &[u8], name: &str) -> Option<String> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_shortage_is_not_process_exit() {
        let errno = |no: Errno| read_result::<()>(Err(no.into()));
        assert!(errno(Errno::MFILE).is_err());
        assert!(matches!(errno(Errno::NOENT), Ok(Err(Unreadable::Gone))));
        assert!(matches!(errno(Errno::SRCH), Ok(Err(Unreadable::Gone))));
        assert!(matches!(errno(Errno::ACCESS), Ok(Err(Unreadable::Hidden))));
    }

    #[test]
    fn stat_line_with_odd_program_name_parses() {
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
        // Its main thread has ended, and another one has not.
        let others = line.replace(" S ", " Z ").replace(" 20 0 1 ", " 20 0 2 ");
        let others = parse_stat(7, &others).expect("it is well formed");
        assert!(others.runs && others.has_lost_first_thread);
        assert!(parse_stat(7, &line.replace("4194560", "2129984")).expect("it is so").is_kernel);
        assert_eq!(parse_stat(7, "7 (a"), None);
    }

    #[test]
    fn own_environment_is_read_completely() {
        let own = std::process::id();
        let variables = environment(format_args!("{own}")).expect("it can be read");
        let length = variables.map(|it| it.len()).ok();
        let stat = stat(own).expect("it can be read").expect("it runs");
        assert_eq!((stat.process.id.pid, stat.environment), (own, length));
        assert_eq!(probe(u32::MAX).expect("no error is expected"), ProbeResult::Gone);
    }

    /// Helper process with a second thread: runs forever if the variable `LOOKED_AT` is set. As a
    /// normal test it does nothing.
    #[test]
    fn helper_process_with_second_thread() {
        if std::env::var_os("LOOKED_AT").is_some() {
            loop {
                std::thread::park();
            }
        }
    }

    /// Kills its process when dropped, also after a failed assertion.
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

    /// Listing all processes did not terminate while such a process existed.
    #[test]
    fn process_with_ended_threads_is_transient() {
        use nix::sys::wait::{WaitPidFlag, waitpid};
        let mut itself = std::process::Command::new(std::env::current_exe().expect("it is one"));
        let helper = "native::linux::process_info::tests::helper_process_with_second_thread";
        itself.args(["--exact", helper]).env("LOOKED_AT", "1");
        let child = itself.stdout(std::process::Stdio::null()).spawn().expect("it can run");
        let (pid, mut child) = (child.id(), Killed(child));
        let second = i32::try_from(second_thread(&mut child.0)).expect("it is small");
        let second = nix::unistd::Pid::from_raw(second);
        // A traced thread stays after its end.
        nix::sys::ptrace::seize(second, nix::sys::ptrace::Options::empty())
            .expect("the directory belongs to this user");
        child.0.kill().expect("it is a child");
        let thread = format!("/proc/{pid}/task/{second}/stat");
        let has_ended = || std::fs::read_to_string(&thread).expect("it is held").contains(") Z ");
        while !(has_ended() && matches!(stat(pid), Ok(Ok(it)) if it.has_lost_first_thread)) {
            std::thread::yield_now();
        }
        let (result, all) = (probe(pid), super::super::process_table::read_all());
        waitpid(second, Some(WaitPidFlag::__WALL)).expect("the directory belongs to this user");
        let is_it = |process: &ProcessInfo| process.id.pid == pid && process.invocation.is_none();
        assert!(
            matches!(&result, Ok(ProbeResult::Transient(process)) if is_it(process)),
            "{result:?}"
        );
        assert!(all.expect("it terminates").iter().any(is_it));
    }

    #[test]
    fn threads_share_the_environment() {
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
