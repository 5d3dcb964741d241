//! Tests of the init model through its public interface.

mod change_feed;
pub(crate) mod config;
mod determinism;
mod events;
mod graphs;
mod liveness;
mod naive;
mod need;
mod pending_requests;
mod policy;
mod previews;
mod reloads;
mod restarts;
mod safety;
mod scenarios;
mod script;
mod single_changes;
mod table;
mod twin;
mod world;
