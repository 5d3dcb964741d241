//! The abilities of the supervisor on this machine, which decide what units may ask for.

use std::collections::BTreeSet;

use fleet_core::graph::systemd::CompileOptions;
use nix::unistd::{Gid, Group, Uid, User as Account};

use super::specifier_values::specifiers;

/// Identity of the supervisor, which determines its capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostCapabilities {
    /// Whether the supervisor may change to another user.
    pub(crate) root: bool,
    /// The supervisor's own user, by name and by number.
    pub(crate) users: Vec<String>,
    /// The supervisor's own group, by name and by number.
    pub(crate) groups: Vec<String>,
    /// Controllers that limit the control groups of units, or why there are none.
    pub(crate) controllers: Result<BTreeSet<String>, String>,
    /// Values of specifiers, and options that the operator accepts.
    pub(crate) site: CompileOptions,
}

/// Returns the supervisor's own identity, with the options that its operator accepts.
pub(crate) fn host_capabilities(
    accept: BTreeSet<String>,
    controllers: Result<BTreeSet<String>, String>,
) -> HostCapabilities {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let user = Account::from_uid(uid).ok().flatten().map(|account| account.name);
    let group = Group::from_gid(gid).ok().flatten().map(|group| group.name);
    HostCapabilities {
        root: uid.is_root(),
        users: user.into_iter().chain([uid.to_string()]).collect(),
        groups: group.into_iter().chain([gid.to_string()]).collect(),
        controllers,
        site: CompileOptions { specifiers: specifiers(), accept },
    }
}
