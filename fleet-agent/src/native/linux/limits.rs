//! Limits: of the open files of this process, of which each running unit needs some, and of the
//! control group of a unit.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

use fleet_core::graph::cgroup_filters::{CgroupFilters, DevicePattern, DevicePolicy, DeviceRule};
use fleet_core::graph::sandbox::SandboxSwitch;
use fleet_core::graph::{Amount, ResourceLimits, Run};
use nix::libc;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Soft limit before it was raised.
static INITIAL_SOFT_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// The reserve of open files is the limit divided by `SHARE`, but at least `MIN_RESERVE` and at
/// most `MAX_RESERVE`. No unit is started while fewer files can still be opened.
const SHARE: u64 = 8;
const MIN_RESERVE: u64 = 16;
const MAX_RESERVE: u64 = 128;

/// Raises this process's soft limit of open files to the hard limit. Units still start with the
/// original soft limit, because some programs perform worse with a higher one. Programs that need a
/// higher limit can raise it themselves. This function is for programs, not for libraries.
///
/// # Errors
///
/// The kernel refuses the new limit, for example because the machine-wide maximum was lowered below
/// the hard limit.
pub fn raise_file_limit() -> io::Result<()> {
    let found = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found })?;
    // On a second call the limit is already raised.
    INITIAL_SOFT_LIMIT.get_or_init(|| found.current);
    Ok(())
}

/// Returns the limit of open files for units that set none. Its soft limit is the one that this
/// process had before [`raise_file_limit`]. Returns `None` if that function was never called: the
/// units then inherit the limit of this process.
pub(crate) fn unit_nofile_limit() -> Option<Rlimit> {
    let found = *INITIAL_SOFT_LIMIT.get()?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    Some(Rlimit { current: found.into_iter().chain(maximum).min(), maximum })
}

/// Returns a message if too few descriptors are left to start a unit. The remaining descriptors are
/// reserved for stopping units and for status requests.
pub(crate) fn descriptor_shortage() -> Option<String> {
    shortage(1)
}

/// Returns an error if too few descriptors are left to recover another unit, after `units` have
/// been recovered. With fewer descriptors, the daemon could neither answer requests nor stop units.
///
/// This check keeps only half of the reserve that the start of a unit has to leave. Otherwise an
/// earlier daemon could have left more running units than this daemon may recover.
pub(crate) fn check_descriptors_left(units: usize) -> io::Result<()> {
    let message =
        |why| format!("only {units} units could be recovered, and more are running: {why}");
    shortage(2).map_or(Ok(()), |why| Err(io::Error::other(message(why))))
}

/// Returns a message if fewer descriptors are free than the fraction `1 / part` of the reserve, and
/// `None` otherwise.
fn shortage(part: u64) -> Option<String> {
    let most = getrlimit(Resource::Nofile).current?;
    let free = most.saturating_sub((most / SHARE).clamp(MIN_RESERVE, MAX_RESERVE) / part);
    // The kernel returns the lowest free number.
    let is_scarce = match fcntl_dupfd_cloexec(io::stdin(), 0) {
        Ok(next) => u64::try_from(next.as_raw_fd()).is_ok_and(|next| next >= free),
        Err(error) => is_out_of_descriptors(error),
    };
    let hint = "raise LimitNOFILE= or ulimit -n";
    let message = || format!("the limit of {most} open files is nearly reached: {hint}");
    is_scarce.then(message)
}

/// Whether this process, or the machine, cannot open more files.
pub(crate) fn is_out_of_descriptors(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}

/// Marks every descriptor except stdin, stdout and stderr as close-on-exec, including descriptors
/// inherited from the parent process. Otherwise all units would inherit these descriptors, even
/// units that run as another user. This function is for programs, not for libraries.
///
/// # Errors
///
/// The kernel is older than version 5.11, so `close_range` cannot set this flag.
pub fn set_cloexec_on_all() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: the arguments are plain numbers. It changes a flag of descriptors that only matters
    // on exec, and closes none.
    #[expect(unsafe_code, reason = "no library that we use marks all descriptors at once")]
    let answer =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Settings of the control group of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CgroupLimits {
    pub(crate) settings: Vec<CgroupSetting>,
    pub(crate) filters: CgroupFilters,
}

impl CgroupLimits {
    /// Returns the settings for a unit. `has_filters` is whether the kernel can filter devices.
    pub(crate) fn new(run: &Run, has_filters: bool) -> Self {
        let mut filters = run.cgroup_filters.clone();
        let sandbox = &run.exec_environment.sandbox;
        if has_filters && sandbox.has(SandboxSwitch::PrivateDevices) {
            filters.device_policy = match filters.device_policy {
                DevicePolicy::Auto => DevicePolicy::Closed,
                policy => policy,
            };
        }
        if has_filters && sandbox.has(SandboxSwitch::ProtectClock) {
            let device = DevicePattern::Char("rtc".to_owned());
            filters.devices.push(DeviceRule { device, read: true, write: false, create: false });
        }
        Self { settings: settings(&run.resources), filters }
    }
}

/// One limit of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupSetting {
    /// The option that sets it.
    pub(crate) option: &'static str,
    /// The controller that it needs.
    pub(crate) controller: &'static str,
    /// The file to which it is written.
    pub(crate) file: &'static str,
    pub(crate) value: String,
}

/// Period of the CPU quota in microseconds, which is the kernel's default.
const PERIOD: u64 = 100_000;

/// Returns all limits that are set.
pub(crate) fn settings(resources: &ResourceLimits) -> Vec<CgroupSetting> {
    let plain = |value: u64| value.to_string();
    // The quota is in hundredths of a percent of one processor.
    let quota = |value: u64| format!("{} {PERIOD}", value.saturating_mul(PERIOD / 10_000));
    let share = |value: u64| format!("default {value}");
    let it = resources;
    let memory = |amount: Option<Amount>| amount.map(|amount| absolute(amount, memory_total));
    let tasks = it.tasks_max.map(|amount| absolute(amount, tasks_total));
    [
        (memory(it.memory_max), "MemoryMax", "memory", "memory.max", plain as fn(u64) -> String),
        (memory(it.memory_high), "MemoryHigh", "memory", "memory.high", plain),
        (tasks, "TasksMax", "pids", "pids.max", plain),
        (it.cpu_weight, "CPUWeight", "cpu", "cpu.weight", plain),
        (it.cpu_quota, "CPUQuota", "cpu", "cpu.max", quota),
        (it.io_weight, "IOWeight", "io", "io.weight", share),
    ]
    .into_iter()
    .filter_map(|(value, option, controller, file, words)| {
        Some(CgroupSetting { option, controller, file, value: words(value?) })
    })
    .collect()
}

fn absolute(amount: Amount, total: fn() -> u64) -> u64 {
    match amount {
        Amount::Absolute(amount) => amount,
        Amount::Share(share) => {
            let amount = u128::from(total()) * u128::from(share) / 10_000;
            u64::try_from(amount).unwrap_or(u64::MAX)
        }
    }
}

/// Returns the memory of the machine in bytes.
fn memory_total() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram.saturating_mul(found.mem_unit.into())
}

/// Returns the maximum number of processes and threads of the machine.
fn tasks_total() -> u64 {
    let read = |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
    let limits = ["pid_max", "threads-max"].into_iter().filter_map(read);
    limits.filter_map(|text| text.trim().parse().ok()).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_of_the_total() {
        assert_eq!(absolute(Amount::Share(1250), || 8 << 30), 1 << 30);
        assert!(absolute(Amount::Share(10_000), memory_total) > 1 << 20);
        assert!(absolute(Amount::Share(10_000), tasks_total) > 100);
    }

    #[test]
    fn settings_use_kernel_format() {
        assert_eq!(settings(&ResourceLimits::default()), []);
        let resources = ResourceLimits {
            memory_max: Some(Amount::Absolute(1 << 30)),
            memory_high: Some(Amount::Absolute(5)),
            tasks_max: Some(Amount::Absolute(7)),
            cpu_weight: Some(200),
            cpu_quota: Some(15_000),
            io_weight: Some(50),
        };
        let formatted =
            settings(&resources).into_iter().map(|it| format!("{} {}", it.file, it.value));
        assert_eq!(
            formatted.collect::<Vec<_>>(),
            [
                "memory.max 1073741824",
                "memory.high 5",
                "pids.max 7",
                "cpu.weight 200",
                "cpu.max 150000 100000",
                "io.weight default 50",
            ]
        );
    }
}
