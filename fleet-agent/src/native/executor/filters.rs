//! Filters of system calls for a unit's sandbox.

use std::collections::BTreeMap;

use fleet_core::graph::sandbox::{
    AddressFamilies, Sandbox, SandboxSwitch, SystemCallAction, SystemCallFilter,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use syscalls::Sysno;

use super::plan::BpfInstruction;

type Filter = Vec<BpfInstruction>;

/// Returns the filters of a sandbox, in the order in which they are installed. The error says why a
/// filter cannot be built.
pub(in crate::native) fn filters(sandbox: &Sandbox) -> Result<Vec<Filter>, String> {
    let mut rules = FilterRules::default();
    if let Some(families) = &sandbox.address_families {
        rules.forbid_families(families);
    }
    if let Some(permitted) = sandbox.namespaces {
        rules.forbid_namespaces(permitted);
    }
    for (switch, forbid) in SWITCHES {
        if sandbox.has(switch) {
            forbid(&mut rules);
        }
    }
    if sandbox.has(SandboxSwitch::LockPersonality) {
        rules.lock_personality(sandbox.personality.unwrap_or_default());
    }
    let mut all = rules.programs()?;
    if let Some(calls) = &sandbox.system_calls {
        all.extend(system_calls(calls, sandbox.system_call_error)?);
    }
    if all.is_empty() && sandbox.has(SandboxSwitch::NativeSystemCalls) {
        // Every filter forbids the calls of other architectures.
        all.push(program(BTreeMap::new(), SeccompAction::Allow, SeccompAction::Trap)?);
    }
    Ok(all)
}

type Forbid = fn(&mut FilterRules);

const SWITCHES: [(SandboxSwitch, Forbid); 9] = [
    (SandboxSwitch::RestrictRealtime, FilterRules::forbid_realtime),
    (SandboxSwitch::RestrictSUIDSGID, FilterRules::forbid_special_modes),
    (SandboxSwitch::MemoryDenyWriteExecute, FilterRules::forbid_writable_code),
    (SandboxSwitch::ProtectHostname, |it| it.forbid(&["sethostname", "setdomainname"])),
    (SandboxSwitch::ProtectKernelTunables, |it| it.forbid(&["_sysctl"])),
    (SandboxSwitch::ProtectKernelModules, |it| {
        it.forbid(&["delete_module", "finit_module", "init_module"]);
    }),
    (SandboxSwitch::ProtectKernelLogs, |it| it.forbid(&["syslog"])),
    (SandboxSwitch::ProtectClock, |it| {
        it.forbid(&["adjtimex", "clock_adjtime", "clock_settime", "settimeofday"]);
    }),
    (SandboxSwitch::PrivateDevices, |it| {
        let raw_io = ["ioperm", "iopl", "pciconfig_iobase", "pciconfig_read", "pciconfig_write"];
        it.forbid(&raw_io);
    }),
];

/// Conditions on the arguments of a system call, all of which must hold.
type Conditions = Vec<(u8, SeccompCmpOp, u64)>;

/// Forbidden calls by the error that they return.
#[derive(Default)]
struct FilterRules(BTreeMap<i32, Vec<(&'static str, Conditions)>>);

impl FilterRules {
    /// Forbids system calls, whatever their arguments.
    fn forbid(&mut self, calls: &[&'static str]) {
        calls.iter().for_each(|call| self.forbid_if(libc::EPERM, call, Vec::new()));
    }

    /// Forbids a system call if all conditions hold.
    fn forbid_if(&mut self, error: i32, call: &'static str, conditions: Conditions) {
        self.0.entry(error).or_default().push((call, conditions));
    }

    fn forbid_families(&mut self, families: &AddressFamilies) {
        let listed = families.families.iter().copied().map(u64::from);
        if families.permit {
            let other = listed.map(|family| (0, SeccompCmpOp::Ne, family)).collect();
            self.forbid_if(libc::EAFNOSUPPORT, "socket", other);
        } else {
            for family in listed {
                let conditions = vec![(0, SeccompCmpOp::Eq, family)];
                self.forbid_if(libc::EAFNOSUPPORT, "socket", conditions);
            }
        }
    }

    fn forbid_namespaces(&mut self, permitted: u32) {
        const ALL: [u32; 7] = [
            0x0002_0000,
            0x0200_0000,
            0x0400_0000,
            0x0800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000,
        ];
        let forbidden: Vec<u64> =
            ALL.into_iter().filter(|bit| permitted & bit == 0).map(u64::from).collect();
        if forbidden.is_empty() {
            return;
        }
        // Its flags are in memory, which a filter cannot read. The C library falls back to `clone`.
        self.forbid_if(libc::ENOSYS, "clone3", Vec::new());
        // Zero stands for a namespace of any type.
        self.forbid_if(libc::EPERM, "setns", vec![(1, SeccompCmpOp::Eq, 0)]);
        for bit in forbidden {
            for (call, argument) in [("clone", 0), ("unshare", 0), ("setns", 1)] {
                let conditions = vec![(argument, SeccompCmpOp::MaskedEq(bit), bit)];
                self.forbid_if(libc::EPERM, call, conditions);
            }
        }
    }

    /// Permits the policies `SCHED_OTHER`, `SCHED_BATCH` and `SCHED_IDLE` alone.
    fn forbid_realtime(&mut self) {
        let others = [0, 3, 5].map(|policy| (1, SeccompCmpOp::Ne, policy));
        self.forbid_if(libc::EPERM, "sched_setscheduler", others.into());
        // Its policy is in memory, which a filter cannot read.
        self.forbid_if(libc::EPERM, "sched_setattr", Vec::new());
    }

    /// Forbids files with the set-user-ID or set-group-ID bit.
    fn forbid_special_modes(&mut self) {
        const CREATE: u64 = libc::O_CREAT as u64;
        // Its mode is in memory, which a filter cannot read.
        self.forbid_if(libc::ENOSYS, "openat2", Vec::new());
        for bit in [0o4000, 0o2000] {
            let mode = |argument| (argument, SeccompCmpOp::MaskedEq(bit), bit);
            for (call, argument) in [
                ("chmod", 1),
                ("fchmod", 1),
                ("fchmodat", 2),
                ("fchmodat2", 2),
                ("mkdir", 1),
                ("mkdirat", 2),
                ("mknod", 1),
                ("mknodat", 2),
                ("creat", 1),
            ] {
                self.forbid_if(libc::EPERM, call, vec![mode(argument)]);
            }
            for (call, flags) in [("open", 1), ("openat", 2)] {
                let creates = (flags, SeccompCmpOp::MaskedEq(CREATE), CREATE);
                self.forbid_if(libc::EPERM, call, vec![creates, mode(flags + 1)]);
            }
        }
    }

    /// Forbids memory that is writable and executable, at the same time or one after the other.
    fn forbid_writable_code(&mut self) {
        const WRITE: u64 = libc::PROT_WRITE as u64;
        const EXECUTE: u64 = libc::PROT_EXEC as u64;
        const SHARED_EXECUTE: u64 = libc::SHM_EXEC as u64;
        let has = |bits| (2, SeccompCmpOp::MaskedEq(bits), bits);
        self.forbid_if(libc::EPERM, "mmap", vec![has(WRITE | EXECUTE)]);
        self.forbid_if(libc::EPERM, "mprotect", vec![has(EXECUTE)]);
        self.forbid_if(libc::EPERM, "pkey_mprotect", vec![has(EXECUTE)]);
        self.forbid_if(libc::EPERM, "shmat", vec![has(SHARED_EXECUTE)]);
    }

    /// Permits one personality alone.
    fn lock_personality(&mut self, personality: u32) {
        let is_other = (0, SeccompCmpOp::Ne, personality.into());
        self.forbid_if(libc::EPERM, "personality", vec![is_other]);
    }

    /// Returns one program for each error.
    fn programs(self) -> Result<Vec<Filter>, String> {
        let mut programs = Vec::new();
        for (error, forbidden) in self.0 {
            let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
            let mut unconditional = Vec::new();
            for (call, conditions) in forbidden {
                // Some architectures lack some calls.
                let Some(number) = number(call) else { continue };
                let list = rules.entry(number).or_default();
                if conditions.is_empty() {
                    unconditional.push(number);
                } else {
                    list.push(rule(conditions)?);
                }
            }
            // A list without rules stands for any arguments.
            unconditional.iter().for_each(|number| drop(rules.insert(*number, Vec::new())));
            let error = SeccompAction::Errno(error.unsigned_abs());
            programs.push(program(rules, SeccompAction::Allow, error)?);
        }
        Ok(programs)
    }
}

fn rule(conditions: Conditions) -> Result<SeccompRule, String> {
    let conditions = conditions.into_iter().map(|(argument, operator, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    });
    let conditions = conditions.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    SeccompRule::new(conditions).map_err(|error| error.to_string())
}

/// Returns the number of a call on this architecture, or `None` if there is no such call.
fn number(call: &str) -> Option<i64> {
    Some(call.parse::<Sysno>().ok()?.id().into())
}

/// Returns the filters of `SystemCallFilter=`: one for each action of a forbidden call.
fn system_calls(filter: &SystemCallFilter, error: Option<u16>) -> Result<Vec<Filter>, String> {
    let usual = error.map_or(SystemCallAction::Kill, SystemCallAction::Error);
    let mut calls: BTreeMap<SystemCallOrder, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for (call, own) in &filter.calls {
        let action = if filter.permit { usual } else { own.unwrap_or(usual) };
        let rules = calls.entry(SystemCallOrder::of(action)).or_default();
        rules.extend(number(call).map(|number| (number, Vec::new())));
    }
    // A program that kills is the last one, since it may forbid the installation of another one.
    let programs = calls.into_iter().rev().map(|(action, rules)| match filter.permit {
        true => program(rules, action.action(), SeccompAction::Allow),
        false => program(rules, SeccompAction::Allow, action.action()),
    });
    programs.collect()
}

/// Action with an order: the error number, or 0 to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SystemCallOrder(u16);

impl SystemCallOrder {
    fn of(action: SystemCallAction) -> Self {
        match action {
            SystemCallAction::Error(number) => Self(number),
            _ => Self(0),
        }
    }

    fn action(self) -> SeccompAction {
        match self.0 {
            0 => SeccompAction::KillProcess,
            number => SeccompAction::Errno(number.into()),
        }
    }
}

/// Builds a program that also kills the process at a call of another architecture.
fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<Filter, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch);
    let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
    let built = program.into_iter().map(|it| (it.code, it.jt, it.jf, it.k));
    Ok(x32_refusal().into_iter().chain(built).collect())
}

/// Returns instructions that kill the process at a call of the x32 ABI, which would pass for a call
/// of x86-64 with a number that no rule names.
fn x32_refusal() -> Vec<BpfInstruction> {
    const LOAD_NUMBER: BpfInstruction = (0x20, 0, 0, 0);
    const SKIP_NEXT_WITHOUT_X32_BIT: BpfInstruction = (0x45, 0, 1, 0x4000_0000);
    const KILL: BpfInstruction = (0x06, 0, 0, libc::SECCOMP_RET_KILL_PROCESS);
    match std::env::consts::ARCH {
        "x86_64" => vec![LOAD_NUMBER, SKIP_NEXT_WITHOUT_X32_BIT, KILL],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const NATIVE: u32 = match cfg!(target_arch = "x86_64") {
        true => 0xc000_003e,
        false => 0xc000_00b7,
    };

    /// Runs a filter as the kernel does, and returns its action for a system call.
    fn action(filter: &[BpfInstruction], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let words = arguments.iter().flat_map(|it| [*it as u32, (*it >> 32) as u32]);
        let data: Vec<u32> = [number, arch, 0, 0].into_iter().chain(words).collect();
        let (mut at, mut value) = (0, 0);
        loop {
            let (code, jt, jf, k) = filter[at];
            let jump = |is_true| usize::from(if is_true { jt } else { jf });
            at += 1;
            match code {
                0x20 => value = data[k as usize / 4],
                0x54 => value &= k,
                0x05 => at += k as usize,
                0x15 => at += jump(value == k),
                0x25 => at += jump(value > k),
                0x35 => at += jump(value >= k),
                0x45 => at += jump(value & k != 0),
                0x06 => return k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    /// Returns the strongest action of all filters.
    fn decide(sandbox: &Sandbox, call: &str, arguments: &[u64]) -> u32 {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let number = u32::try_from(number(call).expect("it is known")).expect("it is small");
        let filters = filters(sandbox).expect("they can be built");
        let actions = filters.iter().map(|filter| action(filter, NATIVE, number, all));
        actions.min_by_key(|action| action.cast_signed()).unwrap_or(ALLOW)
    }

    fn errno(number: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | number.unsigned_abs()
    }

    fn sandbox(change: impl FnOnce(&mut Sandbox)) -> Sandbox {
        let mut sandbox = Sandbox::default();
        change(&mut sandbox);
        sandbox
    }

    fn with(switch: SandboxSwitch) -> Sandbox {
        sandbox(|it| it.switches = [switch].into())
    }

    #[test]
    fn switches_forbid_calls_by_their_arguments() {
        use SandboxSwitch::{
            LockPersonality, MemoryDenyWriteExecute, ProtectClock, RestrictRealtime,
            RestrictSUIDSGID,
        };
        let denied = errno(libc::EPERM);
        for (switch, call, arguments, expected) in [
            (LockPersonality, "personality", &[8][..], denied),
            (LockPersonality, "personality", &[0], ALLOW),
            (MemoryDenyWriteExecute, "mmap", &[0, 0, 6], denied),
            (MemoryDenyWriteExecute, "mmap", &[0, 0, 5], ALLOW),
            (MemoryDenyWriteExecute, "mprotect", &[0, 0, 4], denied),
            (ProtectClock, "clock_settime", &[], denied),
            (ProtectClock, "clock_gettime", &[], ALLOW),
            (RestrictRealtime, "sched_setscheduler", &[0, 1], denied),
            (RestrictRealtime, "sched_setscheduler", &[0, 3], ALLOW),
            (RestrictSUIDSGID, "fchmodat", &[0, 0, 0o4755], denied),
            (RestrictSUIDSGID, "fchmodat", &[0, 0, 0o1755], ALLOW),
            (RestrictSUIDSGID, "openat", &[0, 0, 0o100, 0o2700], denied),
            (RestrictSUIDSGID, "openat", &[0, 0, 0, 0o2700], ALLOW),
            (RestrictSUIDSGID, "openat2", &[], errno(libc::ENOSYS)),
        ] {
            let found = decide(&with(switch), call, arguments);
            assert_eq!(found, expected, "{switch:?} {call} {arguments:?}");
        }
    }

    #[test]
    fn families_and_namespaces_are_restricted() {
        let families = |permit, list: &[u16]| {
            let families = list.iter().copied().collect();
            sandbox(|it| it.address_families = Some(AddressFamilies { permit, families }))
        };
        let unsupported = errno(libc::EAFNOSUPPORT);
        for (restricted, family, expected) in [
            (families(true, &[1, 2]), 2, ALLOW),
            (families(true, &[1, 2]), 10, unsupported),
            (families(true, &[]), 1, unsupported),
            (families(false, &[2]), 2, unsupported),
            (families(false, &[2]), 1, ALLOW),
        ] {
            assert_eq!(
                decide(&restricted, "socket", &[family]),
                expected,
                "{restricted:?} {family}"
            );
        }
        let user = u64::from(0x1000_0000_u32);
        let restricted = sandbox(|it| it.namespaces = Some(0x4000_0000));
        for (call, arguments, expected) in [
            ("unshare", &[user][..], errno(libc::EPERM)),
            ("unshare", &[0x4000_0000], ALLOW),
            ("clone", &[user | 17], errno(libc::EPERM)),
            ("clone", &[17], ALLOW),
            ("clone3", &[], errno(libc::ENOSYS)),
            ("setns", &[3, 0], errno(libc::EPERM)),
            ("setns", &[3, 0x4000_0000], ALLOW),
        ] {
            assert_eq!(decide(&restricted, call, arguments), expected, "{call} {arguments:?}");
        }
    }

    #[test]
    fn call_filters_have_actions() {
        let filter = |permit, calls: &[(&str, Option<SystemCallAction>)]| SystemCallFilter {
            permit,
            calls: calls.iter().map(|(call, action)| ((*call).to_owned(), *action)).collect(),
        };
        let calls = [("read", None), ("no_such_call", None)];
        let mut permitted = sandbox(|it| it.system_calls = Some(filter(true, &calls)));
        assert_eq!(decide(&permitted, "read", &[]), ALLOW);
        assert_eq!(decide(&permitted, "write", &[]), KILL);
        permitted.system_call_error = Some(1);
        assert_eq!(decide(&permitted, "write", &[]), errno(libc::EPERM));
        let own = Some(SystemCallAction::Error(13));
        let calls = [("reboot", None), ("swapon", own)];
        let denied = sandbox(|it| it.system_calls = Some(filter(false, &calls)));
        assert_eq!(decide(&denied, "reboot", &[]), KILL);
        assert_eq!(decide(&denied, "swapon", &[]), errno(libc::EACCES));
        assert_eq!(decide(&denied, "read", &[]), ALLOW);
    }

    #[test]
    fn other_architectures_are_killed() {
        const I386: u32 = 0x4000_0003;
        const X32: u32 = 0x4000_0000;
        let filters = filters(&with(SandboxSwitch::NativeSystemCalls)).expect("it can be built");
        assert_eq!(filters.len(), 1);
        assert_eq!(action(&filters[0], NATIVE, 0, [0; 6]), ALLOW);
        assert_eq!(action(&filters[0], I386, 0, [0; 6]), KILL);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(action(&filters[0], NATIVE, X32, [0; 6]), KILL);
        }
    }
}
