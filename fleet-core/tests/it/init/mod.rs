//! The model of an init, as whoever runs the units sees it.

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
