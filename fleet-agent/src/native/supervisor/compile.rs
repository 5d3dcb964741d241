//! Compiles a unit file into the definition that the supervisor runs, or reports the lines that
//! prevent this: those that the model or this host does not support.

use std::collections::BTreeSet;

use fleet_core::graph::systemd::{
    CompileOptions, CompiledUnit, RefusalCause, UnitRefusal, UnitRefusals,
};
use fleet_core::graph::{Command, Run, systemd};
use fleet_unitfile::{UnitFile, UnitName};
use jiff::tz::TimeZone;
use nix::unistd::{Gid, Group, Uid, User as Account};

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

/// A unit that can run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunnableUnit {
    pub(crate) unit: CompiledUnit,
    /// Remarks for the operator.
    pub(crate) remarks: Vec<String>,
}

/// Compiles a unit file. Nothing of a refused unit ever runs.
pub(crate) fn compile(
    unit: &UnitName,
    file: &UnitFile,
    host: &HostCapabilities,
) -> Result<RunnableUnit, BadSetting> {
    let compiled = systemd::compile(unit, file, &host.site).map_err(|it| bad_setting(&it))?;
    let unsupported_options = unsupported_options(&compiled, host);
    if !unsupported_options.is_empty() {
        return Err(bad_setting(&UnitRefusals { unit: unit.clone(), all: unsupported_options }));
    }
    let remarks = compiled.remarks.iter().map(ToString::to_string).collect();
    Ok(RunnableUnit { unit: compiled, remarks })
}

fn bad_setting(refusals: &UnitRefusals) -> BadSetting {
    let line = refusals.all.first().and_then(|it| it.position.as_ref()).map_or(0, |it| it.line);
    let messages = refusals.all.iter().take(MAX_REFUSALS).enumerate().map(|(index, refusal)| {
        let place = refusal.position.as_ref();
        // The caller reports the first line separately.
        let place = place.map(|place| match index {
            0 => format!("{}= ", place.name()),
            _ => format!("line {}: {}= ", place.line, place.name()),
        });
        format!("{}{}", place.unwrap_or_default(), refusal.problem)
    });
    let mut problem = messages.collect::<Vec<_>>().join("; ");
    if refusals.all.len() > MAX_REFUSALS {
        problem.push_str("; and more");
    }
    BadSetting { line, problem }
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

/// An unsupported option, with the reason.
type Unsupported = (&'static str, String);

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

/// Returns all reasons why a compiled unit cannot run on this host.
pub(crate) fn unsupported_options(
    compiled: &CompiledUnit,
    host: &HostCapabilities,
) -> Vec<UnitRefusal> {
    let unsupported = unsupported(&compiled.unit.run, host).into_iter();
    let of_service = unsupported.map(|(name, problem)| refusal(compiled, "Service", name, problem));
    unknown_zone(compiled).into_iter().chain(of_service).collect()
}

/// Checks whether a unit of an `InitSupervisor` can run on this host.
///
/// # Errors
///
/// Returns all reasons why the unit cannot run. Each reason begins with the stanza key of the
/// option.
pub(crate) fn check_supported(run: &Run, host: &HostCapabilities) -> Result<(), String> {
    let key = |option| STANZA_KEYS.iter().find(|row| row.0 == option).map_or(option, |row| row.1);
    let messages =
        unsupported(run, host).into_iter().map(|(name, why)| format!("{} {why}", key(name)));
    let messages: Vec<String> = messages.collect();
    if messages.is_empty() { Ok(()) } else { Err(messages.join("; ")) }
}

fn unsupported(run: &Run, host: &HostCapabilities) -> Vec<Unsupported> {
    let mut all = privileged_settings(run, host);
    all.extend(resources(run, host));
    all.extend(privileges(run, host));
    all
}

/// Returns a refusal if a calendar event names an unknown time zone.
fn unknown_zone(compiled: &CompiledUnit) -> Option<UnitRefusal> {
    let zone = compiled.timer.as_ref()?.zones().find(|zone| !is_zone(zone))?;
    let problem = format!(
        "names the zone {zone:?}, which this machine does not know: write UTC or a name such as \
         Europe/Berlin, or install the database of time zones (tzdata)"
    );
    Some(refusal(compiled, "Timer", "OnCalendar", problem))
}

/// Returns the resource limits that no cgroup controller can enforce on this host.
fn resources(run: &Run, host: &HostCapabilities) -> Vec<Unsupported> {
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
    settings.filter_map(|it| Some((it.option, unsupported(&it)?))).collect()
}

/// Returns the settings that only root can give to a process.
fn privileged_settings(run: &Run, host: &HostCapabilities) -> Vec<Unsupported> {
    let it = &run.exec_environment;
    let requested = [
        (it.nice.is_some_and(|nice| nice < 0), "Nice"),
        (it.oom_score_adjust.is_some_and(|score| score < 0), "OOMScoreAdjust"),
        (!it.supplementary_groups.is_empty(), "SupplementaryGroups"),
    ];
    let requested = requested.into_iter().filter(|(is_used, _)| *is_used && !host.root);
    requested.map(|(_, name)| (name, NEEDS_ROOT.to_owned())).collect()
}

/// Returns the user, the group and the command prefixes that need root.
fn privileges(run: &Run, host: &HostCapabilities) -> Vec<Unsupported> {
    let (user, group) = (&run.exec_environment.user, &run.exec_environment.group);
    let other = |kind: &str, wanted: &Option<String>, own: &[String]| {
        let wanted = wanted.as_ref().filter(|wanted| !host.root && !own.contains(wanted))?;
        let own = own.first().map_or("", String::as_str);
        Some(format!(
            "is {wanted:?}, but fleet runs as the {kind} {own:?} and may not change it: \
             remove the option, or run fleet as root"
        ))
    };
    let user_problem = other("user", user, &host.users);
    let group_problem = other("group", group, &host.groups);
    let mut all: Vec<Unsupported> = [("User", user_problem), ("Group", group_problem)]
        .into_iter()
        .filter_map(|(name, problem)| Some((name, problem?)))
        .collect();
    for (name, list) in command_lists(run) {
        if !list.iter().any(|command| command.privileged) {
            continue;
        }
        let problem = match (host.root, user.is_some() || group.is_some()) {
            (true, false) => continue,
            (false, _) => {
                "is not allowed: the prefixes \"+\" and \"!\" need root, but fleet does not run as \
                 root: remove them"
            }
            (true, true) => {
                "is not allowed: the prefixes \"+\" and \"!\" cannot be combined with another \
                 user or group here: remove one of them"
            }
        };
        all.push((name, problem.to_owned()));
    }
    all
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

fn refusal(compiled: &CompiledUnit, section: &str, name: &str, problem: String) -> UnitRefusal {
    let position = compiled.position_of(section, name);
    let problem = if position.is_none() { format!("{name}= {problem}") } else { problem };
    UnitRefusal { position, cause: RefusalCause::Setting, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_zones_are_known() {
        assert!(is_zone("utc") && is_zone("Europe/Berlin") && !is_zone("Europe/Atlantis"));
    }
}
