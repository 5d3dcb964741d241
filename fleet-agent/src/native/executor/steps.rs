//! Carries out the steps, up to the exec.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Access, Mode, access};
use rustix::process::{Gid, Resource, Rlimit, Uid, chdir, getgid, getuid, umask};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, CpuSet, LinkNameSpaceType, capabilities,
    configure_capability_in_ambient_set, move_into_link_name_space, no_new_privs,
    remove_capability_from_bounding_set, sched_setaffinity, set_capabilities,
    set_capabilities_secure_bits, set_current_timer_slack, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::plan::{self, DirectoryPlan, ExecFailure, ExecPlan, IdentityPlan, SchedulingPlan};
use super::{keyring, mounts, network, syscalls, users};
use crate::native::linux::child::{Program, is_pid_variable, reset_signals, resource, set_limit};

type Step<T = ()> = Result<T, ExecFailure>;

/// Carries out all steps, and executes the program. Returns only on failure. Calls `ready` before
/// the last steps.
pub(super) fn execute(plan: &ExecPlan, ready: impl FnOnce()) -> ExecFailure {
    match run(plan, ready) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn run(plan: &ExecPlan, ready: impl FnOnce()) -> Step<Infallible> {
    schedule(&plan.scheduling)?;
    if let Some(personality) = plan.personality {
        syscalls::set_personality(personality)
            .map_err(failed(plan::EXIT_PERSONALITY, "set its personality"))?;
    }
    keyring::enter(plan).map_err(failed(plan::EXIT_KEYRING, "create its keyring"))?;
    enter_namespaces(plan)?;
    // Without a namespace of its own, changes would apply to the whole machine.
    if plan.namespaces & CloneFlags::CLONE_NEWNS.bits() != 0 {
        mounts::apply(&plan.mounts)?;
    }
    let present = (getuid().as_raw(), getgid().as_raw());
    set_groups(plan)?;
    if let Some(own) = plan.private_users {
        users::hide_others(present, own)
            .map_err(failed(plan::EXIT_USER, "create its user namespace"))?;
    }
    set_limits(&plan.limits)?;
    limit_capabilities(plan.bounding_set)?;
    change_identity(plan)?;
    umask(Mode::from_raw_mode(plan.umask));
    enter_directory(&plan.directory)?;
    let bits = CapabilitiesSecureBits::from_bits_retain(plan.secure_bits);
    if !bits.is_empty() {
        set_capabilities_secure_bits(bits)
            .map_err(failed(plan::EXIT_SECUREBITS, "set its secure bits"))?;
    }
    let program = program(plan)?;
    // A filter may forbid the calls that this needs, or kill the process at the exec.
    ready();
    reset_signals(plan.ignore_sigpipe);
    install_filters(plan)?;
    let error = program.execute().1.into();
    Err(ExecFailure::new(plan::EXIT_EXEC, format!("run {}", plan.arguments[0]), &error))
}

/// Returns the function that makes an error a failure of this step.
fn failed<E: Into<io::Error>>(code: i32, step: &str) -> impl Fn(E) -> ExecFailure {
    move |error| ExecFailure::new(code, step, &error.into())
}

fn schedule(scheduling: &SchedulingPlan) -> Step {
    let SchedulingPlan { processors, cpu, io, timer_slack, coredump_filter } = scheduling;
    if !processors.is_empty() {
        let mut set = CpuSet::new();
        let known = processors.iter().filter(|number| usize::from(**number) < CpuSet::MAX_CPU);
        known.for_each(|number| set.set(usize::from(*number)));
        sched_setaffinity(None, &set)
            .map_err(failed(plan::EXIT_CPUAFFINITY, "restrict it to its processors"))?;
    }
    if let Some((policy, priority)) = *cpu {
        syscalls::set_scheduler(policy, priority)
            .map_err(failed(plan::EXIT_SETSCHEDULER, "set its scheduling policy"))?;
    }
    if let Some((class, priority)) = *io {
        syscalls::set_io_priority(class, priority)
            .map_err(failed(plan::EXIT_IOPRIO, "set its I/O scheduling class"))?;
    }
    if let Some(nanoseconds) = timer_slack.and_then(std::num::NonZero::new) {
        set_current_timer_slack(Some(nanoseconds))
            .map_err(failed(plan::EXIT_TIMERSLACK, "set its timer slack"))?;
    }
    if let Some(filter) = coredump_filter {
        fs::write("/proc/self/coredump_filter", format!("{filter:#x}"))
            .map_err(failed(plan::EXIT_LIMITS, "set its filter of core dumps"))?;
    }
    Ok(())
}

fn enter_namespaces(plan: &ExecPlan) -> Step {
    let mut new = CloneFlags::from_bits_retain(plan.namespaces);
    let shared = [
        ("net", CloneFlags::CLONE_NEWNET, LinkNameSpaceType::Network),
        ("ipc", CloneFlags::CLONE_NEWIPC, LinkNameSpaceType::InterProcessCommunication),
    ];
    for ((name, flag, link_type), path) in shared.into_iter().zip(&plan.namespace_paths) {
        if let Some(path) = path {
            let enter = || -> io::Result<()> {
                let namespace = File::open(path)?;
                Ok(move_into_link_name_space(namespace.as_fd(), Some(link_type))?)
            };
            let code = if name == "net" { plan::EXIT_NETWORK } else { plan::EXIT_NAMESPACE };
            enter().map_err(failed(code, &format!("enter the namespace {path}")))?;
            new.remove(flag);
        }
        let Some(pid) = plan.shares_namespaces_of.filter(|_| new.contains(flag)) else { continue };
        let path = format!("/proc/{pid}/ns/{name}");
        // Without that process, a namespace of its own is the best choice. So it is if that process
        // is not confined.
        let is_own = |path: &str| Some(fs::metadata(path).ok()?.ino());
        let is_machines = is_own(&path) == is_own(&format!("/proc/self/ns/{name}"));
        if let Some(namespace) = File::open(path).ok().filter(|_| !is_machines) {
            move_into_link_name_space(namespace.as_fd(), Some(link_type))
                .map_err(failed(plan::EXIT_NAMESPACE, "enter the namespaces of its unit"))?;
            new.remove(flag);
        }
    }
    if !new.is_empty() {
        unshare(new).map_err(failed(plan::EXIT_NAMESPACE, "create its namespaces"))?;
    }
    if new.contains(CloneFlags::CLONE_NEWNET) {
        network::bring_loopback_up()
            .map_err(failed(plan::EXIT_NETWORK, "bring its loopback interface up"))?;
    }
    Ok(())
}

fn set_limits(limits: &BTreeMap<String, (Option<u64>, Option<u64>)>) -> Step {
    let known = |(name, limit): (&String, &(Option<u64>, Option<u64>))| {
        let (current, maximum) = *limit;
        Some((resource(name)?, Rlimit { current, maximum }))
    };
    // The limit of memory is last, since it may prevent the other steps.
    let mut all: Vec<(Resource, Rlimit)> = limits.iter().filter_map(known).collect();
    all.sort_by_key(|(resource, _)| *resource == Resource::As);
    for (resource, limit) in all {
        set_limit(resource, limit).map_err(failed(plan::EXIT_LIMITS, "set its limits"))?;
    }
    Ok(())
}

fn limit_capabilities(bounding_set: Option<u64>) -> Step {
    let Some(kept) = bounding_set else { return Ok(()) };
    for bit in (0..u64::BITS).filter(|bit| kept & (1 << bit) == 0) {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            // The kernel knows no further ones.
            Err(rustix::io::Errno::INVAL) => break,
            removed => {
                removed.map_err(failed(plan::EXIT_CAPABILITIES, "limit its capabilities"))?;
            }
        }
    }
    Ok(())
}

/// Changes the user. Capabilities that the program shall have survive the change.
fn change_identity(plan: &ExecPlan) -> Step {
    let before = capabilities(None);
    let before =
        before.map_err(failed(plan::EXIT_CAPABILITIES, "read the capabilities of its executor"))?;
    let ambient = CapabilitySet::from_bits_retain(plan.ambient);
    if let Some(identity) = &plan.identity {
        let keeps = identity.uid.is_some() && (!ambient.is_empty() || plan.secure_bits != 0);
        if keeps {
            set_capabilities_secure_bits(CapabilitiesSecureBits::KEEP_CAPS)
                .map_err(failed(plan::EXIT_SECUREBITS, "keep its capabilities"))?;
        }
        take(identity)?;
        if keeps {
            // The secure bits need `CAP_SETPCAP`. The exec drops it.
            let kept = before.permitted & (ambient | CapabilitySet::SETPCAP);
            let sets = CapabilitySets { effective: kept, permitted: kept, ..before };
            set_capabilities(None, sets)
                .map_err(failed(plan::EXIT_CAPABILITIES, "set its capabilities"))?;
        }
    }
    if ambient.is_empty() {
        return Ok(());
    }
    let refused = failed(plan::EXIT_CAPABILITIES, "give it its capabilities");
    let present = capabilities(None).map_err(&refused)?;
    let inheritable = present.inheritable | ambient;
    set_capabilities(None, CapabilitySets { inheritable, ..present }).map_err(&refused)?;
    for capability in ambient.iter() {
        configure_capability_in_ambient_set(capability, true).map_err(&refused)?;
    }
    Ok(())
}

/// Changes the groups. A user namespace does not permit that any more.
fn set_groups(plan: &ExecPlan) -> Step {
    let Some(identity) = &plan.identity else { return Ok(()) };
    let groups = || -> rustix::io::Result<()> {
        if let Some(groups) = &identity.groups {
            let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
            set_thread_groups(&groups)?;
        }
        let change = |gid| set_thread_res_gid(gid, gid, gid);
        identity.gid.map(Gid::from_raw).map_or(Ok(()), change)
    };
    groups().map_err(failed(plan::EXIT_GROUP, "change to its groups"))
}

fn take(identity: &IdentityPlan) -> Step {
    let change = |uid| set_thread_res_uid(uid, uid, uid);
    let user = identity.uid.map(Uid::from_raw).map_or(Ok(()), change);
    user.map_err(failed(plan::EXIT_USER, "change to its user"))
}

fn enter_directory(directory: &DirectoryPlan) -> Step {
    let path = Path::new(&directory.path);
    let entered = match chdir(path) {
        Err(_) if directory.optional => chdir("/"),
        entered => entered,
    };
    let step = format!("enter its working directory {}", path.display());
    entered.map_err(failed(plan::EXIT_CHDIR, &step))
}

/// Finds the program, and prepares its exec.
fn program(plan: &ExecPlan) -> Step<Program> {
    let executable = |path: &&String| access(path.as_str(), Access::EXEC_OK).is_ok();
    let path = plan.candidates.iter().find(executable).or(plan.candidates.last());
    let text = |text: &str| CString::new(text).map_err(io::Error::from);
    let texts = |texts: &mut dyn Iterator<Item = &str>| texts.map(text).collect::<Result<_, _>>();
    let variables = plan.environment.iter().filter(|it| !is_pid_variable(it.0));
    let variables: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
    let program = || -> io::Result<Program> {
        Ok(Program::new(
            text(path.map_or("", String::as_str))?,
            texts(&mut plan.arguments.iter().map(String::as_str))?,
            texts(&mut variables.iter().map(String::as_str))?,
            |name| plan.environment.contains_key(name),
        ))
    };
    program().map_err(failed(plan::EXIT_EXEC, "prepare its program"))
}

/// Installs the filters. Without `CAP_SYS_ADMIN`, this requires that the process gives up gaining
/// privileges by an exec.
fn install_filters(plan: &ExecPlan) -> Step {
    let is_privileged = || {
        let present =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        present || no_new_privs().unwrap_or(false)
    };
    if plan.no_new_privileges || (!plan.filters.is_empty() && !is_privileged()) {
        set_no_new_privs(true)
            .map_err(failed(plan::EXIT_NO_NEW_PRIVILEGES, "forbid it new privileges"))?;
    }
    for filter in &plan.filters {
        syscalls::install_filter(filter)
            .map_err(failed(plan::EXIT_SECCOMP, "restrict its system calls"))?;
    }
    Ok(())
}
