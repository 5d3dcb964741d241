//! Conditions on the processor, the firmware and the power supply.

use std::fs;
use std::path::Path;

use fleet_core::graph::condition::FieldComparison;

use super::machine::{Machine, read};

/// Features with other names than in `/proc/cpuinfo`.
const FEATURE_NAMES: [(&str, &str); 3] =
    [("pclmul", "pclmulqdq"), ("fma3", "fma"), ("osxsave", "xsave")];

/// The other features that systemd knows.
const FEATURES: [&str; 48] = [
    "fpu",
    "vme",
    "de",
    "pse",
    "tsc",
    "msr",
    "pae",
    "mce",
    "cx8",
    "apic",
    "sep",
    "mtrr",
    "pge",
    "mca",
    "cmov",
    "pat",
    "pse36",
    "clflush",
    "mmx",
    "fxsr",
    "sse",
    "sse2",
    "ht",
    "pni",
    "monitor",
    "ssse3",
    "cx16",
    "sse4_1",
    "sse4_2",
    "movbe",
    "popcnt",
    "aes",
    "xsave",
    "avx",
    "f16c",
    "rdrand",
    "bmi1",
    "avx2",
    "bmi2",
    "rdseed",
    "adx",
    "sha_ni",
    "syscall",
    "rdtscp",
    "lm",
    "lahf_lm",
    "abm",
    "constant_tsc",
];

impl Machine {
    /// Evaluates `ConditionArchitecture=`.
    pub(super) fn has_architecture(&self, wanted: &str) -> bool {
        let wanted = if wanted == "native" { native() } else { Some(wanted) };
        wanted.is_some() && architecture(&self.architecture) == wanted
    }

    /// Evaluates `ConditionFirmware=`. Returns `None` for a field that cannot be read.
    pub(super) fn has_firmware(&self, wanted: &str) -> Option<bool> {
        let argument = |name: &str| wanted.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(compatible) = argument("device-tree-compatible") {
            let all = fs::read(self.path("/proc/device-tree/compatible")).unwrap_or_default();
            let list = all.strip_suffix(&[0]);
            let mut names = list.into_iter().flat_map(|list| list.split(|byte| *byte == 0));
            return Some(names.any(|name| name == compatible.as_bytes()));
        }
        if let Some(text) = argument("smbios-field") {
            let FieldComparison { field, comparison, .. } = FieldComparison::parse_smbios(text)?;
            let path = self.path("/sys/class/dmi/id").join(field);
            return match path.exists() {
                true => read(&path).map(|actual| comparison.holds(&actual)),
                false => Some(false),
            };
        }
        Some(match wanted {
            "device-tree" => self.exists("/sys/firmware/devicetree"),
            "uefi" => self.is_uefi_boot(),
            _ => false,
        })
    }

    /// Returns whether UEFI has started this system. A container counts as not started so.
    pub(super) fn is_uefi_boot(&self) -> bool {
        self.container().is_none() && self.exists("/sys/firmware/efi")
    }

    /// Evaluates `ConditionCPUFeature=`.
    pub(super) fn has_cpu_feature(&self, wanted: &str) -> bool {
        let wanted = wanted.to_ascii_lowercase();
        let renamed = FEATURE_NAMES.iter().find(|(name, _)| *name == wanted).map(|(_, it)| *it);
        let known = FEATURES.iter().find(|name| **name == wanted).copied();
        let Some(name) = renamed.or(known) else { return false };
        // Other architectures have a key of another name.
        let features = self.field("/proc/cpuinfo", "flags\t\t: ").unwrap_or_default();
        features.split(' ').any(|feature| feature == name)
    }

    /// Returns whether the machine has external power. A machine without a discharging battery
    /// counts as such.
    pub(super) fn has_external_power(&self) -> bool {
        let mut on_battery = false;
        for supply in self.entries("/sys/class/power_supply") {
            let value = |name: &str| read(&supply.join(name));
            match value("type").as_deref() {
                None => {}
                Some("Battery") => {
                    let is_of_device = value("scope").as_deref() == Some("Device");
                    let is_present = value("present").as_deref() != Some("0");
                    let is_used = value("status").is_none_or(|status| status == "Discharging");
                    on_battery |= !is_of_device && is_present && is_used;
                }
                Some("USB") if !self.is_power_sink(&supply) => {}
                Some(_) => {
                    let online = value("online").and_then(|it| it.parse::<u32>().ok());
                    if online.is_some_and(|online| online > 0) {
                        return true;
                    }
                }
            }
        }
        !on_battery
    }

    /// Returns whether the machine takes power at the port of this supply, and does not give it.
    fn is_power_sink(&self, supply: &Path) -> bool {
        let Ok(supply) = fs::canonicalize(supply) else { return false };
        // The supply of the device DEVICE is DEVICE/power_supply/NAME.
        let Some(device) = supply.parent().and_then(Path::parent) else { return false };
        let ports = self.entries("/sys/class/typec").into_iter();
        let ports = ports.filter(|it| fs::canonicalize(it).is_ok_and(|it| it.starts_with(device)));
        let roles: Vec<_> = ports.filter_map(|port| read(&port.join("power_role"))).collect();
        let has = |role: &str| roles.iter().any(|it| it.contains(role));
        has("[sink]") || !has("[source]")
    }
}

/// Returns systemd's name of the architecture for which this program is built.
fn native() -> Option<&'static str> {
    let is_big = cfg!(target_endian = "big");
    Some(match (std::env::consts::ARCH, is_big) {
        ("powerpc", false) => "ppc-le",
        ("powerpc", true) => "ppc",
        ("powerpc64", false) => "ppc64-le",
        ("powerpc64", true) => "ppc64",
        ("arm", true) => "arm-be",
        ("aarch64", true) => "arm64-be",
        ("riscv64", _) => "riscv64",
        (name, _) => return architecture(name),
    })
}

/// Returns systemd's name of an architecture of the kernel.
fn architecture(machine: &str) -> Option<&'static str> {
    let is_big = cfg!(target_endian = "big");
    Some(match machine {
        "x86_64" => "x86-64",
        "x86" | "i386" | "i486" | "i586" | "i686" => "x86",
        "ppc64le" => "ppc64-le",
        "ppc64" => "ppc64",
        "ppcle" => "ppc-le",
        "ppc" => "ppc",
        "aarch64" => "arm64",
        "aarch64_be" => "arm64-be",
        name if name.starts_with("arm") && name.ends_with('b') => "arm-be",
        name if name.starts_with("arm") => "arm",
        "riscv32" => "riscv32",
        "riscv64" => "riscv64",
        "s390x" => "s390x",
        "s390" => "s390",
        "mips64" => {
            if is_big {
                "mips64"
            } else {
                "mips64-le"
            }
        }
        "mips" => {
            if is_big {
                "mips"
            } else {
                "mips-le"
            }
        }
        "loongarch64" => "loongarch64",
        "ia64" => "ia64",
        "parisc64" => "parisc64",
        "parisc" => "parisc",
        "sparc64" => "sparc64",
        "sparc" => "sparc",
        "m68k" => "m68k",
        "nios2" => "nios2",
        "tilegx" => "tilegx",
        "cris" | "crisv32" => "cris",
        "arc" => "arc",
        "arceb" => "arc-be",
        "sh5" => "sh64",
        name if name.starts_with("sh") => "sh",
        name if name.starts_with("alpha") => "alpha",
        _ => return None,
    })
}
