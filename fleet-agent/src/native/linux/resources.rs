//! Pure: no I/O, no clock. Converts the resource limits of a unit to the kernel's format.

use fleet_core::graph::ResourceLimits;

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
    [
        (it.memory_max, "MemoryMax", "memory", "memory.max", plain as fn(u64) -> String),
        (it.memory_high, "MemoryHigh", "memory", "memory.high", plain),
        (it.tasks_max, "TasksMax", "pids", "pids.max", plain),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_use_kernel_format() {
        assert_eq!(settings(&ResourceLimits::default()), []);
        let resources = ResourceLimits {
            memory_max: Some(1 << 30),
            memory_high: Some(5),
            tasks_max: Some(7),
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
