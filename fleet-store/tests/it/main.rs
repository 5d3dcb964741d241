//! The tests of the store, by subject.

#[cfg(feature = "embedded")]
mod backup;
mod conformance;
#[cfg(feature = "embedded")]
mod crash;
#[cfg(feature = "embedded")]
mod embedded;
mod failures;
mod format;
mod group_commit;
mod intents;
mod jobs;
mod keyspace;
mod leadership;
mod lineage;
mod machine_progress;
mod mirror;
mod mirror_delta;
mod mirror_outage;
mod mirror_resync;
mod mirror_sharing;
mod presence;
mod rebalancing;
mod registry;
mod rollouts;
mod single_placement;
mod superseded_placements;
mod support;
mod transfer;
mod watch_limits;
