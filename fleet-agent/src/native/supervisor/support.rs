//! Options that the unit file compiler accepts, but that this supervisor cannot support on this
//! host (for example, because fleet does not run as root).

use fleet_core::graph::systemd::{CompiledUnit, RefusalCause, UnitRefusal};
use fleet_core::graph::{Command, Run};
use jiff::tz::TimeZone;

use super::host_capabilities::HostCapabilities;
use crate::native::linux::resources::{CgroupSetting, settings};

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
