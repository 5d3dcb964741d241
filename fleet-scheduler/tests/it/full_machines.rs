//! Units with a reservation of their own each, over many machines of which most are full. A long
//! search for room then uses another structure than a short one.

use fleet_core::pattern::Peer;
use fleet_core::requirements::{Preference, Spread};
use fleet_core::{Machine, Requirements, Resources, Snapshot, TargetState, Unit};
use fleet_scheduler::policy::{Policy, Ranking};
use fleet_scheduler::testing::naive;
use fleet_scheduler::{Cluster, apply};
use fleet_unitfile::{UnitFile, UnitName};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::config::single_cases;
use crate::naive_planner::placements;

const MACHINES: usize = 45;

/// A change between two plans. Units and machines are given by number.
#[derive(Debug, Clone)]
enum Change {
    Put(usize, Resources, u8),
    Remove(usize),
    /// Adds or replaces a machine.
    Offer(usize, Resources, bool),
    Lose(usize),
}

fn amounts(most: u64) -> impl Strategy<Value = Resources> {
    (0..=most, 0..=most, 0..=1_u64).prop_map(|(cpu, memory, disk)| Resources { cpu, memory, disk })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (0..150_usize, amounts(60), any::<u8>())
            .prop_map(|(unit, reserve, traits)| Change::Put(unit, reserve, traits)),
        6 => (0..150_usize).prop_map(Change::Remove),
        2 => (0..MACHINES, amounts(100), any::<bool>())
            .prop_map(|(machine, offers, cordoned)| Change::Offer(machine, offers, cordoned)),
        1 => (0..MACHINES).prop_map(Change::Lose),
    ]
}

fn unit_name(number: usize) -> UnitName {
    let name = if number.is_multiple_of(3) { format!("w@{number}") } else { format!("u{number}") };
    format!("{name}.service").parse().unwrap()
}

/// Builds a unit. Its traits are bits: most units have none.
fn unit(number: usize, reserve: Resources, traits: u8) -> Unit {
    let mut requirements = Requirements::default().with_reserve(reserve);
    match traits {
        0..32 => requirements.spread = vec![Spread { weight: 1, key: "zone".into() }],
        32..48 => {
            let expression = "zone = z1".parse().unwrap();
            requirements.prefer = vec![Preference { weight: 5, expression }];
        }
        48..64 => requirements.conflicts = vec!["w@*".parse().unwrap()],
        64..72 => requirements.machine_of = vec![Peer::Named(unit_name(number / 2))],
        72..80 => requirements.reserve = Resources::ZERO,
        _ => {}
    }
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap();
    Unit::new(unit_name(number), file, requirements, TargetState::Launched)
}

fn machine(number: usize, offers: Resources, cordoned: bool) -> Machine {
    let machine = Machine::new(format!("m{number}").parse().unwrap());
    let machine = machine.with_metadata("zone", ["z0", "z1", "z2"][number % 3]);
    Machine { offers, cordoned, ..machine }
}

fn observe(cluster: &mut Snapshot, index: &mut Cluster, change: &Change) {
    match *change {
        Change::Put(number, reserve, traits) => {
            let unit = unit(number, reserve, traits);
            index.add(&unit);
            cluster.put_unit(unit);
        }
        Change::Remove(number) => {
            index.remove(unit_name(number).as_str());
            cluster.remove_unit(unit_name(number).as_str());
        }
        Change::Offer(number, offers, cordoned) => {
            let machine = machine(number, offers, cordoned);
            index.add_machine(machine.clone());
            cluster.put_machine(machine);
        }
        Change::Lose(number) => {
            index.remove_machine(&format!("m{number}"));
            cluster.remove_machine(&format!("m{number}"));
        }
    }
}

proptest! {
    // The naive planner is slow with this many units and machines.
    #![proptest_config(single_cases(30))]

    #[test]
    fn search_for_room_matches_the_naive_planner(
        offers in vec(amounts(100), MACHINES),
        batches in vec(vec(change(), 50), 3),
        ranking in prop::sample::select(vec![
            Ranking::BinPacking, Ranking::BinPacking, Ranking::LeastLoaded, Ranking::Spread,
        ]),
    ) {
        let policy = Policy::new().with_ranking(ranking);
        let mut cluster = Snapshot::default();
        for (number, offers) in offers.into_iter().enumerate() {
            cluster.put_machine(machine(number, offers, false));
        }
        let mut index = Cluster::load(policy.clone(), &cluster);
        for batch in &batches {
            for change in batch {
                observe(&mut cluster, &mut index, change);
            }
            let expected = naive::plan(&cluster, &policy);
            let plan = index.plan();
            cluster = apply(&cluster, &plan);
            prop_assert_eq!(placements(&cluster), expected);
            index.apply(&plan);
            index.set_revision(cluster.revision);
        }
    }
}
