//! Tests that a cluster keeps only a bounded state for its next plan, no matter how many changes
//! come before that plan.

use fleet_core::{Epoch, Machine, Requirements};
use fleet_unitfile::UnitName;

use super::Cluster;
use crate::demand::{Change, Demand};
use crate::policy::{Policy, Ranking};

/// More than any of the bounds below.
const MANY: u32 = 4000;

fn name(number: u32) -> UnitName {
    format!("u{number}.service").parse().unwrap()
}

fn demand(number: u32, max_per_machine: Option<u32>) -> Demand {
    let requirements = Requirements::default().with_max_per_machine(max_per_machine);
    Demand::with_requirements(name(number), requirements)
}

fn index(ranking: Ranking) -> Cluster {
    let mut index = Cluster::with_policy(Policy::new().with_ranking(ranking));
    index.add_machine(Machine::new("m1".parse().unwrap()));
    index.add_machine(Machine::new("m2".parse().unwrap()));
    index
}

fn assert_bounded(index: &mut Cluster) {
    let bound = 2 * index.state.machines.len() + 1024;
    assert!(
        index.orders.loosened_machines.len() <= bound + 1,
        "{}",
        index.orders.loosened_machines.len()
    );
    assert!(index.orders.ranks.len() <= bound + 1, "{}", index.orders.ranks.len());
    let (untried, units) = (index.retry_queue.take().len(), index.state.units.len());
    assert!(untried <= units, "{untried} of {units}");
}

#[test]
fn changes_without_plans_do_not_accumulate() {
    let mut index = index(Ranking::BinPacking);
    for turn in 0..MANY {
        index.add(demand(turn % 3, Some(turn)));
        let machine = ["m1", "m2"][turn as usize % 2].parse().unwrap();
        index.place(name(3), machine, Epoch(u64::from(turn)));
        index.add(demand(3, Some(turn)));
        index.add(demand(4, None));
        index.remove(name(4).as_str());
    }
    assert_bounded(&mut index);
}

#[test]
fn queries_without_plans_do_not_accumulate() {
    let mut index = index(Ranking::LeastLoaded);
    (0..9).for_each(|number| index.add(demand(number, None)));
    for turn in 0..MANY {
        index.what_if(&[Change::RemoveMachine("m1".parse().unwrap())]);
        index.explain(name(turn % 9).as_str());
    }
    assert_bounded(&mut index);
}

#[test]
fn waiting_units_are_placed_after_many_changes() {
    let mut index = index(Ranking::LeastLoaded);
    (0..MANY).for_each(|turn| index.add(demand(turn % 7, Some(turn))));
    assert_eq!(index.plan().steps.len(), 7);
}
