//! Resource usage of units and of the host, read from control groups and `/proc`.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

#[cfg(feature = "native")]
use fleet_core::Timestamp;
use fleet_unitfile::{UnitName, UnitType};

#[cfg(feature = "native")]
use crate::wall_time;

/// Maximum number of processes of a unit that are counted without a control group.
const MAX_PROCESSES: usize = 4096;

/// Resources that a unit uses. An amount is `None` if it cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceUsage {
    /// Memory in bytes. In a control group, it includes the page cache.
    pub memory: Option<u64>,
    /// CPU time since the unit was started. It may fall when a process ends, if the unit has no
    /// control group.
    pub cpu: Option<Duration>,
    /// Number of tasks: processes and their threads.
    pub tasks: Option<u64>,
}

impl ResourceUsage {
    /// Reads the usage of a unit with this main process. Blocks for a few reads of virtual files.
    ///
    /// If the unit has its own control group, its usage is that of the group. Otherwise it is the
    /// sum over the main process and its descendants.
    #[must_use]
    pub fn read(unit: &UnitName, main_pid: u32) -> Self {
        match control_group(unit, main_pid) {
            Some(group) => Self::of_group(&group),
            None => Self::of_processes(&process_tree(main_pid)),
        }
    }

    fn of_group(group: &Path) -> Self {
        let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
        let cpu = fs::read_to_string(group.join("cpu.stat")).ok();
        let cpu = cpu.as_deref().and_then(|text| field(text, "usage_usec"));
        let memory = number("memory.current");
        let tasks = number("pids.current");
        let (mut usage, cpu) = (Self { memory, cpu: None, tasks }, cpu.map(Duration::from_micros));
        if memory.is_none() || tasks.is_none() {
            // The controllers are not enabled for the group.
            let processes = Self::of_processes(&pids_of_group(group));
            usage.memory = memory.or(processes.memory);
            usage.tasks = tasks.or(processes.tasks);
        }
        Self { cpu, ..usage }
    }

    /// Returns the sum over processes. Skips those that have ended.
    fn of_processes(pids: &[u32]) -> Self {
        let mut sum = (0, Duration::ZERO, 0);
        let mut is_any = false;
        for process in pids.iter().filter_map(|pid| ProcessUsage::read(*pid).ok()) {
            is_any = true;
            sum = (sum.0 + process.memory, sum.1 + process.cpu, sum.2 + process.threads);
        }
        let (memory, cpu, tasks) = sum;
        match is_any {
            true => Self { memory: Some(memory), cpu: Some(cpu), tasks: Some(tasks) },
            false => Self::default(),
        }
    }
}

/// Returns the unit's own control group: the group of its main process, or one above, whose name
/// begins with the unit's name. `None` if there is none.
fn control_group(unit: &UnitName, main_pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{main_pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = own_group(unit, path)?;
    let group = Path::new("/sys/fs/cgroup").join(path);
    group.join("cpu.stat").exists().then_some(group)
}

/// Returns the part of a group's path up to the unit's own group.
fn own_group<'a>(unit: &UnitName, path: &'a str) -> Option<&'a str> {
    // systemd runs the service that a quadlet describes.
    let service = match unit.unit_type() {
        UnitType::Container => format!("{}.service", unit.as_str().trim_end_matches(".container")),
        _ => unit.to_string(),
    };
    let mut end = 0;
    for component in path.split('/') {
        end += component.len();
        // The native service manager appends the invocation.
        let rest = component.strip_prefix(&*service);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            return Some(&path[..end]);
        }
        end += 1;
    }
    None
}

/// Returns the processes of a group and of the groups below it.
fn pids_of_group(group: &Path) -> Vec<u32> {
    let (mut pids, mut groups) = (Vec::new(), vec![group.to_owned()]);
    while let Some(group) = groups.pop()
        && pids.len() < MAX_PROCESSES
    {
        let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = fs::read_dir(&group).into_iter().flatten().flatten();
        let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        groups.extend(below.filter(is_group).map(|entry| entry.path()));
    }
    pids
}

/// Returns a process with all its descendants.
fn process_tree(main_pid: u32) -> Vec<u32> {
    let (mut pids, mut next) = (vec![main_pid], 0);
    while let Some(pid) = pids.get(next).copied()
        && pids.len() < MAX_PROCESSES
    {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    pids
}

/// Usage of one process.
struct ProcessUsage {
    memory: u64,
    cpu: Duration,
    threads: u64,
}

impl ProcessUsage {
    fn read(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let kilobytes = field(&status, "VmRSS:").unwrap_or_default();
        let threads = field(&status, "Threads:").unwrap_or_default();
        Ok(Self { memory: kilobytes * 1024, cpu: cpu_time(&stat), threads })
    }
}

/// Returns the start time of a process, as in [`wall_time`]; `None` if it has ended.
#[cfg(feature = "native")]
pub(crate) fn process_start(pid: u32) -> Option<Timestamp> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let start = ticks(after_name.split_whitespace().nth(19)?.parse().ok()?);
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let age = Duration::try_from_secs_f64(uptime).ok()?.saturating_sub(start);
    let age = u64::try_from(age.as_millis()).ok()?;
    Some(Timestamp::from_millis(wall_time().as_millis().saturating_sub(age)))
}

/// Returns the CPU time of a process from its `stat` file.
fn cpu_time(stat: &str) -> Duration {
    // The name of the command may contain spaces and parentheses.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let numbers = after_name.split_whitespace().skip(11).take(2);
    ticks(numbers.filter_map(|number| number.parse::<u64>().ok()).sum())
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(count.saturating_mul(1000) / per_second)
}

/// Returns the number after a name at the begin of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Resources of the host, and how much of them is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct HostUsage {
    /// Number of CPUs that this process may use.
    pub cpus: u64,
    /// CPU time of all processes since the boot, over all CPUs.
    pub cpu: Option<Duration>,
    /// Load averages over one, five and fifteen minutes.
    pub load_average: Option<[f64; 3]>,
    /// Memory of the host, in bytes.
    pub memory_total: Option<u64>,
    /// Memory that new processes can use without swapping, in bytes.
    pub memory_available: Option<u64>,
}

impl HostUsage {
    /// Reads the usage of this host. Blocks for a few reads of virtual files.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let memory = text("/proc/meminfo");
        let bytes = |name| Some(field(memory.as_deref()?, name)? * 1024);
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            cpu: text("/proc/stat").as_deref().and_then(busy_time),
            load_average: text("/proc/loadavg").as_deref().and_then(load_average),
            memory_total: bytes("MemTotal:"),
            memory_available: bytes("MemAvailable:"),
        }
    }
}

/// Returns the time in which CPUs were not idle, from `/proc/stat`.
fn busy_time(stat: &str) -> Option<Duration> {
    let cpu = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers = cpu.split_whitespace().map(|number| number.parse::<u64>().ok());
    // user, nice, system, idle, iowait, irq, softirq, steal
    let numbers: Vec<u64> = numbers.take(8).collect::<Option<_>>()?;
    let is_busy = |(at, _): &(usize, &u64)| !matches!(at, 3 | 4);
    Some(ticks(numbers.iter().enumerate().filter(is_busy).map(|(_, ticks)| ticks).sum()))
}

fn load_average(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn own_group_is_found_in_the_path() {
        let name = |unit: &str| unit.parse::<UnitName>().expect("it is a name");
        for (unit, path, expected) in [
            ("a.service", "system.slice/a.service", Some("system.slice/a.service")),
            ("a.service", "fleet-1-2/a.service.0f3c", Some("fleet-1-2/a.service.0f3c")),
            ("a.service", "s.slice/a.service/child/x", Some("s.slice/a.service")),
            ("a.container", "system.slice/a.service/libpod", Some("system.slice/a.service")),
            ("a.service", "user.slice/session-1.scope", None),
            ("a.service", "system.slice/aa.service", None),
            ("a.service", "", None),
        ] {
            assert_eq!(own_group(&name(unit), path), expected, "{path}");
        }
    }

    #[test]
    fn usage_includes_the_children_of_a_process() {
        let script = "sleep 1000 & echo ready; wait";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = [0; 6];
        let output = shell.stdout.as_mut().expect("it is piped");
        io::Read::read_exact(output, &mut line).expect("it writes a line");
        let tree = process_tree(shell.id());
        let usage = ResourceUsage::of_processes(&tree);
        for pid in tree.iter().rev() {
            let pid = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw);
            let pid = pid.expect("it is a PID");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        }
        shell.wait().expect("it is a child");
        assert_eq!((tree.len(), usage.tasks), (2, Some(2)));
        assert!(usage.memory.is_some_and(|bytes| bytes > 0), "{usage:?}");
        let gone = ResourceUsage::of_processes(&[shell.id()]);
        assert_eq!(gone, ResourceUsage::default());
    }

    #[test]
    fn texts_of_the_kernel_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 99";
        assert_eq!(cpu_time(stat), ticks(200));
        assert_eq!(busy_time("cpu  10 1 20 500 30 2 3 4 0 0\n"), Some(ticks(40)));
        assert_eq!(load_average("0.50 1.25 2.00 1/200 4711\n"), Some([0.5, 1.25, 2.0]));
        assert_eq!(field("MemTotal:  16 kB\nMemFree: 5 kB\n", "MemFree:"), Some(5));
        let host = HostUsage::read();
        assert!(host.memory_total > host.memory_available && host.cpus > 0, "{host:?}");
    }
}
