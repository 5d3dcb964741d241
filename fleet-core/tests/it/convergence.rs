//! Convergence: the table of tasks, and properties for all inputs.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::TargetState::{self, Inactive, Launched, Loaded};
use fleet_core::{DesiredUnit, Epoch, Generation, KnownUnit, Requirements, Task, Unit, converge};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};
use proptest::prelude::*;

type Desired = BTreeMap<UnitName, DesiredUnit>;
type Known = BTreeMap<UnitName, KnownUnit>;

/// Makes a unit file whose content depends on the number.
fn file(number: u8) -> UnitFile {
    UnitFile::parse(format!("[Unit]\nDescription={number}\n")).unwrap()
}

fn hash(number: u8) -> UnitHash {
    file(number).hash()
}

/// The desired state of a unit: file, target state, epoch and generation.
#[derive(Debug, Clone, Copy)]
struct Want {
    file: u8,
    desired: TargetState,
    epoch: u64,
    generation: u64,
    global: bool,
}

fn desired(name: &str, want: Want) -> DesiredUnit {
    let requirements = Requirements::default().with_global(want.global);
    let unit = Unit::new(name.parse().unwrap(), file(want.file), requirements, want.desired);
    let unit = Unit { generation: Generation(want.generation), ..unit };
    DesiredUnit { unit: unit.into(), epoch: Epoch(want.epoch) }
}

const fn want(file: u8, desired: TargetState, epoch: u64, generation: u64) -> Option<Want> {
    Some(Want { file, desired, epoch, generation, global: false })
}

const fn global(file: u8, desired: TargetState) -> Option<Want> {
    Some(Want { file, desired, epoch: 0, generation: 0, global: true })
}

fn have(file: u8, requested: TargetState, epoch: u64, generation: u64) -> Option<KnownUnit> {
    let (epoch, generation) = (Epoch(epoch), Generation(generation));
    Some(KnownUnit { hash: hash(file), requested, epoch, generation })
}

fn texts(tasks: &[Task]) -> Vec<String> {
    tasks.iter().map(ToString::to_string).collect()
}

#[test]
fn each_row_of_the_table_has_its_tasks() {
    let unload = "unload a.service: it is loaded but not wanted here";
    let differs = "unload a.service: another unit file is loaded under its name";
    let load = "load a.service: it is wanted here but not loaded";
    let newer = "load a.service: a newer placement asks for it";
    let start = "start a.service: it is loaded but should be started";
    let stop = "stop a.service: it is started but should only be loaded";
    let restart = "restart a.service: a restart was requested";
    let reload = "reload";
    let table: [(Option<Want>, Option<KnownUnit>, &[&str]); 20] = [
        (None, None, &[]),
        (None, have(1, Loaded, 1, 0), &[unload, reload]),
        (None, have(1, Launched, 1, 0), &[unload, reload]),
        (want(1, Inactive, 1, 0), None, &[]),
        (want(1, Inactive, 1, 0), have(1, Launched, 1, 0), &[unload, reload]),
        (want(1, Loaded, 1, 0), None, &[load, reload]),
        (want(1, Launched, 1, 0), None, &[load, reload, start]),
        (want(1, Loaded, 1, 0), have(1, Loaded, 1, 0), &[]),
        (want(1, Launched, 1, 0), have(1, Launched, 1, 0), &[]),
        (want(1, Launched, 1, 0), have(1, Loaded, 1, 0), &[start]),
        (want(1, Loaded, 1, 0), have(1, Launched, 1, 0), &[stop]),
        (want(1, Loaded, 1, 0), have(1, Inactive, 1, 0), &[load, reload]),
        (want(1, Launched, 1, 0), have(1, Inactive, 1, 0), &[load, reload, start]),
        (want(2, Launched, 1, 0), have(1, Launched, 1, 0), &[differs, reload]),
        (want(1, Launched, 1, 3), have(1, Launched, 1, 2), &[restart]),
        (want(1, Launched, 1, 2), have(1, Launched, 1, 3), &[]),
        (want(1, Loaded, 1, 3), have(1, Loaded, 1, 2), &[]),
        (want(1, Launched, 2, 0), have(1, Launched, 1, 0), &[newer, reload]),
        // An outdated placement.
        (want(2, Loaded, 1, 9), have(1, Launched, 2, 0), &[]),
        // A unit that was placed before it became global has no epoch, and is not outdated.
        (global(1, Loaded), have(1, Launched, 2, 0), &[stop]),
    ];
    for (want, known, expected) in table {
        let name: UnitName = "a.service".parse().unwrap();
        let wanted: Desired =
            want.map(|want| (name.clone(), desired("a.service", want))).into_iter().collect();
        let known_units: Known = known.map(|known| (name, known)).into_iter().collect();
        assert_eq!(texts(&converge(&wanted, &known_units)), expected, "{want:?}, {known:?}");
    }
}

#[test]
fn template_is_never_loaded() {
    let template = desired("a@.service", want(1, Launched, 1, 0).unwrap());
    let wanted = Desired::from([(template.unit.name.clone(), template)]);
    assert!(converge(&wanted, &Known::new()).is_empty());
}

// Holds: I-14
#[test]
fn tasks_are_ordered_by_rank_then_name() {
    let wants = [
        ("a.service", want(2, Loaded, 1, 0), have(1, Loaded, 1, 0)),
        ("b.service", None, have(1, Launched, 1, 0)),
        ("c.service", want(1, Launched, 1, 0), None),
        ("d.service", want(1, Loaded, 1, 0), None),
        ("e.service", want(1, Loaded, 1, 0), have(1, Launched, 1, 0)),
        ("f.service", want(1, Launched, 1, 1), have(1, Launched, 1, 0)),
        ("g.service", want(2, Loaded, 1, 0), have(1, Loaded, 1, 0)),
        ("B.service", want(1, Launched, 1, 0), have(1, Loaded, 1, 0)),
    ];
    let mut wanted = Desired::new();
    let mut known_units = Known::new();
    for (name, want, known) in wants {
        let key: UnitName = name.parse().unwrap();
        wanted.extend(want.map(|want| (key.clone(), desired(name, want))));
        known_units.extend(known.map(|known| (key, known)));
    }
    insta::assert_snapshot!(texts(&converge(&wanted, &known_units)).join("\n"), @"
unload a.service: another unit file is loaded under its name
unload b.service: it is loaded but not wanted here
unload g.service: another unit file is loaded under its name
load c.service: it is wanted here but not loaded
load d.service: it is wanted here but not loaded
reload
stop e.service: it is started but should only be loaded
restart f.service: a restart was requested
start B.service: it is loaded but should be started
start c.service: it is loaded but should be started
");
}

/// Applies the tasks to the known units, and checks their order.
fn carry_out(tasks: &[Task], known: &mut Known) {
    let mut unread = BTreeSet::new();
    for task in tasks {
        match task {
            Task::Unload { unit, .. } => assert!(known.remove(unit).is_some(), "{task}"),
            Task::Load { unit, epoch, .. } => {
                unread.insert(unit.name.clone());
                let fresh = have_nothing(unit.hash());
                let entry = known.entry(unit.name.clone()).or_insert(fresh);
                assert_eq!(entry.hash, unit.hash(), "{task}: over another file");
                (entry.epoch, entry.requested) = (*epoch, entry.requested.max(Loaded));
            }
            Task::Reload => unread.clear(),
            Task::Stop { unit, .. } => known.get_mut(unit).unwrap().requested = Loaded,
            Task::Start { unit, .. } | Task::Restart { unit, .. } => {
                assert!(!unread.contains(&unit.name), "{task}: before its file was read");
                let entry = known.get_mut(&unit.name).unwrap();
                (entry.requested, entry.generation) = (Launched, unit.generation);
            }
        }
    }
    assert!(unread.is_empty(), "files were handed over and never read");
}

fn have_nothing(hash: UnitHash) -> KnownUnit {
    KnownUnit { hash, requested: Inactive, epoch: Epoch::ZERO, generation: Generation::ZERO }
}

/// Returns the expected end state of one unit, computed without tasks.
fn end(want: Option<&DesiredUnit>, known: Option<&KnownUnit>) -> Option<(UnitHash, TargetState)> {
    let want = want.filter(|want| want.unit.desired != Inactive)?;
    match known {
        Some(known) if known.epoch > want.epoch && !want.unit.requirements.global => {
            Some((known.hash, known.requested))
        }
        _ => Some((want.unit.hash(), want.unit.desired)),
    }
}

fn any_state() -> impl Strategy<Value = TargetState> {
    prop::sample::select(TargetState::ALL.to_vec())
}

fn any_want() -> impl Strategy<Value = Option<Want>> {
    let fields = (0_u8..3, any_state(), 0_u64..3, 0_u64..3, any::<bool>());
    prop::option::of(fields.prop_map(|(file, desired, epoch, generation, global)| Want {
        file,
        desired,
        epoch: if global { 0 } else { epoch },
        generation,
        global,
    }))
}

fn any_known() -> impl Strategy<Value = Option<KnownUnit>> {
    let fields = (0_u8..3, any_state(), 0_u64..3, 0_u64..3);
    prop::option::of(fields.prop_map(|(f, requested, e, g)| have(f, requested, e, g).unwrap()))
}

/// Generates up to six units, each desired, known, both or neither.
fn any_machine() -> impl Strategy<Value = (Desired, Known)> {
    prop::collection::vec((any_want(), any_known()), 6).prop_map(|units| {
        let (mut wanted, mut known_units) = (Desired::new(), Known::new());
        for (i, (want, known)) in units.into_iter().enumerate() {
            let name: UnitName = format!("u{i}.service").parse().unwrap();
            wanted.extend(want.map(|want| (name.clone(), desired(name.as_str(), want))));
            known_units.extend(known.map(|known| (name, known)));
        }
        (wanted, known_units)
    })
}

proptest! {
    #[test]
    fn two_passes_reach_the_desired_state((wanted, known_units) in any_machine()) {
        let mut known = known_units.clone();
        carry_out(&converge(&wanted, &known), &mut known);
        carry_out(&converge(&wanted, &known), &mut known);
        prop_assert_eq!(texts(&converge(&wanted, &known)), Vec::<String>::new());
        let names: BTreeSet<&UnitName> = wanted.keys().chain(known_units.keys()).collect();
        for name in names {
            let found = known.get(name).map(|known| (known.hash, known.requested));
            prop_assert_eq!(found, end(wanted.get(name), known_units.get(name)), "{}", name);
        }
    }

    // Holds: I-14
    #[test]
    fn tasks_are_ordered_and_each_has_an_effect((wanted, known_units) in any_machine()) {
        let tasks = converge(&wanted, &known_units);
        let keys: Vec<_> = tasks.iter().map(|task| (task.rank(), task.unit().cloned())).collect();
        prop_assert!(keys.is_sorted_by(|one, other| one < other), "{:?}", keys);
        let files = |task: &&Task| matches!(task, Task::Load { .. } | Task::Unload { .. });
        let reloads = tasks.iter().filter(|task| matches!(task, Task::Reload)).count();
        prop_assert_eq!(reloads, usize::from(tasks.iter().any(|task| files(&task))));
        for name in tasks.iter().filter_map(Task::unit) {
            let (want, known) = (wanted.get(name), known_units.get(name));
            let agrees = want.zip(known).is_some_and(|(want, known)| {
                want.epoch == known.epoch
                    && (want.unit.hash(), want.unit.desired, want.unit.generation)
                        == (known.hash, known.requested, known.generation)
                    && known.requested != Inactive
            });
            prop_assert!(!agrees, "{} agrees and was touched", name);
        }
    }

    // Holds: I-2
    #[test]
    fn outdated_placement_changes_nothing((mut wanted, known_units) in any_machine()) {
        wanted.retain(|name, want| {
            let overtaken = known_units.get(name).is_some_and(|known| want.epoch < known.epoch);
            overtaken && !want.unit.is_global() && want.unit.desired != Inactive
        });
        let tasks = converge(&wanted, &known_units);
        let touched: BTreeSet<_> = tasks.iter().filter_map(|task| task.unit().cloned()).collect();
        prop_assert!(wanted.keys().all(|name| !touched.contains(name)));
    }

    // Holds: I-17
    #[test]
    fn units_converge_independently((wanted, known_units) in any_machine()) {
        let all: BTreeSet<String> = texts(&converge(&wanted, &known_units)).into_iter().collect();
        let names: BTreeSet<&UnitName> = wanted.keys().chain(known_units.keys()).collect();
        let mut alone = BTreeSet::new();
        for name in names {
            let want: Desired = wanted.clone().into_iter().filter(|(k, _)| k == name).collect();
            let known: Known = known_units.clone().into_iter().filter(|(k, _)| k == name).collect();
            alone.extend(texts(&converge(&want, &known)));
        }
        prop_assert_eq!(all, alone);
    }
}
