//! Pure: no I/O, no clock. What the compiler of unit files understands and this supervisor cannot
//! do, or not for this unit on this machine. Whatever is built here takes its row out.

use fleet_core::graph::systemd::{Cause, Compiled, Refusal};
use fleet_core::graph::{Command, Growth, Kind, Run};

use super::identity::Host;

/// An option that is not done: whether it is asked for, its section and name, and what to do.
type Row = (bool, &'static str, &'static str, &'static str);

const CONDITION: &str = "is not possible: the native supervisor checks no conditions: take the \
                         option out, or make the check in an ExecStartPre= command";
const LIMIT: &str = "is not possible: the native supervisor sets no limits: take it out, or begin \
                     the command with prlimit";
const NICE: &str = "is not possible: the native supervisor leaves that as it is: take it out, or \
                    begin the command with nice";
const RESOURCE: &str = "is not possible: the native supervisor keeps processes to no limits of \
                        control groups: take it out, or run the unit under systemd";
const TAKE_OUT: &str = "is not possible: the native supervisor does not do this: take it out, or \
                        run the unit under systemd";

/// All reasons not to run a unit that was compiled.
pub(crate) fn lacking(compiled: &Compiled, host: &Host) -> Vec<Refusal> {
    let mut all = Vec::new();
    if compiled.unit.kind == Kind::Virtual {
        all.push(whole("the native supervisor runs .service units alone: run it under systemd"));
    }
    let (unit, run) = (&compiled.unit, &compiled.unit.run);
    let missing = [
        commands(run),
        surroundings(run),
        resources(run),
        vec![(
            matches!(unit.restart.growth, Growth::Steps(_)),
            "Service",
            "RestartSteps",
            "is not possible: the native supervisor restarts after the same time always: take it \
             out",
        )],
    ];
    for (_, section, name, problem) in missing.iter().flatten().filter(|row| row.0) {
        all.push(refusal(compiled, section, name, (*problem).to_owned()));
    }
    all.extend(rights(compiled, host));
    all
}

fn commands(run: &Run) -> Vec<Row> {
    vec![
        (!run.conditions.is_empty(), "Unit", "", CONDITION),
        (!run.condition.is_empty(), "Service", "ExecCondition", CONDITION),
    ]
}

fn surroundings(run: &Run) -> Vec<Row> {
    let it = &run.surroundings;
    let mut rows = vec![
        (it.nice.is_some(), "Service", "Nice", NICE),
        (it.oom_score_adjust.is_some(), "Service", "OOMScoreAdjust", TAKE_OUT),
        (!it.supplementary_groups.is_empty(), "Service", "SupplementaryGroups", TAKE_OUT),
    ];
    let limits = LIMITS.iter().filter(|(name, _)| it.limits.contains_key(name));
    rows.extend(limits.map(|(_, option)| (true, "Service", *option, LIMIT)));
    rows
}

fn resources(run: &Run) -> Vec<Row> {
    let it = &run.resources;
    vec![
        (it.memory_max.is_some(), "Service", "MemoryMax", RESOURCE),
        (it.memory_high.is_some(), "Service", "MemoryHigh", RESOURCE),
        (it.tasks_max.is_some(), "Service", "TasksMax", RESOURCE),
        (it.cpu_weight.is_some(), "Service", "CPUWeight", RESOURCE),
        (it.cpu_quota.is_some(), "Service", "CPUQuota", RESOURCE),
        (it.io_weight.is_some(), "Service", "IOWeight", RESOURCE),
    ]
}

/// Limits of the kernel by the kernel's names, and the options that set them.
const LIMITS: [(&str, &str); 16] = [
    ("as", "LimitAS"),
    ("core", "LimitCORE"),
    ("cpu", "LimitCPU"),
    ("data", "LimitDATA"),
    ("fsize", "LimitFSIZE"),
    ("locks", "LimitLOCKS"),
    ("memlock", "LimitMEMLOCK"),
    ("msgqueue", "LimitMSGQUEUE"),
    ("nice", "LimitNICE"),
    ("nofile", "LimitNOFILE"),
    ("nproc", "LimitNPROC"),
    ("rss", "LimitRSS"),
    ("rtprio", "LimitRTPRIO"),
    ("rttime", "LimitRTTIME"),
    ("sigpending", "LimitSIGPENDING"),
    ("stack", "LimitSTACK"),
];

/// What a unit may only ask for where fleet is root.
fn rights(compiled: &Compiled, host: &Host) -> Vec<Refusal> {
    let run = &compiled.unit.run;
    let (user, group) = (&run.surroundings.user, &run.surroundings.group);
    let other = |kind: &str, wanted: &Option<String>, own: &[String]| {
        let wanted = wanted.as_ref().filter(|wanted| !host.root && !own.contains(wanted))?;
        let own = own.first().map_or("", String::as_str);
        Some(format!(
            "is {wanted:?}, but fleet runs as the {kind} {own:?} and may not become another: \
             take the option out, or run fleet as root"
        ))
    };
    let user_problem = other("user", user, &host.users);
    let group_problem = other("group", group, &host.groups);
    let mut all: Vec<Refusal> = [("User", user_problem), ("Group", group_problem)]
        .into_iter()
        .filter_map(|(name, problem)| Some(refusal(compiled, "Service", name, problem?)))
        .collect();
    for (name, list) in lists(run) {
        if !list.iter().any(|command| command.privileged) {
            continue;
        }
        let problem = match (host.root, user.is_some() || group.is_some()) {
            (true, false) => continue,
            (false, _) => {
                "cannot be obeyed: the prefixes \"+\" and \"!\" ask for the rights of root, which \
                 fleet does not have here: take them out"
            }
            (true, true) => {
                "cannot be obeyed: the prefixes \"+\" and \"!\" cannot be combined with User= and \
                 Group= here: take one of them out"
            }
        };
        all.push(refusal(compiled, "Service", name, problem.to_owned()));
    }
    all
}

fn lists(run: &Run) -> [(&'static str, &[Command]); 6] {
    [
        ("ExecStartPre", &run.start_pre),
        ("ExecStart", &run.start),
        ("ExecStartPost", &run.start_post),
        ("ExecReload", &run.reload),
        ("ExecStop", &run.stop),
        ("ExecStopPost", &run.stop_post),
    ]
}

fn refusal(compiled: &Compiled, section: &str, name: &str, problem: String) -> Refusal {
    let place = match name {
        "" => compiled
            .place_of_first(|name| name.starts_with("Condition") || name.starts_with("Assert")),
        name => compiled.place_of(section, name),
    };
    let problem = if place.is_none() { format!("{name}= {problem}") } else { problem };
    Refusal { place, cause: Cause::Setting, problem }
}

fn whole(problem: &str) -> Refusal {
    Refusal { place: None, cause: Cause::Setting, problem: problem.to_owned() }
}
