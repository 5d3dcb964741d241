//! Generators of clusters and of what happens to them, for [proptest](https://docs.rs/proptest).
//!
//! Names, keys, values and patterns come from small sets, so that units often meet: they match each
//! other's patterns, follow each other, ask for metadata that some machine has. Placements are made
//! at random, so many break a rule, and machines that units are placed on may be gone. Each cluster
//! uses some of the [`Features`] only, so that no feature drowns the others.
//!
//! A cluster that makes a property fail shrinks to a few units, and prints itself as the
//! commands of a scenario:
//!
//! ```
//! use fleet_scheduler::strategies::{Features, clusters};
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

pub use cluster::{Cluster, clusters, clusters_with_unit};
pub use features::Features;
pub use history::{
    ClusterEvent, History, HistoryStep, PlanOutcome, events, histories, histories_from,
};
pub use policy::policies;
pub use wide::wide_clusters;
