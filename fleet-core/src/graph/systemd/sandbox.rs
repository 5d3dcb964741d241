//! Reads the options that confine the processes of a service.

use std::collections::BTreeSet;

use fleet_unitfile::values::{parse_bool, split_words};

use super::privileges::{add_secure_bits, capabilities};
use super::value::{ValueContext, absolute, choice, flag, read_resettable, unreadable};
use super::{privileges, system_calls};
use crate::graph::model::sandbox::{
    Access, AddressFamilies, BindPath, CapabilitySet, PathAccess, ProtectHome, ProtectSystem,
    Sandbox, SandboxSwitch,
};

/// Applies an option. Returns `None` if the option is none of a sandbox.
pub(super) fn apply(
    sandbox: &mut Sandbox,
    name: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Option<Result<(), String>> {
    if let Some((_, switch)) = SWITCHES.iter().find(|(known, _)| *known == name) {
        return Some(take_switch(sandbox, *switch, value));
    }
    if let Some((_, access)) = PATHS.iter().find(|(known, _)| *known == name) {
        return Some(add_paths(&mut sandbox.paths, *access, value, unit));
    }
    take(sandbox, name, value, unit).transpose()
}

fn take(
    sandbox: &mut Sandbox,
    name: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<Option<()>, String> {
    match name {
        "ProtectSystem" => sandbox.protect_system = protect_system(value)?,
        "ProtectHome" => sandbox.protect_home = protect_home(value)?,
        "ProtectProc" => sandbox.protect_proc = protect_proc(value)?,
        "ProcSubset" => {
            let subset = choice(value, &[("all", false), ("pid", true)])?;
            set(&mut sandbox.switches, SandboxSwitch::ProcSubsetPid, subset);
        }
        "MountFlags" => {
            let words = [("shared", false), ("slave", true), ("private", true)];
            let is_private = read_resettable(value, |value| choice(value, &words))?;
            set(
                &mut sandbox.switches,
                SandboxSwitch::PrivateMounts,
                is_private.unwrap_or_default(),
            );
        }
        "BindPaths" => add_binds(&mut sandbox.binds, false, value, unit)?,
        "BindReadOnlyPaths" => add_binds(&mut sandbox.binds, true, value, unit)?,
        "TemporaryFileSystem" => {
            add_file_systems(&mut sandbox.temporary_file_systems, value, unit)?;
        }
        "CapabilityBoundingSet" => {
            let present = sandbox.capability_bounding_set.unwrap_or(CapabilitySet::ALL);
            let added = capabilities(present, CapabilitySet::ALL, value)?;
            sandbox.capability_bounding_set = Some(added);
        }
        "AmbientCapabilities" => {
            let present = sandbox.ambient_capabilities;
            sandbox.ambient_capabilities = capabilities(present, CapabilitySet(0), value)?;
        }
        "NetworkNamespacePath" => {
            sandbox.network_namespace = read_resettable(value, |value| unit.path(value))?;
        }
        "IPCNamespacePath" => {
            sandbox.ipc_namespace = read_resettable(value, |value| unit.path(value))?;
        }
        "Personality" => sandbox.personality = read_resettable(value, privileges::personality)?,
        "KeyringMode" => sandbox.keyring = privileges::keyring_mode(value)?,
        "SecureBits" => add_secure_bits(&mut sandbox.secure_bits, value)?,
        "RestrictAddressFamilies" => add_families(&mut sandbox.address_families, value)?,
        "RestrictNamespaces" => sandbox.namespaces = namespaces(sandbox.namespaces, value)?,
        "SystemCallFilter" => system_calls::add_filter(&mut sandbox.system_calls, value)?,
        "SystemCallErrorNumber" => {
            sandbox.system_call_error = system_calls::error_number(value)?;
        }
        "SystemCallArchitectures" => {
            let is_native = !value.is_empty() && value.split_whitespace().all(is_native);
            set(&mut sandbox.switches, SandboxSwitch::NativeSystemCalls, is_native);
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Returns whether a word means the architecture of this machine alone. A list with other ones
/// restricts nothing here.
fn is_native(word: &str) -> bool {
    let is_own = match word {
        "x86-64" => cfg!(target_arch = "x86_64"),
        "arm64" => cfg!(target_arch = "aarch64"),
        _ => false,
    };
    word == "native" || is_own
}

const SWITCHES: [(&str, SandboxSwitch); 18] = [
    ("DynamicUser", SandboxSwitch::DynamicUser),
    ("LockPersonality", SandboxSwitch::LockPersonality),
    ("MemoryDenyWriteExecute", SandboxSwitch::MemoryDenyWriteExecute),
    ("NoNewPrivileges", SandboxSwitch::NoNewPrivileges),
    ("PrivateDevices", SandboxSwitch::PrivateDevices),
    ("PrivateIPC", SandboxSwitch::PrivateIPC),
    ("PrivateMounts", SandboxSwitch::PrivateMounts),
    ("PrivateNetwork", SandboxSwitch::PrivateNetwork),
    ("PrivateTmp", SandboxSwitch::PrivateTmp),
    ("PrivateUsers", SandboxSwitch::PrivateUsers),
    ("ProtectClock", SandboxSwitch::ProtectClock),
    ("ProtectControlGroups", SandboxSwitch::ProtectControlGroups),
    ("ProtectHostname", SandboxSwitch::ProtectHostname),
    ("ProtectKernelLogs", SandboxSwitch::ProtectKernelLogs),
    ("ProtectKernelModules", SandboxSwitch::ProtectKernelModules),
    ("ProtectKernelTunables", SandboxSwitch::ProtectKernelTunables),
    ("RestrictRealtime", SandboxSwitch::RestrictRealtime),
    ("RestrictSUIDSGID", SandboxSwitch::RestrictSUIDSGID),
];

/// Stronger values of switches in later versions of systemd. Here they have the effect of `yes`.
const STRONGER: [(SandboxSwitch, &str); 5] = [
    (SandboxSwitch::PrivateTmp, "disconnected"),
    (SandboxSwitch::PrivateUsers, "self"),
    (SandboxSwitch::ProtectControlGroups, "private"),
    (SandboxSwitch::ProtectControlGroups, "strict"),
    (SandboxSwitch::ProtectHostname, "private"),
];

fn take_switch(sandbox: &mut Sandbox, switch: SandboxSwitch, value: &str) -> Result<(), String> {
    let is_on = STRONGER.contains(&(switch, value)) || flag(value)?;
    set(&mut sandbox.switches, switch, is_on);
    Ok(())
}

fn set(switches: &mut BTreeSet<SandboxSwitch>, switch: SandboxSwitch, is_on: bool) {
    if is_on {
        switches.insert(switch);
    } else {
        switches.remove(&switch);
    }
}

fn protect_system(value: &str) -> Result<ProtectSystem, String> {
    match (value, parse_bool(value)) {
        (_, Some(false)) => Ok(ProtectSystem::No),
        (_, Some(true)) => Ok(ProtectSystem::Yes),
        ("full", _) => Ok(ProtectSystem::Full),
        ("strict", _) => Ok(ProtectSystem::Strict),
        _ => Err(format!("is {value:?}: write yes, no, full or strict")),
    }
}

fn protect_home(value: &str) -> Result<ProtectHome, String> {
    match (value, parse_bool(value)) {
        (_, Some(false)) => Ok(ProtectHome::No),
        (_, Some(true)) => Ok(ProtectHome::Yes),
        ("read-only", _) => Ok(ProtectHome::ReadOnly),
        ("tmpfs", _) => Ok(ProtectHome::Tmpfs),
        _ => Err(format!("is {value:?}: write yes, no, read-only or tmpfs")),
    }
}

fn protect_proc(value: &str) -> Result<Option<&'static str>, String> {
    let words = [
        ("default", None),
        ("invisible", Some("invisible")),
        ("noaccess", Some("noaccess")),
        ("ptraceable", Some("ptraceable")),
    ];
    choice(value, &words)
}

const PATHS: [(&str, Access); 8] = [
    ("ExecPaths", Access::Exec),
    ("InaccessibleDirectories", Access::Inaccessible),
    ("InaccessiblePaths", Access::Inaccessible),
    ("NoExecPaths", Access::NoExec),
    ("ReadOnlyDirectories", Access::ReadOnly),
    ("ReadOnlyPaths", Access::ReadOnly),
    ("ReadWriteDirectories", Access::ReadWrite),
    ("ReadWritePaths", Access::ReadWrite),
];

fn add_paths(
    paths: &mut Vec<PathAccess>,
    access: Access,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        paths.retain(|path| path.access != access);
    }
    for word in split_words(value).map_err(unreadable)? {
        let (path, optional) = optional(&word);
        // `+` means below the unit's root directory, which is the machine's.
        let path = unit.path(path.strip_prefix('+').unwrap_or(path))?;
        let path = if access == Access::Inaccessible { below_root(path)? } else { path };
        paths.push(PathAccess { access, path, optional });
    }
    Ok(())
}

/// Refuses the root directory, in whose place nothing else can be shown.
fn below_root(path: String) -> Result<String, String> {
    match path.split('/').all(|part| matches!(part, "" | ".")) {
        true => Err(format!("has the path {path:?}: write one below the root directory")),
        false => Ok(path),
    }
}

fn optional(word: &str) -> (&str, bool) {
    word.strip_prefix('-').map_or((word, false), |path| (path, true))
}

fn add_binds(
    binds: &mut Vec<BindPath>,
    read_only: bool,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        // An empty value resets both options.
        binds.clear();
    }
    for word in split_words(value).map_err(unreadable)? {
        let (word, optional) = optional(&word);
        let mut parts = word.splitn(3, ':');
        let source = unit.path(parts.next().unwrap_or_default())?;
        let target = parts.next().filter(|target| !target.is_empty());
        let target = target.map_or_else(|| Ok(source.clone()), |target| unit.path(target))?;
        let recursive = match parts.next() {
            None => true,
            Some(mode) => choice(mode, &[("rbind", true), ("norbind", false)])?,
        };
        let target = below_root(target)?;
        binds.push(BindPath { source, target, optional, read_only, recursive });
    }
    Ok(())
}

fn add_file_systems(
    list: &mut Vec<(String, String)>,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for word in split_words(value).map_err(unreadable)? {
        let word = unit.expand(&word)?;
        let (path, options) = word.split_once(':').unwrap_or((&word, ""));
        list.push((below_root(absolute(path)?)?, options.to_owned()));
    }
    Ok(())
}

/// Families of sockets by name, with the kernel's numbers.
const FAMILIES: [(&str, u16); 29] = [
    ("AF_UNIX", 1),
    ("AF_LOCAL", 1),
    ("AF_INET", 2),
    ("AF_AX25", 3),
    ("AF_IPX", 4),
    ("AF_APPLETALK", 5),
    ("AF_X25", 9),
    ("AF_INET6", 10),
    ("AF_KEY", 15),
    ("AF_NETLINK", 16),
    ("AF_PACKET", 17),
    ("AF_RDS", 21),
    ("AF_PPPOX", 24),
    ("AF_LLC", 26),
    ("AF_IB", 27),
    ("AF_MPLS", 28),
    ("AF_CAN", 29),
    ("AF_TIPC", 30),
    ("AF_BLUETOOTH", 31),
    ("AF_IUCV", 32),
    ("AF_RXRPC", 33),
    ("AF_ISDN", 34),
    ("AF_ALG", 38),
    ("AF_NFC", 39),
    ("AF_VSOCK", 40),
    ("AF_KCM", 41),
    ("AF_QIPCRTR", 42),
    ("AF_SMC", 43),
    ("AF_XDP", 44),
];

fn add_families(list: &mut Option<AddressFamilies>, value: &str) -> Result<(), String> {
    let (inverted, names) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
    match value {
        "" => *list = None,
        "none" => *list = Some(AddressFamilies { permit: true, families: BTreeSet::new() }),
        _ => {
            let list = list.get_or_insert_with(|| AddressFamilies {
                permit: !inverted,
                families: BTreeSet::new(),
            });
            for word in names.split_whitespace() {
                let known = FAMILIES.iter().find(|(name, _)| *name == word);
                let (_, family) = known
                    .ok_or_else(|| format!("has {word:?}: write families, such as AF_INET"))?;
                if list.permit == inverted {
                    list.families.remove(family);
                } else {
                    list.families.insert(*family);
                }
            }
        }
    }
    Ok(())
}

/// Types of namespaces, with the kernel's bits.
const NAMESPACES: [(&str, u32); 7] = [
    ("cgroup", 0x0200_0000),
    ("ipc", 0x0800_0000),
    ("mnt", 0x0002_0000),
    ("net", 0x4000_0000),
    ("pid", 0x2000_0000),
    ("user", 0x1000_0000),
    ("uts", 0x0400_0000),
];

fn namespaces(present: Option<u32>, value: &str) -> Result<Option<u32>, String> {
    match parse_bool(value) {
        _ if value.is_empty() => return Ok(None),
        Some(true) => return Ok(Some(0)),
        Some(false) => return Ok(None),
        None => {}
    }
    let (inverted, names) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
    let mut listed = 0;
    for word in names.split_whitespace() {
        let known = NAMESPACES.iter().find(|(name, _)| *name == word);
        let problem = || format!("has {word:?}: write yes, no, or types such as user and net");
        listed |= known.ok_or_else(problem)?.1;
    }
    let all = NAMESPACES.iter().fold(0, |all, (_, bit)| all | bit);
    Ok(Some(match inverted {
        true => present.unwrap_or(all) & !listed,
        false => present.unwrap_or(0) | listed,
    }))
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::SpecifierContext;

    use super::*;

    fn read(lines: &str) -> Result<Sandbox, String> {
        let name = "a.service".parse().expect("it is a name");
        let specifiers = SpecifierContext::new();
        let unit = ValueContext::new(&name, &specifiers);
        let mut sandbox = Sandbox::default();
        for line in lines.split('\n') {
            let (name, value) = line.split_once('=').expect("it is an assignment");
            apply(&mut sandbox, name, value, &unit).expect("it is an option of a sandbox")?;
        }
        Ok(sandbox)
    }

    #[test]
    fn switches_and_paths_are_read_as_in_systemd() {
        let sandbox = read(
            "PrivateTmp=disconnected\nMountFlags=slave\nNoNewPrivileges=yes\nNoNewPrivileges=no\n\
             SystemCallArchitectures=native\nProtectSystem=full\nProtectHome=yes\n\
             ReadWritePaths=-/a +/b\nReadOnlyPaths=/c\nReadOnlyPaths=\n\
             BindPaths=-/d:/e:norbind /f\nTemporaryFileSystem=/g:ro,size=1M /h",
        );
        let sandbox = sandbox.expect("it is valid");
        let switches: Vec<String> =
            sandbox.switches.iter().map(|switch| format!("{switch:?}")).collect();
        assert_eq!(switches, ["NativeSystemCalls", "PrivateMounts", "PrivateTmp"]);
        let levels = (sandbox.protect_system, sandbox.protect_home);
        assert_eq!(levels, (ProtectSystem::Full, ProtectHome::Yes));
        let writable = |path: &str, optional| PathAccess {
            access: Access::ReadWrite,
            path: path.to_owned(),
            optional,
        };
        assert_eq!(sandbox.paths, [writable("/a", true), writable("/b", false)]);
        let bind = |source: &str, target: &str, optional, recursive| BindPath {
            source: source.to_owned(),
            target: target.to_owned(),
            optional,
            read_only: false,
            recursive,
        };
        assert_eq!(sandbox.binds, [bind("/d", "/e", true, false), bind("/f", "/f", false, true)]);
        let file_systems =
            [("/g", "ro,size=1M"), ("/h", "")].map(|(path, it)| (path.to_owned(), it.to_owned()));
        assert_eq!(sandbox.temporary_file_systems, file_systems);
    }

    #[test]
    fn privileges_and_calls_are_read_as_in_systemd() {
        let sandbox = read(
            "AmbientCapabilities=CAP_KILL\nSecureBits=noroot keep-caps\n\
             RestrictAddressFamilies=AF_UNIX AF_INET\nRestrictAddressFamilies=~AF_INET\n\
             RestrictNamespaces=~user",
        );
        let sandbox = sandbox.expect("it is valid");
        assert_eq!(sandbox.ambient_capabilities, CapabilitySet(1 << 5));
        assert_eq!(sandbox.secure_bits, 0b1_0001);
        let families = AddressFamilies { permit: true, families: [1].into() };
        assert_eq!(sandbox.address_families, Some(families));
        assert_eq!(sandbox.namespaces, Some(0x6e02_0000));
    }

    #[test]
    fn wrong_values_are_refused_with_a_remedy() {
        let problems = [
            "ProtectSystem=maybe",
            "PrivateTmp=maybe",
            "ReadOnlyPaths=a",
            "BindPaths=/a:/b:c",
            "CapabilityBoundingSet=NET_ADMIN",
            "RestrictAddressFamilies=INET",
            "RestrictNamespaces=network",
            "SystemCallFilter=@none",
            "ProtectProc=hidden",
            "TemporaryFileSystem=/:ro",
            "BindPaths=/jail:/",
            "InaccessiblePaths=/",
        ]
        .map(|line| {
            format!(
                "{line}:
  {}",
                read(line).expect_err(line)
            )
        });
        insta::assert_snapshot!(problems.join("
").replace(": write", ":
  write"), @r#"
  ProtectSystem=maybe:
    is "maybe":
    write yes, no, full or strict
  PrivateTmp=maybe:
    is "maybe":
    write yes or no
  ReadOnlyPaths=a:
    has the relative path "a":
    write an absolute path
  BindPaths=/a:/b:c:
    is "c":
    write rbind or norbind
  CapabilityBoundingSet=NET_ADMIN:
    has "NET_ADMIN":
    write names of capabilities, such as CAP_NET_BIND_SERVICE
  RestrictAddressFamilies=INET:
    has "INET":
    write families, such as AF_INET
  RestrictNamespaces=network:
    has "network":
    write yes, no, or types such as user and net
  SystemCallFilter=@none:
    has the unknown group @none:
    write a group of systemd, such as @system-service
  ProtectProc=hidden:
    is "hidden":
    write default, invisible, noaccess or ptraceable
  TemporaryFileSystem=/:ro:
    has the path "/":
    write one below the root directory
  BindPaths=/jail:/:
    has the path "/":
    write one below the root directory
  InaccessiblePaths=/:
    has the path "/":
    write one below the root directory
  "#);
    }
}
