//! The tests of the store, by subject.

#[cfg(feature = "embedded")]
mod backup;
mod bounds;
mod conformance;
#[cfg(feature = "embedded")]
mod crash;
#[cfg(feature = "embedded")]
mod embedded;
mod follow;
mod format;
mod intents;
mod keyspace;
mod leadership;
mod lineage;
mod mirror;
mod mirror_away;
mod mirror_news;
mod mirror_shared;
mod mirror_twin;
mod one_place;
mod places;
mod presence;
mod rebalancing;
mod registry;
mod support;
mod together;
mod transfer;
