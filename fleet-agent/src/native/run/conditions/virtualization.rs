//! Detection of virtual machines, containers and user namespaces, as `systemd-detect-virt` does it.

use std::fs;

use fleet_unitfile::values::parse_bool;

use super::machine::Machine;

/// A kind of virtualization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Virtualization {
    Container(&'static str),
    Vm(&'static str),
}

use Virtualization::{Container, Vm};

/// Names of hypervisors, as the processor reports them.
const HYPERVISORS: [(&str, &str); 10] = [
    ("XenVMMXenVMM", "xen"),
    ("KVMKVMKVM", "kvm"),
    ("Linux KVM Hv", "kvm"),
    ("TCGTCGTCGTCG", "qemu"),
    ("VMwareVMware", "vmware"),
    ("Microsoft Hv", "microsoft"),
    ("bhyve bhyve ", "bhyve"),
    ("QNXQVMBSQG", "qnx"),
    ("ACRNACRNACRN", "acrn"),
    ("SRESRESRESRE", "sre"),
];

/// Descriptions of the hardware, in the order in which they count.
const DMI_FILES: [&str; 5] =
    ["product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version"];

/// Starts of descriptions of virtual hardware.
const DMI_VENDORS: [(&str, &str); 15] = [
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
];

/// Names by which container managers introduce themselves.
const CONTAINERS: [&str; 9] =
    ["lxc", "lxc-libvirt", "systemd-nspawn", "docker", "podman", "rkt", "wsl", "proot", "pouch"];

const OTHER_CONTAINER: Virtualization = Container("container-other");
const OTHER_VM: &str = "vm-other";

/// Bit of Xen's features that the domain with the hardware has.
const XEN_HARDWARE_DOMAIN: u64 = 1 << 11;

impl Machine {
    /// Evaluates `ConditionVirtualization=`.
    pub(super) fn is_virtual(&self, wanted: &str) -> bool {
        if wanted == "private-users" {
            return self.has_private_users();
        }
        let found = self.virtualization();
        if let Some(flag) = parse_bool(wanted) {
            return flag == found.is_some();
        }
        match (wanted, found) {
            ("vm", found) => matches!(found, Some(Vm(_))),
            ("container", found) => matches!(found, Some(Container(_))),
            (name, Some(Vm(found) | Container(found))) => name == found,
            (_, None) => false,
        }
    }

    /// Returns the innermost virtualization.
    pub(super) fn virtualization(&self) -> Option<Virtualization> {
        self.container().or_else(|| self.virtual_machine().map(Vm))
    }

    /// Returns the container in which this process runs.
    pub(super) fn container(&self) -> Option<Virtualization> {
        if self.exists("/proc/vz") && !self.exists("/proc/bc") {
            return Some(Container("openvz"));
        }
        let release = self.line("/proc/sys/kernel/osrelease").unwrap_or_default();
        if release.contains("Microsoft") || release.contains("WSL") {
            return Some(Container("wsl"));
        }
        let tracer = self.field("/proc/self/status", "TracerPid:").unwrap_or_default();
        if tracer != "0"
            && let Some(name) = self.line(&format!("/proc/{tracer}/comm"))
            && name.starts_with("proot")
        {
            return Some(Container("proot"));
        }
        let by_manager = self
            .line("/run/host/container-manager")
            .or_else(|| self.line("/run/systemd/container"))
            .or_else(|| self.container_variable());
        match by_manager.as_deref() {
            // Images set this value, so it does not name the manager.
            Some("oci") => Some(self.container_by_file().unwrap_or(OTHER_CONTAINER)),
            Some(name) => {
                let known = CONTAINERS.iter().find(|known| **known == name);
                Some(known.map_or(OTHER_CONTAINER, |known| Container(known)))
            }
            None => self
                .container_by_file()
                .or_else(|| self.has_cgroup_namespace().then_some(OTHER_CONTAINER)),
        }
    }

    /// Returns the variable `container` of the first process, which needs permission.
    fn container_variable(&self) -> Option<String> {
        let environment = fs::read(self.path("/proc/1/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|it| it.strip_prefix(b"container="))?;
        let value = String::from_utf8_lossy(value).into_owned();
        Some(value).filter(|value| !value.is_empty())
    }

    fn container_by_file(&self) -> Option<Virtualization> {
        // The file of Docker may have come into an image that another manager runs.
        let known = [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")];
        let found = known.into_iter().find(|(path, _)| self.exists(path));
        found.map(|(_, name)| Container(name))
    }

    /// Returns whether the visible control groups are only a part of the machine's.
    fn has_cgroup_namespace(&self) -> bool {
        if !self.exists("/proc/self/ns/cgroup") {
            return false;
        }
        if !self.has_unified_cgroups() {
            let groups = "/sys/fs/cgroup/systemd";
            return self.exists(groups) && !self.exists(&format!("{groups}/release_agent"));
        }
        // The first file is missing in the root; the second one, too, but older kernels lack it.
        self.exists("/sys/fs/cgroup/cgroup.events")
            && (self.exists("/sys/fs/cgroup/cgroup.type")
                || !self.exists("/sys/kernel/cgroup/features"))
    }

    /// Returns whether this process runs in a user namespace.
    pub(super) fn has_private_users(&self) -> bool {
        let is_mapped = |file: &str| {
            let map = self.read(&format!("/proc/self/{file}"))?;
            let first: Vec<&str> = map.lines().next().unwrap_or("").split_whitespace().collect();
            Some(first != ["0", "0", "4294967295"])
        };
        is_mapped("uid_map").unwrap_or(false)
            || is_mapped("gid_map").unwrap_or(false)
            || self.line("/proc/self/setgroups").as_deref() == Some("deny")
    }

    fn virtual_machine(&self) -> Option<&'static str> {
        let dmi = self.vm_by_dmi();
        // These count even if the processor reports another hypervisor.
        if matches!(dmi, Some("oracle" | "xen" | "amazon" | "parallels")) {
            return dmi;
        }
        let vendor = self.field("/proc/cpuinfo", "vendor_id\t: ").unwrap_or_default();
        if vendor.starts_with("User Mode Linux") {
            return Some("uml");
        }
        let is_xen = self.exists("/proc/xen");
        if is_xen && !self.is_xen_hardware_domain() {
            return Some("xen");
        }
        let cpuid = self.hypervisor.as_deref().map(|name| {
            let known = HYPERVISORS.iter().find(|(known, _)| *known == name);
            known.map_or(OTHER_VM, |(_, id)| id)
        });
        // An unknown name counts only if nothing else is known.
        let mut is_other = cpuid == Some(OTHER_VM);
        let mut known = cpuid.filter(|id| *id != OTHER_VM);
        if is_xen {
            return known.or(cpuid);
        }
        let further: [fn(&Self) -> Option<&'static str>; 4] = [
            Self::vm_by_dmi,
            Self::vm_by_hypervisor_file,
            Self::vm_by_device_tree,
            Self::vm_by_sysinfo,
        ];
        for detect in further {
            if known.is_some() {
                break;
            }
            let found = detect(self);
            is_other |= found == Some(OTHER_VM);
            known = found.filter(|id| *id != OTHER_VM);
        }
        known.or_else(|| is_other.then_some(OTHER_VM))
    }

    fn vm_by_dmi(&self) -> Option<&'static str> {
        let texts = DMI_FILES.iter().filter_map(|it| self.line(&format!("/sys/class/dmi/id/{it}")));
        let known = |text: &str| DMI_VENDORS.iter().find(|(start, _)| text.starts_with(start));
        let found = texts.filter_map(|text| known(&text)).map(|(_, id)| *id).next();
        // The flag of virtual machines in the second byte of extensions, if there is one.
        let table = fs::read(self.path("/sys/firmware/dmi/entries/0-0/raw")).unwrap_or_default();
        let has_flag = table.get(1).is_some_and(|length| *length >= 20);
        let flag = table.get(19).filter(|_| has_flag).map(|byte| byte & (1 << 4) != 0);
        match (found, flag) {
            (Some("amazon"), Some(false)) => None,
            (Some("amazon"), None) => {
                // Real machines of this vendor have such names.
                let name = self.line("/sys/class/dmi/id/product_name").unwrap_or_default();
                (!name.ends_with(".metal")).then_some("amazon")
            }
            (None, Some(true)) => Some(OTHER_VM),
            (found, _) => found,
        }
    }

    fn is_xen_hardware_domain(&self) -> bool {
        let features = self.line("/sys/hypervisor/properties/features");
        if let Some(features) = features.and_then(|it| u64::from_str_radix(&it, 16).ok()) {
            return features & XEN_HARDWARE_DOMAIN != 0;
        }
        let capabilities = self.line("/proc/xen/capabilities").unwrap_or_default();
        capabilities.split(',').any(|capability| capability == "control_d")
    }

    fn vm_by_hypervisor_file(&self) -> Option<&'static str> {
        let kind = self.line("/sys/hypervisor/type")?;
        Some(if kind == "xen" { "xen" } else { OTHER_VM })
    }

    fn vm_by_device_tree(&self) -> Option<&'static str> {
        if let Some(kind) = self.line("/proc/device-tree/hypervisor/compatible") {
            return Some(match kind.trim_end_matches('\0') {
                "linux,kvm" => "kvm",
                kind if kind.contains("xen") => "xen",
                kind if kind.contains("vmware") => "vmware",
                _ => OTHER_VM,
            });
        }
        if self.exists("/proc/device-tree/ibm,partition-name")
            && self.exists("/proc/device-tree/hmc-managed?")
            && !self.exists("/proc/device-tree/chosen/qemu,graphic-width")
        {
            return Some("powervm");
        }
        let entries = self.entries("/proc/device-tree");
        let is_qemu = |it: &std::path::PathBuf| it.to_string_lossy().contains("fw-cfg");
        entries.iter().any(is_qemu).then_some("qemu")
    }

    fn vm_by_sysinfo(&self) -> Option<&'static str> {
        let text = self.read("/proc/sysinfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VM00 Control Program"))?;
        Some(if line.contains("z/VM") { "zvm" } else { "kvm" })
    }
}
