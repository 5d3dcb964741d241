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

mod cluster;
mod draft;
mod features;
mod history;
mod policy;
mod text;
mod vocabulary;
mod wide;

pub use cluster::{GeneratedCluster, clusters, clusters_with_unit};
pub use features::Features;
pub use history::{
    History, HistoryEvent, HistoryStep, PlanOutcome, events, histories, histories_from,
};
pub use policy::policies;
pub use wide::wide_clusters;
