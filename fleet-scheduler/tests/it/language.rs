//! The command language of scenarios, and its interpreter.
//!
//! | command | effect |
//! |---|---|
//! | `machine ID KEY=VALUE...` | adds or changes a machine; see below |
//! | `gone ID` | removes a machine |
//! | `unit NAME STATE`, then indented lines | adds a unit with this `[X-Fleet]` section |
//! | `state NAME STATE` | changes the desired state |
//! | `failed NAME ID NUMBER` | records that the unit has failed so often on a machine |
//! | `destroy NAME` | removes the unit |
//! | `unreadable NAME` | makes the unit's record unreadable |
//! | `placed NAME ID EPOCH` | records a placement |
//! | `unplaced NAME` | removes a placement |
//! | `plan` | prints the plan and applies it |
//! | `decide` | the same, but prints only units that move and units without a machine |
//! | `drain ID... WORD=...` | cordons machines, prints the plan of their drain and applies it |
//! | `rebalance BUDGET WORD=...` | prints a plan that evens out loads and applies it |
//! | `explain NAME` | prints the explanation of a unit |
//! | `share ID` | prints the share of a machine |
//!
//! A machine's metadata may be followed by `offers cpu=4 memory=8G disk=1T`, or a part of it, and
//! by `cordoned`. The words of a drain are `min_available=NUMBER`, `max_moves=NUMBER` and
//! `down=NAME`. Those of a rebalancing are `max_group_size=NUMBER`, `gain=NUMBER`,
//! `min_available=NUMBER` and `down=NAME`.
//!
//! The output of a command follows it, each line after `>`. Lines that start with `#` are comments.

use std::collections::BTreeMap;

use fleet_core::snapshot::Fault;
use fleet_core::{
    Epoch, Machine, Requirements, Resource, Revision, Snapshot, Strictness, TargetState, Unit,
};
use fleet_scheduler::testing::naive;
use fleet_scheduler::{Cluster, Drain, Policy, Rebalance, apply, check, explain, plan, share};
use fleet_unitfile::{UnitFile, UnitName};

use crate::naive_planner::placements;

/// Runs a scenario and returns it with the actual output of each command.
pub(crate) fn run(text: &str) -> String {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    let mut transcript = String::new();
    let mut lines = text.lines().filter(|line| !line.starts_with('>')).peekable();
    while let Some(line) = lines.next() {
        transcript += &format!("{line}\n");
        let mut section = String::from("[X-Fleet]\n");
        while let Some(option) = lines.next_if(|line| line.starts_with("  ")) {
            transcript += &format!("{option}\n");
            section += &format!("{}\n", option.trim());
        }
        for printed in command(&mut cluster, line, &section).lines() {
            transcript += &format!("> {printed}\n");
        }
    }
    transcript
}

fn command(cluster: &mut Snapshot, line: &str, section: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [] => {}
        [first, ..] if first.starts_with('#') => {}
        ["machine", id, ref metadata @ ..] => cluster.put_machine(machine(id, metadata)),
        ["gone", id] => cluster.remove_machine(id),
        ["unit", name, state] => cluster.put_unit(unit(name, state, section)),
        ["state", name, state] => {
            let mut unit = Unit::clone(cluster.unit(name).expect("the unit is known"));
            unit.desired = state.parse().expect("a state");
            cluster.put_unit(unit);
        }
        ["failed", name, id, count] => {
            let mut unit = Unit::clone(cluster.unit(name).expect("the unit is known"));
            let wants = std::sync::Arc::make_mut(&mut unit.requirements);
            let count = count.parse().expect("a number");
            wants.failed_on.insert(id.parse().expect("a machine ID"), count);
            cluster.put_unit(unit);
        }
        ["destroy", name] => cluster.remove_unit(name),
        ["unreadable", name] => {
            cluster.put_fault(self::name(name), Fault { message: String::from("garbled") });
        }
        ["placed", name, id, epoch] => {
            let epoch = Epoch(epoch.parse().expect("a number"));
            cluster.place(self::name(name), id.parse().expect("a machine ID"), epoch);
        }
        ["unplaced", name] => cluster.unplace(name),
        ["plan"] => return plan_and_apply(cluster),
        ["decide"] => return decide_and_apply(cluster),
        ["drain", ref words @ ..] => return drain_and_apply(cluster, words),
        ["rebalance", budget, ref words @ ..] => {
            let request = words.iter().fold(Rebalance::with_budget(number(budget)), rebalance_word);
            let decided = Cluster::load(Policy::default(), cluster).rebalance(&request);
            assert_eq!(check(cluster, &decided), []);
            *cluster = apply(cluster, &decided);
            return decided.to_string();
        }
        ["explain", name] => {
            let explanation = explain(cluster, self::name(name).as_str());
            return explanation.map_or(String::from("no such unit"), |result| result.to_string());
        }
        ["share", id] => return print_share(cluster, id),
        _ => panic!("not a command: {line}"),
    }
    String::new()
}

fn name(text: &str) -> UnitName {
    text.parse().expect("a unit name")
}

fn machine(id: &str, words: &[&str]) -> Machine {
    let mut machine = Machine::new(id.parse().expect("a machine ID"));
    let mut offers = false;
    for word in words {
        match word.split_once('=') {
            None if *word == "offers" => offers = true,
            None if *word == "cordoned" => machine.cordoned = true,
            None => panic!("no KEY=VALUE: {word}"),
            Some((key, amount)) if offers => {
                let resource = Resource::from_name(key).expect("a resource");
                machine.offers[resource] = resource.parse(amount).expect("an amount");
            }
            Some((key, value)) => machine = machine.with_metadata(key, value),
        }
    }
    machine
}

/// Returns a unit with this section.
pub(crate) fn unit(name: &str, state: &str, section: &str) -> Unit {
    let name = self::name(name);
    let file = UnitFile::parse(section).expect("a unit file");
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).expect("requirements");
    let state: TargetState = state.parse().expect("a state");
    Unit::new(name, file, parsed.requirements, state)
}

/// Prints the plan and applies it. Checks that the plan breaks no rule, matches the specification,
/// and leaves nothing to do.
fn plan_and_apply(cluster: &mut Snapshot) -> String {
    let decided = plan(cluster);
    assert_eq!(check(cluster, &decided), []);
    let expected = naive::plan(cluster, &Policy::default());
    *cluster = apply(cluster, &decided);
    assert_eq!(placements(cluster), expected, "{decided}");
    let next = plan(cluster);
    assert!(next.is_empty() && next.unplaced == decided.unplaced, "{decided}\nthen {next}");
    decided.to_string()
}

/// Applies the plan, but prints only units that move and units without a machine.
fn decide_and_apply(cluster: &mut Snapshot) -> String {
    let before = placements(cluster);
    let waiting = plan(cluster).unplaced;
    plan_and_apply(cluster);
    let after = placements(cluster);
    let mut result: BTreeMap<&UnitName, String> = BTreeMap::new();
    result.extend(waiting.keys().map(|name| (name, String::from("nowhere"))));
    let came = after.iter().filter(|(name, machine)| before.get(*name) != Some(machine));
    result.extend(came.map(|(name, machine)| (name, format!("to {machine}"))));
    if result.is_empty() {
        return String::from("nothing changes");
    }
    result.into_iter().map(|(name, what)| format!("{name} {what}\n")).collect()
}

fn drain_and_apply(cluster: &mut Snapshot, words: &[&str]) -> String {
    let request = words.iter().fold(Drain::new([]), drain_word);
    for id in &request.machines {
        let machine = Machine::clone(cluster.machine(id.as_str()).expect("it is present"));
        cluster.put_machine(Machine { cordoned: true, ..machine });
    }
    let result = Cluster::load(Policy::default(), cluster).drain(&request);
    assert_eq!(check(cluster, &result.plan), []);
    *cluster = apply(cluster, &result.plan);
    result.to_string()
}

fn drain_word(mut request: Drain, word: &&str) -> Drain {
    match word.split_once('=') {
        Some(("min_available", least)) => request.min_available = number(least),
        Some(("max_moves", most)) => request.max_moves = number(most),
        Some(("down", unit)) => drop(request.down.insert(name(unit))),
        None => drop(request.machines.insert(word.parse().expect("a machine ID"))),
        Some(_) => panic!("not a word of a drain: {word}"),
    }
    request
}

fn rebalance_word(mut request: Rebalance, word: &&str) -> Rebalance {
    match word.split_once('=') {
        Some(("max_group_size", most)) => request.max_group_size = Some(number(most)),
        Some(("gain", gain)) => request.gain = number(gain),
        Some(("min_available", least)) => request.min_available = number(least),
        Some(("down", unit)) => drop(request.down.insert(name(unit))),
        _ => panic!("not a word of a rebalancing: {word}"),
    }
    request
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}

fn print_share(cluster: &Snapshot, id: &str) -> String {
    let share = share(cluster, &id.parse().expect("a machine ID"));
    let units = share
        .units
        .iter()
        .map(|(name, (unit, epoch))| format!("{name} {} of epoch {epoch}", unit.desired));
    let refused = share.refused.iter().map(|(name, reason)| format!("{name} refused: {reason}"));
    let undecided = share.undecided.iter().map(|name| format!("{name} undecided"));
    units.chain(refused).chain(undecided).collect::<Vec<_>>().join("\n")
}
