//! The tests of the store, by subject.

mod conformance;
#[cfg(feature = "embedded")]
mod embedded;
mod keyspace;
mod leadership;
mod mirror;
mod mirror_away;
mod presence;
mod registry;
mod support;
