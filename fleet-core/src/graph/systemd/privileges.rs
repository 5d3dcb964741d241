//! Reads capabilities, secure bits, keyrings and personalities, and completes units with dynamic
//! users.

use std::hash::Hasher as _;

use super::value::choice;
use crate::graph::model::ExecEnvironment;
use crate::graph::model::sandbox::{
    CapabilitySet, KeyringMode, ProtectHome, ProtectSystem, SandboxSwitch,
};

/// Reads a list of capabilities. It is added to the present set, or removed from it if it begins
/// with `~`. A first or an empty list replaces the present set.
pub(super) fn capabilities(
    present: CapabilitySet,
    initial: CapabilitySet,
    value: &str,
) -> Result<CapabilitySet, String> {
    let (inverted, names) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
    let mut listed = CapabilitySet(0);
    for name in names.split_whitespace() {
        let named = CapabilitySet::named(name).ok_or_else(|| {
            format!("has {name:?}: write names of capabilities, such as CAP_NET_BIND_SERVICE")
        })?;
        listed = listed.union(named);
    }
    let replaces = listed == CapabilitySet(0) || present == initial;
    Ok(match (inverted, replaces) {
        (false, true) => listed,
        (true, true) => CapabilitySet::ALL.without(listed),
        (false, false) => present.union(listed),
        (true, false) => present.without(listed),
    })
}

/// Words of `SecureBits=`, by the kernel's bits.
const SECURE_BITS: [&str; 6] = [
    "noroot",
    "noroot-locked",
    "no-setuid-fixup",
    "no-setuid-fixup-locked",
    "keep-caps",
    "keep-caps-locked",
];

pub(super) fn add_secure_bits(bits: &mut u32, value: &str) -> Result<(), String> {
    if value.is_empty() {
        *bits = 0;
    }
    for word in value.split_whitespace() {
        let bit = SECURE_BITS.iter().position(|known| *known == word);
        let all = SECURE_BITS.join(", ");
        *bits |= 1 << bit.ok_or_else(|| format!("has {word:?}: write some of {all}"))?;
    }
    Ok(())
}

pub(super) fn keyring_mode(value: &str) -> Result<KeyringMode, String> {
    let words = [
        ("inherit", KeyringMode::Inherit),
        ("private", KeyringMode::Private),
        ("shared", KeyringMode::Shared),
    ];
    choice(value, &words)
}

/// Names of the architecture of this machine and of its 32-bit variant, by systemd's names.
const OWN_ARCHITECTURES: (&str, &str) =
    if cfg!(target_arch = "x86_64") { ("x86-64", "x86") } else { ("arm64", "arm") };

/// Reads an architecture that programs see. Returns the kernel's number.
pub(super) fn personality(value: &str) -> Result<u32, String> {
    const LINUX: u32 = 0;
    const LINUX_32: u32 = 8;
    let (own, other) = OWN_ARCHITECTURES;
    choice(value, &[(own, LINUX), (other, LINUX_32)])
}

/// Adds the name of the user, and the restrictions that follow from a dynamic user: it must leave
/// no files with its user ID behind.
pub(super) fn imply_dynamic_user(exec: &mut ExecEnvironment, unit: &str) {
    if !exec.sandbox.has(SandboxSwitch::DynamicUser) {
        return;
    }
    exec.user.get_or_insert_with(|| user_of(unit));
    let sandbox = &mut exec.sandbox;
    sandbox.switches.extend([
        SandboxSwitch::NoNewPrivileges,
        SandboxSwitch::PrivateTmp,
        SandboxSwitch::RestrictSUIDSGID,
    ]);
    sandbox.protect_system = ProtectSystem::Strict;
    if sandbox.protect_home == ProtectHome::No {
        sandbox.protect_home = ProtectHome::ReadOnly;
    }
}

/// Maximum length of a user name.
const MAX_NAME: usize = 31;

/// Returns the name of the dynamic user of a unit: its name up to `@` or the type, or a hash if
/// that is no user name.
fn user_of(unit: &str) -> String {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let prefix = stem.split_once('@').map_or(stem, |(prefix, _)| prefix);
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_valid = prefix.starts_with(is_letter)
        && prefix.chars().all(|c| is_letter(c) || c.is_ascii_digit() || c == '-')
        && prefix.len() <= MAX_NAME;
    if is_valid { prefix.to_owned() } else { format!("_du{:016x}", hash(prefix)) }
}

/// Returns the hash that systemd computes.
fn hash(text: &str) -> u64 {
    const KEY: [u64; 2] = [0x964e_5828_e6af_1a58, 0xec07_928c_3bf5_4eb4];
    #[expect(deprecated, reason = "systemd uses this algorithm, which `DefaultHasher` may change")]
    let mut hasher = std::hash::SipHasher::new_with_keys(KEY[0], KEY[1]);
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verified with systemd 252.
    #[test]
    fn dynamic_users_are_named_after_their_unit() {
        for (unit, user) in [
            ("web.service", "web"),
            ("web-1@a.b.service", "web-1"),
            ("web.main.service", "_dud0c6189ed3146fee"),
            ("1.service", "_dueffc8121010176c9"),
            ("a-name-of-more-than-31-characters.service", "_du1d47ca2935666727"),
        ] {
            assert_eq!(user_of(unit), user, "{unit}");
        }
    }

    #[test]
    fn dynamic_user_implies_a_sandbox() {
        let mut exec = ExecEnvironment::default();
        imply_dynamic_user(&mut exec, "web.service");
        assert_eq!(exec, ExecEnvironment::default());
        exec.sandbox.switches = [SandboxSwitch::DynamicUser].into();
        exec.sandbox.protect_system = ProtectSystem::Full;
        let mut named = ExecEnvironment { user: Some("own".to_owned()), ..exec.clone() };
        named.sandbox.protect_home = ProtectHome::Tmpfs;
        for (mut exec, user, home) in
            [(exec, "web", ProtectHome::ReadOnly), (named, "own", ProtectHome::Tmpfs)]
        {
            imply_dynamic_user(&mut exec, "web.service");
            assert_eq!(exec.user.as_deref(), Some(user));
            let sandbox = &exec.sandbox;
            let levels = (sandbox.protect_system, sandbox.protect_home);
            assert_eq!(levels, (ProtectSystem::Strict, home));
            use SandboxSwitch::{DynamicUser, NoNewPrivileges, PrivateTmp, RestrictSUIDSGID};
            let all = [DynamicUser, NoNewPrivileges, PrivateTmp, RestrictSUIDSGID];
            assert_eq!(sandbox.switches, all.into());
        }
    }

    #[test]
    fn capability_lists_merge_as_in_systemd() {
        let named = |name: &str| CapabilitySet::named(name).expect("it is known");
        let (chown, kill) = (named("CAP_CHOWN"), named("cap_kill"));
        let all = CapabilitySet::ALL;
        for (lines, expected) in [
            (&[""][..], CapabilitySet(0)),
            (&["~"], all),
            (&["CAP_CHOWN", "CAP_KILL"], chown.union(kill)),
            (&["~CAP_CHOWN", "~CAP_KILL"], all.without(chown.union(kill))),
            (&["CAP_CHOWN CAP_KILL", "~CAP_KILL"], chown),
        ] {
            let read = lines.iter().try_fold(all, |present, line| capabilities(present, all, line));
            assert_eq!(read, Ok(expected), "{lines:?}");
        }
    }
}
