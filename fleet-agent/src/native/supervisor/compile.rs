//! Compiles a unit file into the definition that the supervisor runs, or reports the lines that
//! prevent this: those that the model or this host does not support.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_core::graph::cgroup_filters::DevicePolicy;
use fleet_core::graph::systemd::{
    AcceptedOptions, CompileOptions, CompiledUnit, Confinement, OptionGroup, OptionPosition,
    RefusalCause, Remark, RemarkKind, UnitRefusal, UnitRefusals,
};
use fleet_core::graph::{Command, Run, systemd};
use fleet_unitfile::{UnitFile, UnitName};
use jiff::tz::TimeZone;
use nix::unistd::{Gid, Group, Uid, User as Account};
use rustix::thread::{CapabilitySet, capabilities};

use crate::native::linux::identity::specifiers;
use crate::native::linux::limits::{CgroupSetting, settings};

/// Maximum number of refusals reported per unit.
const MAX_REFUSALS: usize = 8;

/// Reasons for refusing a unit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadSetting {
    /// First line concerned, counted from one; zero if the whole file is concerned.
    pub(crate) line: usize,
    /// Description of the problems, each with a remedy.
    pub(crate) problem: String,
}

/// Compiles a unit file. Nothing of a refused unit ever runs.
pub(crate) fn compile(
    unit: &UnitName,
    file: &UnitFile,
    host: &HostCapabilities,
) -> Result<CompiledUnit, BadSetting> {
    let mut compiled = systemd::compile(unit, file, &host.site).map_err(|it| bad_setting(&it))?;
    let mut all: Vec<UnitRefusal> = unknown_zone(&compiled).into_iter().collect();
    for it in unsupported(&compiled.unit.run, host) {
        let group = it.changes_privileges.then_some(OptionGroup::Sandboxing);
        let problem = refusal(&compiled, "Service", it.option, group, it.problem);
        if !it.changes_privileges || host.site.accept.contains(it.option, group) {
            (it.remove)(&mut Arc::make_mut(&mut compiled.unit).run);
            let text = format!("is ignored: it {}", problem.problem);
            let kind = match it.changes_privileges {
                true => RemarkKind::Accepted(group),
                false if LIMITS.contains(&it.option) => RemarkKind::Unenforced,
                false => RemarkKind::Difference,
            };
            let remark = |position| Remark::new(position, text).with_kind(kind);
            compiled.remarks.extend(problem.position.map(remark));
        } else {
            all.push(problem);
        }
    }
    if !all.is_empty() {
        return Err(bad_setting(&UnitRefusals { unit: unit.clone(), all }));
    }
    Ok(compiled)
}

/// Returns the options that are not honoured, or only in part, each with its line.
pub(crate) fn ignored_options(compiled: &CompiledUnit) -> Vec<String> {
    places(compiled.remarks.iter())
}

/// Returns those of the [`ignored_options`] that confine processes, limit their resources or change
/// their privileges.
pub(crate) fn ignored_sandboxing(compiled: &CompiledUnit) -> Vec<String> {
    places(compiled.remarks.iter().filter(|remark| remark.loses_sandboxing()))
}

fn places<'a>(remarks: impl Iterator<Item = &'a Remark>) -> Vec<String> {
    let places = remarks.map(|remark| &remark.position);
    places.map(|place| format!("{}= (line {})", place.name(), place.line)).collect()
}

/// Options whose loss removes a limit. Weights only divide what there is.
const LIMITS: [&str; 4] = ["CPUQuota", "MemoryHigh", "MemoryMax", "TasksMax"];

/// Summarizes the refusals in one text. Options that the operator can accept share one sentence,
/// which ends with the setting to change.
fn bad_setting(refusals: &UnitRefusals) -> BadSetting {
    let first = refusals.all.iter().find_map(|it| it.position.as_ref());
    let line = first.map_or(0, |it| it.line);
    let (mut acceptable, others): (Vec<_>, Vec<_>) =
        refusals.all.iter().partition(|refusal| refusal.group.is_some());
    // Of an option on several lines, the first one is enough.
    let mut named = BTreeSet::new();
    acceptable.retain(|it| it.position.as_ref().is_none_or(|it| named.insert(it.name())));
    // The caller reports the first line separately.
    let place = |place: &OptionPosition| match place.line == line {
        true => format!("{}=", place.name()),
        false => format!("{}= (line {})", place.name(), place.line),
    };
    let mut messages: Vec<String> = Vec::new();
    match &acceptable[..] {
        [] => {}
        [one] => {
            let place = one.position.as_ref().map_or_else(String::new, place);
            let setting = setting(&acceptable);
            messages.push(format!("{place} {}, or {setting} to run without it", one.problem));
        }
        all => messages.push(format!(
            "{} are not supported by the native service manager: {} to run without them",
            list(all.iter().filter_map(|it| it.position.as_ref()).map(place).collect()),
            setting(all)
        )),
    }
    messages.extend(others.iter().take(MAX_REFUSALS).map(|refusal| {
        let place = refusal.position.as_ref().map_or_else(String::new, |it| place(it) + " ");
        format!("{place}{}", refusal.problem)
    }));
    if others.len() > MAX_REFUSALS {
        messages.push("and more".to_owned());
    }
    BadSetting { line, problem: messages.join("; ") }
}

/// Returns the setting that accepts the loss of these options.
fn setting(refusals: &[&UnitRefusal]) -> String {
    let groups: BTreeSet<OptionGroup> = refusals.iter().filter_map(|it| it.group).collect();
    let groups: Vec<String> = groups.iter().map(|group| format!("\"{group}\"")).collect();
    format!("set native_accept = [{}]", groups.join(", "))
}

/// Joins the first of these texts, and counts the others.
fn list(mut texts: Vec<String>) -> String {
    let more = texts.len().saturating_sub(MAX_REFUSALS);
    texts.truncate(MAX_REFUSALS);
    let last = match more {
        0 => texts.pop().unwrap_or_default(),
        more => format!("{more} more"),
    };
    format!("{} and {last}", texts.join(", "))
}

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
    /// Whether the devices and addresses of control groups can be filtered.
    pub(crate) cgroup_filters: bool,
    /// Values of specifiers, and options that the operator accepts.
    pub(crate) site: CompileOptions,
}

/// Returns the supervisor's own identity, with the options that its operator accepts.
pub(crate) fn host_capabilities(
    accept: AcceptedOptions,
    controllers: Result<BTreeSet<String>, String>,
    cgroup_filters: bool,
    has_executor: bool,
) -> HostCapabilities {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let user = Account::from_uid(uid).ok().flatten().map(|account| account.name);
    let group = Group::from_gid(gid).ok().flatten().map(|group| group.name);
    HostCapabilities {
        root: uid.is_root(),
        users: user.into_iter().chain([uid.to_string()]).collect(),
        groups: group.into_iter().chain([gid.to_string()]).collect(),
        controllers,
        cgroup_filters,
        site: CompileOptions {
            specifiers: specifiers(),
            accept,
            confinement: confinement(has_executor),
        },
    }
}

/// Returns the restrictions that can be imposed on processes here. Root lacks the capability for
/// namespaces in most containers.
fn confinement(has_executor: bool) -> Confinement {
    let own = capabilities(None).map(|sets| sets.effective);
    match own {
        _ if !has_executor => Confinement::None,
        Ok(own) if own.contains(CapabilitySet::SYS_ADMIN) => Confinement::All,
        _ => Confinement::Unprivileged,
    }
}

/// A setting that this host cannot provide.
struct UnsupportedSetting {
    option: &'static str,
    /// Whether its loss changes the privileges of processes, so that the operator must accept it.
    changes_privileges: bool,
    /// Reason and remedy.
    problem: String,
    /// Removes the setting.
    remove: fn(&mut Run),
}

const NEEDS_ROOT: &str = "needs root: remove it, or run fleet as root";

/// Stanza keys of systemd options.
const STANZA_KEYS: [(&str, &str); 18] = [
    ("MemoryMax", "memory-max"),
    ("MemoryHigh", "memory-high"),
    ("TasksMax", "tasks-max"),
    ("CPUWeight", "cpu-weight"),
    ("CPUQuota", "cpu-quota"),
    ("IOWeight", "io-weight"),
    ("Nice", "nice"),
    ("OOMScoreAdjust", "oom-score-adjust"),
    ("SupplementaryGroups", "groups"),
    ("User", "user"),
    ("Group", "group"),
    ("ExecCondition", "exec-condition"),
    ("ExecStartPre", "exec-start-pre"),
    ("ExecStart", "exec-start"),
    ("ExecStartPost", "exec-start-post"),
    ("ExecReload", "exec-reload"),
    ("ExecStop", "exec-stop"),
    ("ExecStopPost", "exec-stop-post"),
];

/// Checks whether a unit of an `InitSupervisor` can run on this host.
///
/// # Errors
///
/// Returns all reasons why the unit cannot run. Each reason begins with the stanza key of the
/// option.
pub(crate) fn check_supported(run: &Run, host: &HostCapabilities) -> Result<(), String> {
    let key = |option| STANZA_KEYS.iter().find(|row| row.0 == option).map_or(option, |row| row.1);
    let problems = unsupported(run, host).into_iter();
    let messages: Vec<String> =
        problems.map(|it| format!("{} {}", key(it.option), it.problem)).collect();
    if messages.is_empty() { Ok(()) } else { Err(messages.join("; ")) }
}

fn unsupported(run: &Run, host: &HostCapabilities) -> Vec<UnsupportedSetting> {
    let mut all = privileged_settings(run, host);
    all.extend(resources(run, host));
    all.extend(privileges(run, host));
    all.extend(cgroup_filters(run).into_iter().filter(|_| !host.cgroup_filters));
    all
}

/// Returns a refusal if a calendar event names an unknown time zone.
fn unknown_zone(compiled: &CompiledUnit) -> Option<UnitRefusal> {
    let zone = compiled.timer.as_ref()?.zones().find(|zone| !is_zone(zone))?;
    let problem = format!(
        "names the zone {zone:?}, which this machine does not know: write UTC or a name such as \
         Europe/Berlin, or install the database of time zones (tzdata)"
    );
    Some(refusal(compiled, "Timer", "OnCalendar", None, problem))
}

/// Returns the resource limits that no cgroup controller can enforce on this host.
fn resources(run: &Run, host: &HostCapabilities) -> Vec<UnsupportedSetting> {
    let unsupported = |setting: &CgroupSetting| match &host.controllers {
        Ok(available) if available.contains(setting.controller) => None,
        Ok(_) => Some(format!(
            "needs the cgroup controller {}, which is not delegated here: delegate it to fleet \
             alone, or remove the option",
            setting.controller
        )),
        Err(why) => Some(format!("needs control groups: {why}")),
    };
    let settings = settings(&run.resources).into_iter();
    let lost = settings.filter_map(|it| {
        let (option, problem) = (it.option, unsupported(&it)?);
        Some(UnsupportedSetting {
            option,
            changes_privileges: false,
            problem,
            remove: remover(option),
        })
    });
    lost.collect()
}

/// Returns the filters of the control group, which this host cannot set.
fn cgroup_filters(run: &Run) -> Vec<UnsupportedSetting> {
    let it = &run.cgroup_filters;
    let unsupported = |option, remove| UnsupportedSetting {
        option,
        changes_privileges: true,
        problem:
            "needs root, cgroup v2, and a kernel with BPF programs for control groups: remove \
                  it, or run fleet where these are available"
                .to_owned(),
        remove,
    };
    let wanted = [
        (
            it.device_policy != DevicePolicy::Auto,
            unsupported("DevicePolicy", |run| {
                run.cgroup_filters.device_policy = DevicePolicy::Auto;
            }),
        ),
        (
            !it.devices.is_empty(),
            unsupported("DeviceAllow", |run| run.cgroup_filters.devices.clear()),
        ),
        (
            !it.denied_addresses.is_empty(),
            unsupported("IPAddressDeny", |run| run.cgroup_filters.denied_addresses.clear()),
        ),
    ];
    wanted.into_iter().filter(|(is_used, _)| *is_used).map(|(_, unsupported)| unsupported).collect()
}

/// Returns the function that removes a resource limit.
fn remover(option: &str) -> fn(&mut Run) {
    match option {
        "CPUQuota" => |run| run.resources.cpu_quota = None,
        "CPUWeight" => |run| run.resources.cpu_weight = None,
        "IOWeight" => |run| run.resources.io_weight = None,
        "MemoryHigh" => |run| run.resources.memory_high = None,
        "MemoryMax" => |run| run.resources.memory_max = None,
        _ => |run| run.resources.tasks_max = None,
    }
}

/// Returns the settings that only root can give to a process.
fn privileged_settings(run: &Run, host: &HostCapabilities) -> Vec<UnsupportedSetting> {
    let it = &run.exec_environment;
    let unsupported = |option, changes_privileges, remove| UnsupportedSetting {
        option,
        changes_privileges,
        problem: NEEDS_ROOT.to_owned(),
        remove,
    };
    let requested = [
        (
            it.nice.is_some_and(|nice| nice < 0),
            unsupported("Nice", false, |run| run.exec_environment.nice = None),
        ),
        (
            it.oom_score_adjust.is_some_and(|score| score < 0),
            unsupported("OOMScoreAdjust", false, |run| {
                run.exec_environment.oom_score_adjust = None;
            }),
        ),
        (
            !it.supplementary_groups.is_empty(),
            unsupported("SupplementaryGroups", true, |run| {
                run.exec_environment.supplementary_groups.clear();
            }),
        ),
    ];
    let requested = requested.into_iter().filter(|(is_used, _)| *is_used && !host.root);
    requested.map(|(_, unsupported)| unsupported).collect()
}

/// Returns the user, the group and the command prefixes that need root.
fn privileges(run: &Run, host: &HostCapabilities) -> Vec<UnsupportedSetting> {
    let (user, group) = (&run.exec_environment.user, &run.exec_environment.group);
    let other = |kind: &str, wanted: &Option<String>, own: &[String]| {
        let wanted = wanted.as_ref().filter(|wanted| !host.root && !own.contains(wanted))?;
        let own = own.first().map_or("", String::as_str);
        Some(format!(
            "is {wanted:?}, but fleet runs as the {kind} {own:?} and may not change it: \
             remove the option, or run fleet as root"
        ))
    };
    let unsupported = |option, problem, remove| UnsupportedSetting {
        option,
        changes_privileges: true,
        problem,
        remove,
    };
    let user_problem = other("user", user, &host.users)
        .map(|problem| unsupported("User", problem, |run| run.exec_environment.user = None));
    let group_problem = other("group", group, &host.groups)
        .map(|problem| unsupported("Group", problem, |run| run.exec_environment.group = None));
    let mut all: Vec<UnsupportedSetting> = user_problem.into_iter().chain(group_problem).collect();
    for (name, list) in command_lists(run) {
        if !host.root && list.iter().any(|command| command.privileged) {
            let problem = "is not allowed: the prefixes \"+\" and \"!\" need root, but fleet does \
                           not run as root: remove them";
            all.push(unsupported(name, problem.to_owned(), remove_privileges));
        }
    }
    all
}

/// Removes the prefixes `+` and `!` of all commands.
fn remove_privileges(run: &mut Run) {
    let lists = [
        &mut run.exec_condition,
        &mut run.start_pre,
        &mut run.start,
        &mut run.start_post,
        &mut run.reload,
        &mut run.stop,
        &mut run.stop_post,
    ];
    lists.into_iter().flatten().for_each(|command| command.privileged = false);
}

/// Returns whether this machine knows a time zone.
fn is_zone(name: &str) -> bool {
    name.eq_ignore_ascii_case("UTC") || TimeZone::get(name).is_ok()
}

fn command_lists(run: &Run) -> [(&'static str, &[Command]); 7] {
    [
        ("ExecCondition", &run.exec_condition),
        ("ExecStartPre", &run.start_pre),
        ("ExecStart", &run.start),
        ("ExecStartPost", &run.start_post),
        ("ExecReload", &run.reload),
        ("ExecStop", &run.stop),
        ("ExecStopPost", &run.stop_post),
    ]
}

fn refusal(
    compiled: &CompiledUnit,
    section: &str,
    name: &str,
    group: Option<OptionGroup>,
    problem: String,
) -> UnitRefusal {
    let position = compiled.position_of(section, name);
    let problem = if position.is_none() { format!("{name}= {problem}") } else { problem };
    UnitRefusal { position, cause: RefusalCause::Setting, group, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_zones_are_known() {
        assert!(is_zone("utc") && is_zone("Europe/Berlin") && !is_zone("Europe/Atlantis"));
    }
}
