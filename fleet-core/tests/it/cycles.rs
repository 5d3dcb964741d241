//! Dependency cycles of `MachineOf=`, `Replaces=` and `StartAfter=`, compared with a naive search.

use fleet_core::TargetState::Inactive;
use fleet_core::cycle::{machine_of_cycle, replaces_cycle, start_after_cycle};
use fleet_core::{Requirements, Snapshot, Strictness, Unit};
use fleet_unitfile::{UnitFile, UnitName};
use proptest::prelude::*;

fn unit(name: &str, section: &str) -> Unit {
    let file = UnitFile::parse(format!("[X-Fleet]\n{section}\n")).unwrap();
    let name: UnitName = name.parse().unwrap();
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    Unit::new(name, file, parsed.requirements, Inactive)
}

fn known(units: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    units.iter().for_each(|(name, section)| snapshot.put_unit(unit(name, section)));
    snapshot
}

#[test]
fn cycle_is_listed_from_the_new_unit() {
    let known = known(&[
        ("b.service", "MachineOf=x.service c.service"),
        ("c.service", "MachineOf=a.service"),
        ("x.service", ""),
    ]);
    let found = machine_of_cycle(&known, &unit("a.service", "MachineOf=b.service")).unwrap();
    insta::assert_snapshot!(found, @"
MachineOf forms a dependency cycle: a.service -> b.service -> c.service -> a.service
");
    assert_eq!(machine_of_cycle(&known, &unit("a.service", "MachineOf=x.service")), None);
    assert_eq!(machine_of_cycle(&known, &unit("d.service", "MachineOf=b.service")), None);
}

#[test]
fn shortest_cycle_is_returned() {
    let known = known(&[
        ("b.service", "MachineOf=c.service"),
        ("c.service", "MachineOf=a.service"),
        ("d.service", "MachineOf=a.service"),
    ]);
    let new = unit("a.service", "MachineOf=b.service d.service");
    insta::assert_snapshot!(machine_of_cycle(&known, &new).unwrap(), @"
MachineOf forms a dependency cycle: a.service -> d.service -> a.service
");
}

#[test]
fn machine_of_pattern_forms_no_cycle() {
    let known = known(&[("b.service", "MachineOf=a.service"), ("c.service", "")]);
    assert_eq!(machine_of_cycle(&known, &unit("a.service", "MachineOf=[bc].service")), None);
    assert!(machine_of_cycle(&known, &unit("a.service", "MachineOf=x* b.service")).is_some());
}

#[test]
fn new_content_replaces_the_known_unit() {
    let known =
        known(&[("a.service", "MachineOf=b.service"), ("b.service", "MachineOf=x.service")]);
    assert_eq!(machine_of_cycle(&known, &unit("b.service", "MachineOf=y.service")), None);
    assert!(machine_of_cycle(&known, &unit("b.service", "MachineOf=a.service")).is_some());
    assert_eq!(machine_of_cycle(&known, &unit("a.service", "")), None);
}

#[test]
fn replaces_cycles_of_any_length_are_found() {
    let known = known(&[
        ("b1.service", "Replaces=c*"),
        ("c1.service", "Replaces=a*"),
        ("c0.service", ""),
        ("b@.service", "Replaces=a*"),
    ]);
    let found = replaces_cycle(&known, &unit("a1.service", "Replaces=b*")).unwrap();
    insta::assert_snapshot!(found, @"
Replaces forms a dependency cycle: a1.service -> b1.service -> c1.service -> a1.service
");
    assert_eq!(replaces_cycle(&known, &unit("a1.service", "Replaces=c0*")), None);
    // A pattern that matches the unit's own name forms no cycle, and a template replaces no unit.
    assert_eq!(replaces_cycle(&known, &unit("d1.service", "Replaces=d*")), None);
    assert_eq!(replaces_cycle(&known, &unit("a1.service", "Replaces=b@*")), None);
}

#[test]
fn start_after_cycles_are_found_from_any_unit() {
    let known = known(&[
        ("a.service", "StartAfter=x.service b.service"),
        ("b.service", "StartAfter=c.service gone.service"),
        ("c.service", "StartAfter=a.service"),
        ("d.service", "StartAfter=x.service c.service"),
        ("t@.service", "StartAfter=t@1.service"),
        ("t@1.service", "StartAfter=x.service"),
        ("x.service", ""),
    ]);
    let find = |names: &[&str]| {
        let names: Vec<UnitName> = names.iter().map(|name| name.parse().unwrap()).collect();
        let cycle = start_after_cycle(
            &known,
            names.iter().filter_map(|name| known.unit(name.as_str()).map(|unit| &unit.name)),
        );
        cycle.map_or_else(|| "none".to_owned(), |cycle| cycle.to_string())
    };
    insta::assert_snapshot!(find(&["a.service"]), @"
    StartAfter forms a dependency cycle: a.service -> b.service -> c.service -> a.service
    ");
    insta::assert_snapshot!(find(&["x.service", "d.service"]), @"
    StartAfter forms a dependency cycle: c.service -> a.service -> b.service -> c.service
    ");
    assert_eq!(find(&["x.service", "t@.service", "t@1.service"]), "none");
}

/// The names of the generated units.
fn name(index: usize) -> String {
    format!("u{index}.service")
}

/// Whether `target` can be reached from `from`, by exhaustive search.
fn reaches(edges: &[Vec<usize>], from: usize, target: usize, seen: &mut Vec<usize>) -> bool {
    edges[from].iter().any(|&next| {
        next == target
            || (!seen.contains(&next) && {
                seen.push(next);
                reaches(edges, next, target, seen)
            })
    })
}

fn edges() -> impl Strategy<Value = Vec<Vec<usize>>> {
    proptest::collection::vec(proptest::collection::vec(0_usize..7, 0..3), 7).prop_map(
        |mut edges| {
            for (from, to) in edges.iter_mut().enumerate() {
                to.retain(|next| *next != from);
            }
            edges
        },
    )
}

fn section(option: &str, to: &[usize]) -> String {
    to.iter().map(|next| format!("{option}={}\n", name(*next))).collect()
}

proptest! {
    #[test]
    fn cycle_is_found_exactly_if_one_exists(edges in edges(), new in 0_usize..7) {
        let machine_of: fn(&_, &_) -> _ = machine_of_cycle;
        let finders = [("MachineOf", machine_of), ("Replaces", replaces_cycle)];
        for (option, find) in finders {
            let mut known = Snapshot::default();
            for (from, to) in edges.iter().enumerate().filter(|(from, _)| *from != new) {
                known.put_unit(unit(&name(from), &section(option, to)));
            }
            let new_unit = unit(&name(new), &section(option, &edges[new]));
            let found = find(&known, &new_unit);
            prop_assert_eq!(found.is_some(), reaches(&edges, new, new, &mut Vec::new()));
            let Some(cycle) = found else { continue };
            // Each unit refers to the next, the last one to the first, and none occurs twice.
            let index = |u: &UnitName| (0..7).find(|i| name(*i) == u.as_str()).unwrap();
            let way: Vec<usize> = cycle.units.iter().map(index).collect();
            prop_assert_eq!(way[0], new);
            for (i, from) in way.iter().enumerate() {
                prop_assert!(edges[*from].contains(&way[(i + 1) % way.len()]));
                prop_assert!(!way[..i].contains(from));
            }
        }
    }

    #[test]
    fn start_after_cycle_is_found_if_reachable(
        edges in edges(),
        from in proptest::collection::btree_set(0_usize..7, 0..4),
    ) {
        let mut known = Snapshot::default();
        for (from, to) in edges.iter().enumerate() {
            known.put_unit(unit(&name(from), &section("StartAfter", to)));
        }
        let names: Vec<UnitName> = from.iter().map(|it| name(*it).parse().unwrap()).collect();
        let found = start_after_cycle(&known, &names);
        let is_cyclic = |unit: usize| reaches(&edges, unit, unit, &mut Vec::new());
        let is_affected = |unit: &usize| {
            is_cyclic(*unit)
                || (0..7).any(|it| is_cyclic(it) && reaches(&edges, *unit, it, &mut Vec::new()))
        };
        prop_assert_eq!(found.is_some(), from.iter().any(is_affected));
        let Some(cycle) = found else { return Ok(()) };
        let index = |u: &UnitName| (0..7).find(|i| name(*i) == u.as_str()).unwrap();
        let way: Vec<usize> = cycle.units.iter().map(index).collect();
        for (i, from) in way.iter().enumerate() {
            prop_assert!(edges[*from].contains(&way[(i + 1) % way.len()]));
            prop_assert!(!way[..i].contains(from));
        }
    }
}
