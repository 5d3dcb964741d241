//! Converts the sandbox and the scheduling of a unit to the steps of an executor.

use fleet_core::graph::ExecEnvironment;
use fleet_core::graph::exec_options::{DirectoryKind, Scheduling};
use fleet_core::graph::sandbox::{
    Access, CapabilitySet, KeyringMode, ProtectHome, ProtectSystem, Sandbox, SandboxSwitch,
};
use nix::libc;

use super::filters::filters;
use super::plan::{ExecPlan, KeyringPlan, Mount, MountKind, SchedulingPlan};

/// Facts about a run that its sandbox depends on.
#[derive(Debug, Clone, Default)]
pub(in crate::native) struct SandboxContext {
    /// The run's own directories for `/tmp` and `/var/tmp`.
    pub(in crate::native) private_tmp: [String; 2],
    /// An empty file without permissions.
    pub(in crate::native) empty_file: String,
    /// User and group of the unit; `None` stands for the supervisor's.
    pub(in crate::native) ids: (Option<u32>, Option<u32>),
    /// The main process, whose network and IPC namespaces the other processes share.
    pub(in crate::native) main: Option<u32>,
}

/// Returns whether the unit needs an executor.
pub(in crate::native) fn needs_executor(exec: &ExecEnvironment) -> bool {
    exec.sandbox != Sandbox::default() || exec.scheduling != Scheduling::default()
}

/// Adds the steps for the sandbox and the scheduling to a plan. The error says why the sandbox
/// cannot be set up.
pub(in crate::native) fn confine(
    plan: &mut ExecPlan,
    exec: &ExecEnvironment,
    context: &SandboxContext,
) -> Result<(), String> {
    let sandbox = &exec.sandbox;
    plan.scheduling = scheduling(&exec.scheduling);
    plan.mounts = mounts(exec, context);
    plan.namespaces = namespaces(sandbox, !plan.mounts.is_empty());
    plan.namespace_paths = [sandbox.network_namespace.clone(), sandbox.ipc_namespace.clone()];
    plan.personality = sandbox.personality;
    plan.keyring = match sandbox.keyring {
        KeyringMode::Private => KeyringPlan::Private,
        KeyringMode::Shared => KeyringPlan::Shared,
        _ => KeyringPlan::Inherit,
    };
    plan.shares_namespaces_of = context.main;
    plan.private_users = sandbox.has(SandboxSwitch::PrivateUsers).then_some(context.ids);
    plan.bounding_set = bounding_set(sandbox).map(|set| set.0);
    plan.ambient = sandbox.ambient_capabilities.0;
    plan.secure_bits = sandbox.secure_bits;
    plan.no_new_privileges = sandbox.has(SandboxSwitch::NoNewPrivileges);
    plan.filters = filters(sandbox)?;
    Ok(())
}

fn namespaces(sandbox: &Sandbox, has_mounts: bool) -> i32 {
    let has_own_network =
        sandbox.has(SandboxSwitch::PrivateNetwork) || sandbox.network_namespace.is_some();
    let wanted = [
        (has_mounts || sandbox.has(SandboxSwitch::PrivateMounts), libc::CLONE_NEWNS),
        (has_own_network, libc::CLONE_NEWNET),
        (has_own_ipc(sandbox), libc::CLONE_NEWIPC),
        (sandbox.has(SandboxSwitch::ProtectHostname), libc::CLONE_NEWUTS),
    ];
    wanted.iter().filter(|(is_wanted, _)| *is_wanted).fold(0, |all, (_, flag)| all | flag)
}

fn has_own_ipc(sandbox: &Sandbox) -> bool {
    sandbox.has(SandboxSwitch::PrivateIPC) || sandbox.ipc_namespace.is_some()
}

/// Capabilities that are lost with a protection.
const LOST: [(SandboxSwitch, &[&str]); 4] = [
    (SandboxSwitch::PrivateDevices, &["CAP_MKNOD", "CAP_SYS_RAWIO"]),
    (SandboxSwitch::ProtectClock, &["CAP_SYS_TIME", "CAP_WAKE_ALARM"]),
    (SandboxSwitch::ProtectKernelLogs, &["CAP_SYSLOG"]),
    (SandboxSwitch::ProtectKernelModules, &["CAP_SYS_MODULE"]),
];

/// Returns the capabilities that programs may gain; `None` if these are all.
fn bounding_set(sandbox: &Sandbox) -> Option<CapabilitySet> {
    let lost = LOST.iter().filter(|(switch, _)| sandbox.has(*switch));
    let lost = lost.flat_map(|(_, names)| *names).filter_map(|name| CapabilitySet::named(name));
    let lost = lost.fold(CapabilitySet::default(), CapabilitySet::union);
    let named = sandbox.capability_bounding_set;
    let all = CapabilitySet::ALL;
    Some(named.unwrap_or(all).without(lost)).filter(|kept| *kept != all)
}

fn scheduling(scheduling: &Scheduling) -> SchedulingPlan {
    const RESET_ON_FORK: i32 = 0x4000_0000;
    const BEST_EFFORT: i32 = 2;
    const MEDIUM_PRIORITY: i32 = 4;
    let it = scheduling;
    let is_cpu = it.cpu_policy.is_some() || it.cpu_priority.is_some() || it.reset_on_fork;
    let policy = it.cpu_policy.unwrap_or_default();
    let is_realtime = [libc::SCHED_FIFO, libc::SCHED_RR].contains(&policy);
    // Only realtime policies have priorities.
    let priority = if is_realtime { it.cpu_priority.unwrap_or(1).max(1) } else { 0 };
    let flags = if it.reset_on_fork { RESET_ON_FORK } else { 0 };
    let io = match (it.io_class, it.io_priority) {
        (None, None) => None,
        (Some(0), _) => Some((0, 0)),
        (class, priority) => {
            Some((class.unwrap_or(BEST_EFFORT), priority.unwrap_or(MEDIUM_PRIORITY)))
        }
    };
    SchedulingPlan {
        processors: it.cpu_affinity.iter().copied().collect(),
        cpu: is_cpu.then_some((policy | flags, priority)),
        io,
        timer_slack: it.timer_slack,
        coredump_filter: it.coredump_filter,
    }
}

use MountKind::{Exec, NoExec, ReadOnly, ReadWrite, ReadWriteByDefault};

/// Options of small file systems without contents.
const EMPTY: &str = "mode=0755,size=10%,nr_inodes=400k";

const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// Kernel settings that `ProtectKernelTunables=` makes read-only.
const TUNABLES: [&str; 16] = [
    "/proc/acpi",
    "/proc/apm",
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/latency_stats",
    "/proc/mtrr",
    "/proc/scsi",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/timer_stats",
    "/sys",
    "/sys/fs/bpf",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
];

fn mounts(exec: &ExecEnvironment, context: &SandboxContext) -> Vec<Mount> {
    let sandbox = &exec.sandbox;
    let mut list = MountList::default();
    let inaccessible = MountKind::Inaccessible { empty_file: context.empty_file.clone() };
    list.protect_system(sandbox.protect_system);
    list.protect_home(sandbox.protect_home, &inaccessible);
    list.protect_kernel(sandbox, &inaccessible);
    if sandbox.has(SandboxSwitch::PrivateDevices) {
        list.add(&["/dev"], &MountKind::Devices, false);
    }
    let mut proc = Vec::new();
    proc.extend(sandbox.protect_proc.map(|hidden| ("hidepid".to_owned(), hidden.to_owned())));
    if sandbox.has(SandboxSwitch::ProcSubsetPid) {
        proc.push(("subset".to_owned(), "pid".to_owned()));
    }
    if !proc.is_empty() {
        let kind = MountKind::FileSystem { name: "proc".to_owned(), options: proc };
        list.add(&["/proc"], &kind, false);
    }
    if has_own_ipc(sandbox) {
        let kind = MountKind::FileSystem { name: "mqueue".to_owned(), options: Vec::new() };
        list.add(&["/dev/mqueue"], &kind, true);
    }
    if sandbox.has(SandboxSwitch::PrivateTmp) {
        for (path, source) in ["/tmp", "/var/tmp"].into_iter().zip(&context.private_tmp) {
            let source = source.clone();
            let kind = bind(source, false, false);
            list.add(&[path], &kind, false);
        }
    }
    list.add_paths(sandbox, &inaccessible);
    if !list.0.is_empty() {
        list.add_directories(exec);
    }
    list.0
}

fn bind(source: String, recursive: bool, read_only: bool) -> MountKind {
    MountKind::Bind { source, recursive, read_only, no_suid: false }
}

#[derive(Default)]
struct MountList(Vec<Mount>);

impl MountList {
    fn add(&mut self, paths: &[&str], kind: &MountKind, optional: bool) {
        let mount = |path: &&str| Mount { path: (*path).to_owned(), kind: kind.clone(), optional };
        self.0.extend(paths.iter().map(mount));
    }

    fn protect_system(&mut self, level: ProtectSystem) {
        match level {
            ProtectSystem::No => {}
            ProtectSystem::Strict => {
                self.add(&["/"], &ReadOnly, false);
                self.add(&["/dev", "/proc", "/sys"], &ReadWriteByDefault, false);
                self.add(&HOMES, &ReadWriteByDefault, true);
            }
            level => {
                self.add(&["/usr"], &ReadOnly, false);
                self.add(&["/bin", "/boot", "/efi", "/lib", "/lib64", "/sbin"], &ReadOnly, true);
                if level == ProtectSystem::Full {
                    self.add(&["/etc"], &ReadOnly, false);
                }
            }
        }
    }

    fn protect_home(&mut self, level: ProtectHome, inaccessible: &MountKind) {
        match level {
            ProtectHome::No => {}
            ProtectHome::Yes => self.add(&HOMES, inaccessible, true),
            ProtectHome::ReadOnly => self.add(&HOMES, &ReadOnly, true),
            ProtectHome::Tmpfs => {
                let options = "mode=1777,size=10%,nr_inodes=400k".to_owned();
                self.add(&HOMES, &MountKind::Tmpfs { options, read_only: false }, true);
            }
        }
    }

    fn protect_kernel(&mut self, sandbox: &Sandbox, inaccessible: &MountKind) {
        if sandbox.has(SandboxSwitch::ProtectKernelTunables) {
            self.add(&TUNABLES, &ReadOnly, true);
            self.add(&["/sys/fs/cgroup", "/sys/fs/selinux"], &ReadWriteByDefault, true);
            self.add(&["/proc/kallsyms", "/proc/kcore"], inaccessible, true);
        }
        if sandbox.has(SandboxSwitch::ProtectKernelModules) {
            self.add(&["/lib/modules", "/usr/lib/modules"], inaccessible, true);
        }
        if sandbox.has(SandboxSwitch::ProtectKernelLogs) {
            self.add(&["/dev/kmsg", "/proc/kmsg"], inaccessible, true);
        }
        if sandbox.has(SandboxSwitch::ProtectControlGroups) {
            self.add(&["/sys/fs/cgroup"], &ReadOnly, false);
        }
    }

    /// Adds the directories of the unit. Those of a dynamic user are in a directory that it cannot
    /// enter, which is replaced by one that contains nothing else.
    fn add_directories(&mut self, exec: &ExecEnvironment) {
        let is_dynamic = exec.sandbox.has(SandboxSwitch::DynamicUser);
        for kind in DirectoryKind::ALL {
            let group = exec.directories.of(kind);
            let is_private = is_dynamic && exec.directories.may_be_private(kind);
            if is_private && !group.paths.is_empty() {
                let options = format!("{EMPTY},noexec");
                let kind = MountKind::Tmpfs { options, read_only: true };
                self.add(&[&group.private_base()], &kind, false);
            }
            let is_own = |path: &str| !is_dynamic || !group.is_nested(path);
            for (path, _) in group.paths.iter().filter(|(path, _)| is_own(path)) {
                let path = if is_private { &group.private_path(path) } else { path };
                match is_dynamic {
                    false => self.add(&[path], &ReadWrite, true),
                    true => {
                        let (source, recursive, read_only) = (path.clone(), true, false);
                        let kind = MountKind::Bind { source, recursive, read_only, no_suid: true };
                        self.add(&[path], &kind, false);
                    }
                }
            }
        }
    }

    /// Adds the paths that the unit names itself.
    fn add_paths(&mut self, sandbox: &Sandbox, inaccessible: &MountKind) {
        for (path, options) in &sandbox.temporary_file_systems {
            let read_only = options.split(',').any(|option| option == "ro");
            let options = [EMPTY, options].join(",");
            self.add(&[path], &MountKind::Tmpfs { options, read_only }, false);
        }
        for bind in &sandbox.binds {
            let (source, recursive) = (bind.source.clone(), bind.recursive);
            let kind = self::bind(source, recursive, bind.read_only);
            self.add(&[&bind.target], &kind, bind.optional);
        }
        for path in &sandbox.paths {
            let kind = match path.access {
                Access::Inaccessible => inaccessible,
                Access::ReadOnly => &ReadOnly,
                Access::ReadWrite => &ReadWrite,
                Access::NoExec => &NoExec,
                Access::Exec => &Exec,
            };
            self.add(&[&path.path], kind, path.optional);
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::sandbox::{BindPath, PathAccess};

    use super::*;

    #[test]
    fn options_become_mounts() {
        let mut exec = ExecEnvironment::default();
        exec.directories.kinds[DirectoryKind::State as usize].paths =
            vec![("/var/lib/own".to_owned(), Vec::new())];
        assert!(!needs_executor(&exec) && mounts(&exec, &SandboxContext::default()).is_empty());
        let sandbox = &mut exec.sandbox;
        sandbox.protect_system = ProtectSystem::Full;
        sandbox.protect_home = ProtectHome::ReadOnly;
        sandbox.protect_proc = Some("invisible");
        sandbox.switches =
            [SandboxSwitch::PrivateTmp, SandboxSwitch::PrivateDevices].into_iter().collect();
        sandbox.temporary_file_systems = vec![("/srv".to_owned(), "ro,size=1M".to_owned())];
        sandbox.binds = vec![BindPath {
            source: "/a".to_owned(),
            target: "/srv/a".to_owned(),
            optional: true,
            read_only: true,
            recursive: false,
        }];
        let path = "/gone".to_owned();
        sandbox.paths = vec![PathAccess { access: Access::Inaccessible, path, optional: true }];
        let context = SandboxContext {
            private_tmp: ["/tmp/own/tmp", "/var/tmp/own/tmp"].map(str::to_owned),
            empty_file: "/empty".to_owned(),
            ids: (Some(1), None),
            main: Some(7),
        };
        let mut plan = ExecPlan::default();
        confine(&mut plan, &exec, &context).expect("it can be confined");
        let mounts = plan.mounts.iter().map(|mount| {
            let optional = if mount.optional { " (optional)" } else { "" };
            let kind = format!("{:?}", mount.kind).replace(", no_suid: false", "");
            format!("{}{optional}: {kind}", mount.path)
        });
        insta::assert_snapshot!(mounts.collect::<Vec<_>>().join("\n"), @r#"
        /usr: ReadOnly
        /bin (optional): ReadOnly
        /boot (optional): ReadOnly
        /efi (optional): ReadOnly
        /lib (optional): ReadOnly
        /lib64 (optional): ReadOnly
        /sbin (optional): ReadOnly
        /etc: ReadOnly
        /home (optional): ReadOnly
        /root (optional): ReadOnly
        /run/user (optional): ReadOnly
        /dev: Devices
        /proc: FileSystem { name: "proc", options: [("hidepid", "invisible")] }
        /tmp: Bind { source: "/tmp/own/tmp", recursive: false, read_only: false }
        /var/tmp: Bind { source: "/var/tmp/own/tmp", recursive: false, read_only: false }
        /srv: Tmpfs { options: "mode=0755,size=10%,nr_inodes=400k,ro,size=1M", read_only: true }
        /srv/a (optional): Bind { source: "/a", recursive: false, read_only: true }
        /gone (optional): Inaccessible { empty_file: "/empty" }
        /var/lib/own (optional): ReadWrite
        "#);
        assert_eq!((plan.namespaces, plan.shares_namespaces_of), (libc::CLONE_NEWNS, Some(7)));
        let lost = ["CAP_MKNOD", "CAP_SYS_RAWIO"].map(CapabilitySet::named);
        let lost = lost.into_iter().flatten().fold(CapabilitySet::default(), CapabilitySet::union);
        assert_eq!(plan.bounding_set, Some(CapabilitySet::ALL.without(lost).0));
    }

    #[test]
    fn priorities_have_systemds_defaults() {
        let plan = |set: fn(&mut Scheduling)| {
            let mut asked = Scheduling::default();
            set(&mut asked);
            let plan = scheduling(&asked);
            (plan.cpu, plan.io)
        };
        assert_eq!(plan(|_| {}), (None, None));
        assert_eq!(plan(|it| it.cpu_policy = Some(libc::SCHED_FIFO)), (Some((1, 1)), None));
        assert_eq!(plan(|it| it.cpu_priority = Some(9)), (Some((0, 0)), None));
        assert_eq!(plan(|it| it.reset_on_fork = true), (Some((0x4000_0000, 0)), None));
        assert_eq!(plan(|it| it.io_class = Some(3)), (None, Some((3, 4))));
        assert_eq!(plan(|it| it.io_priority = Some(0)), (None, Some((2, 0))));
        assert_eq!(plan(|it| it.io_class = Some(0)), (None, Some((0, 0))));
    }
}
