//! Conditions on security technologies, capabilities, accounts and the supervisor itself.

use std::fs;

use fleet_core::graph::condition::fnmatch;
use fleet_unitfile::values::parse_bool;
use nix::unistd::{Gid, Group, Uid, User};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netlink};

use super::machine::Machine;
use super::virtualization::Virtualization;

/// The capabilities in the order of their numbers.
const CAPABILITIES: [&str; 41] = [
    "cap_chown",
    "cap_dac_override",
    "cap_dac_read_search",
    "cap_fowner",
    "cap_fsetid",
    "cap_kill",
    "cap_setgid",
    "cap_setuid",
    "cap_setpcap",
    "cap_linux_immutable",
    "cap_net_bind_service",
    "cap_net_broadcast",
    "cap_net_admin",
    "cap_net_raw",
    "cap_ipc_lock",
    "cap_ipc_owner",
    "cap_sys_module",
    "cap_sys_rawio",
    "cap_sys_chroot",
    "cap_sys_ptrace",
    "cap_sys_pacct",
    "cap_sys_admin",
    "cap_sys_boot",
    "cap_sys_nice",
    "cap_sys_resource",
    "cap_sys_time",
    "cap_sys_tty_config",
    "cap_mknod",
    "cap_lease",
    "cap_audit_write",
    "cap_audit_control",
    "cap_setfcap",
    "cap_mac_override",
    "cap_mac_admin",
    "cap_syslog",
    "cap_wake_alarm",
    "cap_block_suspend",
    "cap_audit_read",
    "cap_perfmon",
    "cap_bpf",
    "cap_checkpoint_restore",
];

/// UEFI's variable for secure boot.
const SECURE_BOOT: &str =
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Returns whether the kernel accepts connections for audit.
pub(super) fn has_audit() -> bool {
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::AUDIT));
    let refusals = [Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT, Errno::PERM];
    socket.err().is_none_or(|error| !refusals.contains(&error))
}

impl Machine {
    /// Evaluates `ConditionSecurity=`.
    pub(super) fn has_security(&self, wanted: &str) -> bool {
        match wanted {
            "selinux" => {
                self.exists("/sys/fs/selinux/enforce") && self.exists("/etc/selinux/config")
            }
            "apparmor" => {
                let enabled = self.line("/sys/module/apparmor/parameters/enabled");
                enabled.and_then(|text| parse_bool(&text)) == Some(true)
            }
            "tomoyo" => self.exists("/sys/kernel/security/tomoyo/version"),
            "ima" => self.exists("/sys/kernel/security/ima"),
            "smack" => self.exists("/sys/fs/smackfs"),
            // The kernel serves audit only outside of user namespaces.
            "audit" => (self.has_audit)() && !self.has_private_users(),
            "uefi-secureboot" => {
                // The value is after four bytes of attributes.
                let variable = fs::read(self.path(SECURE_BOOT)).unwrap_or_default();
                self.is_uefi_boot() && variable.get(4).is_some_and(|value| *value > 0)
            }
            "tpm2" => self.has_tpm2(),
            _ => false,
        }
    }

    /// Returns whether the kernel supports TPM2 and the firmware reports it. There need not be a
    /// device yet, because its driver may be loaded later.
    fn has_tpm2(&self) -> bool {
        let is_container = matches!(self.virtualization(), Some(Virtualization::Container(_)));
        let measured = "/sys/kernel/security/tpm0/binary_bios_measurements";
        !is_container
            && self.exists("/sys/class/tpmrm")
            && self.is_uefi_boot()
            && (self.exists("/sys/firmware/acpi/tables/TPM2") || self.exists(measured))
    }

    /// Evaluates `ConditionCapability=`. Returns `None` for an unknown capability.
    pub(super) fn has_capability(&self, wanted: &str) -> Option<bool> {
        let wanted = wanted.to_ascii_lowercase();
        let number = match wanted.parse::<usize>() {
            Ok(number) => Some(number).filter(|number| *number < 64),
            Err(_) => CAPABILITIES.iter().position(|name| *name == wanted),
        }?;
        let bounding = self.field("/proc/self/status", "CapBnd:")?;
        let bounding = u64::from_str_radix(&bounding, 16).ok()?;
        Some(bounding & (1 << number) != 0)
    }
}

/// First user ID that does not belong to the system.
const FIRST_REGULAR_UID: u32 = 1000;

impl Machine {
    /// Evaluates `ConditionHost=`: a machine id, or a pattern for the host name.
    pub(super) fn is_host(&self, pattern: &str) -> bool {
        let id = pattern.replace('-', "").to_ascii_lowercase();
        if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return self.line("/etc/machine-id").is_some_and(|own| own == id);
        }
        // Host names are case-insensitive.
        let name = self.line("/proc/sys/kernel/hostname").unwrap_or_default();
        fnmatch(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase())
    }

    /// Evaluates `ConditionEnvironment=`: the name of a variable, or an assignment.
    pub(super) fn has_variable(&self, wanted: &str) -> bool {
        let matches = |(name, value): &(String, String)| match wanted.split_once('=') {
            Some((wanted, expected)) => name == wanted && value == expected,
            None => name == wanted,
        };
        self.environment.iter().any(matches)
    }

    /// Evaluates `ConditionCredential=`.
    pub(super) fn has_credential(&self, name: &str) -> bool {
        let is_name = !name.contains('/') && name != "." && name != "..";
        is_name && self.credentials.iter().any(|it| it.join(name).symlink_metadata().is_ok())
    }
}

/// Evaluates `ConditionUser=`.
pub(super) fn is_user(wanted: &str) -> bool {
    let own = [Uid::current(), Uid::effective()];
    if wanted == "@system" {
        return own.iter().any(|uid| uid.as_raw() < FIRST_REGULAR_UID);
    }
    let named = || User::from_name(wanted).ok().flatten().map(|user| user.uid);
    let uid = wanted.parse().map(Uid::from_raw).ok().or_else(named);
    uid.is_some_and(|uid| own.contains(&uid))
}

/// Evaluates `ConditionGroup=`.
pub(super) fn is_in_group(wanted: &str) -> bool {
    let named = || Group::from_name(wanted).ok().flatten().map(|group| group.gid);
    let gid = wanted.parse().map(Gid::from_raw).ok().or_else(named);
    let further = nix::unistd::getgroups().unwrap_or_default();
    gid.is_some_and(|gid| {
        gid == Gid::current() || gid == Gid::effective() || further.contains(&gid)
    })
}
