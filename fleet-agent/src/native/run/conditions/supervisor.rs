//! Conditions on the host's name and on the process of the supervisor.

use fleet_core::graph::condition::fnmatch;
use nix::unistd::{Gid, Group, Uid, User};

use super::machine::Machine;

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
