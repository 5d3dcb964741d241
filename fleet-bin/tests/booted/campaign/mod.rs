//! A campaign of random faults against one cluster, for minutes or hours.
//!
//! After each fault, every unit must run again as wanted within the lease and [`GRACE`]. Meanwhile,
//! no unit may run twice against its policy, and none may be stopped or restarted without cause.

mod faults;
mod instances;
mod workload;

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, MACHINES, print_line};
use faults::{FAULTS, Fault, Injection};
use instances::Observer;
use workload::Workload;

/// Lifetime of presence and leader leases.
const LEASE: Duration = Duration::from_secs(5);

/// Time after the end of a fault and one lease in which everything must be right again.
const GRACE: Duration = Duration::from_secs(15);

/// Runs for `FLEET_CAMPAIGN_MINUTES` (default 3) with the random numbers of `FLEET_CAMPAIGN_SEED`.
// Holds: I-1, I-9, I-21
#[test]
#[ignore = "boots machines for minutes: run by scripts/test --full"]
fn campaign() {
    let minutes = number("FLEET_CAMPAIGN_MINUTES").unwrap_or(3);
    let mut random = Random(number("FLEET_CAMPAIGN_SEED").unwrap_or(20_140_224));
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let cluster = Cluster::boot(&format!("{}s", LEASE.as_secs()));
    let workload = Workload::start(&cluster);
    let observer = Observer::start(workload.tag());
    workload.wait_right(&cluster, &observer, LEASE + GRACE);
    let mut rounds = 0;
    while Instant::now() < end {
        for fault in random.shuffled(FAULTS) {
            let machine = MACHINES[random.below(MACHINES.len())];
            check(&cluster, &workload, &observer, fault, machine, &mut random);
            rounds += 1;
            if Instant::now() >= end {
                break;
            }
        }
    }
    cluster.succeed(&["doctor"]);
    print_line(&format!("campaign: {rounds} faults, all units right after each"));
}

/// Injects a fault, waits until the cluster is right again, and checks all that happened to units.
fn check(
    cluster: &Cluster,
    workload: &Workload,
    observer: &Observer,
    fault: &Fault,
    machine: &'static str,
    random: &mut Random,
) {
    let before = observer.restart();
    print_line(&format!("campaign: {} ({machine})", fault.name));
    let begin = Instant::now();
    (fault.inject)(&Injection {
        cluster,
        machine,
        delay: Duration::from_millis(random.below(120) as u64),
    });
    let took = begin.elapsed();
    let right = workload.wait_right(cluster, observer, LEASE + GRACE);
    let (took, right) = (took.as_secs_f64(), right.as_secs_f64());
    print_line(&format!("campaign: {took:.1} s of fault, right again after {right:.1} s"));
    for instances in observer.history() {
        workload.check(fault, machine, &before, &instances);
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

/// Generator of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("the limit is a usize")
    }

    fn shuffled(&mut self, faults: &'static [Fault]) -> Vec<&'static Fault> {
        let mut shuffled: Vec<_> = faults.iter().collect();
        for last in (1..shuffled.len()).rev() {
            shuffled.swap(last, self.below(last + 1));
        }
        shuffled
    }
}
