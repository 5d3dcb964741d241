//! Measures how long plans take, with the naive planner for comparison.
//!
//! `cargo bench -p fleet-scheduler --bench plan`
//!
//! - `load_and_plan` loads a snapshot and plans it.
//! - `planned` plans an index that needs no changes, without the reasons of waiting units.
//! - `change` adds a unit to a planned cluster and then removes it.
//! - `small` and `small_naive` compare both planners on a small cluster, because the naive planner
//!   is slow.
//!
//! The example `scale` measures the large shapes.

#[path = "../examples/scale/clusters.rs"]
mod clusters;

use divan::Bencher;
use fleet_core::Requirements;
use fleet_scheduler::testing::naive;
use fleet_scheduler::{Cluster, Policy, plan};

const SHAPES: [&str; 7] =
    ["plain", "metadata", "reserve", "conflicts", "templates", "groups", "spread"];

const UNITS: usize = 8_000;
const MACHINES: usize = 100;

fn main() {
    divan::main();
}

#[divan::bench(args = SHAPES)]
fn load_and_plan(bencher: Bencher, shape: &str) {
    let cluster = clusters::cluster(shape, UNITS, MACHINES);
    bencher.bench_local(|| plan(&cluster));
}

#[divan::bench(args = SHAPES)]
fn planned(bencher: Bencher, shape: &str) {
    let mut index = settled(shape);
    bencher.bench_local(|| index.plan_affected());
}

#[divan::bench(args = SHAPES)]
fn change(bencher: Bencher, shape: &str) {
    let mut index = settled(shape);
    let unit = clusters::unit("new.service", Requirements::default());
    bencher.bench_local(|| {
        index.add(&unit);
        carry_out(&mut index);
        index.remove("new.service");
        carry_out(&mut index);
    });
}

#[divan::bench(args = ["plain", "conflicts"])]
fn small(bencher: Bencher, shape: &str) {
    let cluster = clusters::cluster(shape, 40, 10);
    bencher.bench_local(|| plan(&cluster));
}

#[divan::bench(args = ["plain", "conflicts"])]
fn small_naive(bencher: Bencher, shape: &str) {
    let cluster = clusters::cluster(shape, 40, 10);
    bencher.bench_local(|| naive::plan(&cluster, &Policy::default()));
}

/// Returns an index of a cluster after its plan was applied.
fn settled(shape: &str) -> Cluster {
    let mut index = Cluster::load(Policy::default(), &clusters::cluster(shape, UNITS, MACHINES));
    carry_out(&mut index);
    index
}

fn carry_out(index: &mut Cluster) {
    let plan = index.plan_affected();
    index.apply(&plan);
}
