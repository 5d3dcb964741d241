//! Conditions on control groups and on the use of resources.

use fleet_core::graph::condition::{PressureLimit, SizeLimit};

use super::machine::Machine;

const ROOT: &str = "/sys/fs/cgroup";

/// Controllers of version 1 and of version 2 that count.
const CONTROLLERS_V1: [&str; 6] = ["cpu", "cpuacct", "blkio", "memory", "devices", "pids"];
const CONTROLLERS_V2: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// Further names that systemd knows, but never reports as available here.
const OTHER_CONTROLLERS: [&str; 5] = [
    "bpf-firewall",
    "bpf-devices",
    "bpf-foreign",
    "bpf-socket-bind",
    "bpf-restrict-network-interfaces",
];

/// Groups of systemd itself below the root of all groups.
const GROUPS_BELOW_ROOT: [&str; 3] = ["/init.scope", "/system.slice", "/system"];

impl Machine {
    /// Evaluates `ConditionControlGroupController=`.
    pub(super) fn has_controllers(&self, wanted: &str) -> bool {
        match wanted {
            "v1" => return !self.has_unified_cgroups(),
            "v2" => return self.has_unified_cgroups(),
            _ => {}
        }
        let is_known = |name: &&str| {
            CONTROLLERS_V1.contains(name)
                || CONTROLLERS_V2.contains(name)
                || OTHER_CONTROLLERS.contains(name)
        };
        // Controllers that systemd does not know are no obstacle.
        wanted.split_whitespace().filter(is_known).all(|name| self.has_controller(name))
    }

    fn has_controller(&self, name: &str) -> bool {
        if !self.has_unified_cgroups() {
            return CONTROLLERS_V1.contains(&name) && self.exists(&format!("{ROOT}/{name}"));
        }
        let path = format!("{ROOT}{}/cgroup.controllers", self.root_group().unwrap_or_default());
        let available = self.read(&path).unwrap_or_default();
        CONTROLLERS_V2.contains(&name) && available.split_whitespace().any(|it| it == name)
    }

    /// Returns whether the machine uses version 2 of control groups alone.
    pub(super) fn has_unified_cgroups(&self) -> bool {
        self.exists(&format!("{ROOT}/cgroup.controllers"))
    }

    /// Returns the group that contains all groups of the first process, without a slash at the end.
    fn root_group(&self) -> Option<String> {
        let groups = self.read("/proc/1/cgroup")?;
        let find = |start: &str| groups.lines().find_map(|line| line.strip_prefix(start));
        let named = || groups.lines().find_map(|line| line.split_once(":name=systemd:"));
        let group = match find("0::") {
            Some(group) if self.has_unified_cgroups() => group,
            _ => named()?.1,
        };
        let parent = GROUPS_BELOW_ROOT.iter().find_map(|end| group.strip_suffix(end));
        Some(parent.unwrap_or(group).trim_end_matches('/').to_owned())
    }

    /// Evaluates `ConditionMemory=`.
    pub(super) fn has_memory(&self, limit: &str) -> Option<bool> {
        Some(SizeLimit::parse(limit)?.holds(self.memory()?))
    }

    /// Returns the memory of the machine, or that of the container if it is less.
    fn memory(&self) -> Option<u64> {
        let total = self.field("/proc/meminfo", "MemTotal:")?;
        let total = total.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
        let limit = self.root_group().and_then(|group| {
            let path = if self.has_unified_cgroups() {
                format!("{ROOT}{group}/memory.max")
            } else {
                format!("{ROOT}/memory{group}/memory.limit_in_bytes")
            };
            self.line(&path)?.parse::<u64>().ok()
        });
        Some(limit.map_or(total, |limit| total.min(limit)))
    }

    /// Evaluates the pressure of a resource. A pressure that the kernel does not report is no
    /// obstacle.
    pub(super) fn is_pressure_low(&self, resource: &str, limit: &str) -> Option<bool> {
        let limit = PressureLimit::parse(limit)?;
        if !self.exists("/proc/pressure") {
            return Some(true);
        }
        let path = match &limit.slice {
            None => format!("/proc/pressure/{resource}"),
            Some(_) if !self.has_unified_cgroups() || !self.has_controller(resource) => {
                return Some(true);
            }
            Some(slice) => {
                let root = self.root_group().unwrap_or_default();
                format!("{ROOT}{root}/{slice}/{resource}.pressure")
            }
        };
        if !self.exists(&path) {
            return Some(true);
        }
        // Older kernels do not report how long all processes wait for a processor.
        let averages = self.field(&path, "full ").or_else(|| self.field(&path, "some "))?;
        let mut averages = averages.split(' ').filter_map(|word| word.split_once('='));
        let (_, average) = averages.find(|(name, _)| *name == limit.average)?;
        let (whole, fraction) = average.split_once('.')?;
        let hundredths = whole.parse::<u32>().ok()?.checked_mul(100)?;
        Some(hundredths + fraction.parse::<u32>().ok()? <= limit.permyriad)
    }
}
