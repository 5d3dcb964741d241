//! A small language of commands in which scenarios are written, and its interpreter.
//!
//! | command | effect |
//! |---|---|
//! | `machine ID KEY=VALUE...` | a machine comes, or changes; see below |
//! | `gone ID` | a machine goes |
//! | `unit NAME STATE`, then indented lines | a unit, with these lines as its `[X-Fleet]` section |
//! | `state NAME STATE` | another desired state |
//! | `destroy NAME` | the unit is forgotten |
//! | `unreadable NAME` | the unit's record cannot be read any more |
//! | `placed NAME ID EPOCH` | the unit was placed |
//! | `unplaced NAME` | the unit is not placed any more |
//! | `plan` | prints the plan and carries it out |
//! | `decide` | the same, but prints only who is elsewhere then, and who is nowhere |
//! | `drain ID... WORD=...` | cordons machines, prints the plan of their drain, carries it out |
//! | `rebalance BUDGET WORD=...` | prints a plan that evens out loads, and carries it out |
//! | `explain NAME` | prints the explanation of a unit |
//! | `share ID` | prints the share of a machine |
//!
//! A machine's metadata may be followed by `offers cpu=4 memory=8G disk=1T`, or a part of that, and
//! by `cordoned`. The words of a drain are `min_available=NUMBER`, `max_moves=NUMBER` and `down=NAME`,
//! those of a rebalancing `max_group_size=NUMBER`, `gain=NUMBER`, `min_available=NUMBER` and `down=NAME`.
//!
//! What a command prints is written below it, each line behind `>`. Lines that start with `#` are
//! for the reader.

use std::collections::BTreeMap;

use fleet_core::{
    Epoch, Fault, Machine, Requirements, Resource, Revision, Snapshot, Strictness, TargetState,
    Unit,
};
use fleet_scheduler::{Drain, Index, Policy, Rebalance, apply, check, explain, naive, plan, share};
use fleet_unitfile::{UnitFile, UnitName};

use crate::twin::placements;

/// Runs a scenario and returns it with what each command really prints.
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
            let asked = words.iter().fold(Rebalance::with_budget(number(budget)), rebalanced_by);
            let decided = Index::load(Policy::default(), cluster).rebalance(&asked);
            assert_eq!(check(cluster, &decided), []);
            *cluster = apply(cluster, &decided);
            return decided.to_string();
        }
        ["explain", name] => {
            let explanation = explain(cluster, &self::name(name));
            return explanation.map_or(String::from("no such unit"), |told| told.to_string());
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

/// A unit with that section.
pub(crate) fn unit(name: &str, state: &str, section: &str) -> Unit {
    let name = self::name(name);
    let file = UnitFile::parse(section).expect("a unit file");
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).expect("requirements");
    let state: TargetState = state.parse().expect("a state");
    Unit::new(name, file, parsed.requirements, state)
}

/// Prints the plan and carries it out. Whatever the scenario, the plan breaks no rule, is that of
/// the rule_set, and the next one is empty.
fn plan_and_apply(cluster: &mut Snapshot) -> String {
    let decided = plan(cluster);
    assert_eq!(check(cluster, &decided), []);
    let rule_set = naive::plan(cluster, &Policy::default());
    *cluster = apply(cluster, &decided);
    assert_eq!(placements(cluster), rule_set, "{decided}");
    let next = plan(cluster);
    assert!(next.is_empty() && next.unplaced == decided.unplaced, "{decided}\nthen {next}");
    decided.to_string()
}

/// The same, but prints only who is elsewhere then, and who is nowhere.
fn decide_and_apply(cluster: &mut Snapshot) -> String {
    let before = placements(cluster);
    let waiting = plan(cluster).unplaced;
    plan_and_apply(cluster);
    let after = placements(cluster);
    let mut told: BTreeMap<&UnitName, String> = BTreeMap::new();
    told.extend(waiting.keys().map(|name| (name, String::from("nowhere"))));
    let came = after.iter().filter(|(name, machine)| before.get(*name) != Some(machine));
    told.extend(came.map(|(name, machine)| (name, format!("to {machine}"))));
    if told.is_empty() {
        return String::from("nothing changes");
    }
    told.into_iter().map(|(name, what)| format!("{name} {what}\n")).collect()
}

fn drain_and_apply(cluster: &mut Snapshot, words: &[&str]) -> String {
    let asked = words.iter().fold(Drain::new([]), drained_by);
    for id in &asked.machines {
        let machine = Machine::clone(cluster.machine(id.as_str()).expect("it is present"));
        cluster.put_machine(Machine { cordoned: true, ..machine });
    }
    let told = Index::load(Policy::default(), cluster).drain(&asked);
    assert_eq!(check(cluster, &told.plan), []);
    *cluster = apply(cluster, &told.plan);
    told.to_string()
}

fn drained_by(mut asked: Drain, word: &&str) -> Drain {
    match word.split_once('=') {
        Some(("min_available", least)) => asked.min_available = number(least),
        Some(("max_moves", most)) => asked.max_moves = number(most),
        Some(("down", unit)) => drop(asked.down.insert(name(unit))),
        None => drop(asked.machines.insert(word.parse().expect("a machine ID"))),
        Some(_) => panic!("not a word of a drain: {word}"),
    }
    asked
}

fn rebalanced_by(mut asked: Rebalance, word: &&str) -> Rebalance {
    match word.split_once('=') {
        Some(("max_group_size", most)) => asked.max_group_size = Some(number(most)),
        Some(("gain", gain)) => asked.gain = number(gain),
        Some(("min_available", least)) => asked.min_available = number(least),
        Some(("down", unit)) => drop(asked.down.insert(name(unit))),
        _ => panic!("not a word of a rebalancing: {word}"),
    }
    asked
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
    let refused = share.refused.iter().map(|(name, why)| format!("{name} refused: {why}"));
    let undecided = share.undecided.iter().map(|name| format!("{name} undecided"));
    units.chain(refused).chain(undecided).collect::<Vec<_>>().join("\n")
}
