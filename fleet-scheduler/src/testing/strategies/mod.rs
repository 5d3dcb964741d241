//! Generators of clusters and their histories, for [proptest](https://docs.rs/proptest).
//!
//! Names, keys, values and patterns come from small sets, so that units interact often. Units match
//! the patterns of others, name each other, and require metadata that some machine has. Placements
//! are random, so many of them break a rule, and the machine of a placed unit may be absent. Each
//! cluster uses only some of the [`Features`], so that no feature dominates the others.
//!
//! A cluster that violates a property shrinks to a few units, and its debug output consists of
//! scenario commands:
//!
//! ```
//! use fleet_scheduler::testing::strategies::{Features, clusters};
//! use fleet_scheduler::{check, plan};
//! use proptest::prelude::*;
//!
//! proptest!(|(cluster in clusters(Features::ALL))| {
//!     prop_assert_eq!(check(&cluster, &plan(&cluster)), []);
//! });
//! ```

use proptest::prelude::*;
use proptest::sample::select;

mod cluster;
mod draft;
mod history;
mod policy;
mod text;

pub use self::cluster::Features;
pub use self::cluster::wide_clusters;
pub use cluster::{GeneratedCluster, clusters, clusters_with_unit};
pub use history::{
    History, HistoryEvent, HistoryStep, PlanOutcome, events, histories, histories_from,
};
pub use policy::policies;

/// The possible units of a cluster, including a template.
const UNITS: [&str; 13] = [
    "a1.service",
    "a2.service",
    "a3.service",
    "b1.service",
    "b2.service",
    "b3.service",
    "c1.service",
    "c2.socket",
    "d@.service",
    "d@1.service",
    "d@2.service",
    "d@3.service",
    "e@1.service",
];

/// The possible machines of a cluster.
const MACHINES: [&str; 5] = ["m1", "m2", "m3", "m4", "m5"];

const PATTERNS: [&str; 10] = [
    "a1.service",
    "b2.service",
    "a*",
    "?2.s*",
    "d@*.service",
    "e@*",
    "*",
    "[ab]1.service",
    "c[!1]*",
    "unknown.service",
];

const PEER_PATTERNS: [&str; 6] = ["a*", "b[12].service", "d@*", "c?.*", "?1.service", "unknown*"];

const EXPRESSIONS: [&str; 7] = [
    "disk = x",
    "zone != x",
    "exists disk",
    "not exists zone",
    "disk in (x, y) and zone = y",
    "not (disk = y or zone = y)",
    "cores >= 2",
];

fn pattern() -> impl Strategy<Value = &'static str> {
    select(&PATTERNS[..])
}

fn peer_pattern() -> impl Strategy<Value = &'static str> {
    select(&PEER_PATTERNS[..])
}

fn expression() -> impl Strategy<Value = &'static str> {
    select(&EXPRESSIONS[..])
}

/// Generates a key and a value of a machine's metadata.
fn pair() -> impl Strategy<Value = (&'static str, &'static str)> {
    let pairs = vec![
        ("disk", "x"),
        ("disk", "y"),
        ("zone", "x"),
        ("zone", "y"),
        ("cores", "1"),
        ("cores", "2"),
    ];
    select(pairs)
}
