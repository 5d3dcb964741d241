//! The native service manager with real processes.

mod adoption;
mod background;
mod conforms;
mod crash;
mod graph;
mod graph_crash;
pub(crate) mod helper;
mod histories;
mod home;
mod killing;
mod ledger;
mod lifecycle;
mod limits;
mod lines;
mod manager_crash;
mod output;
mod refusals;
mod rest;
mod retries;
mod settings;
mod stanzas;
mod talking;
mod timers;
mod together;
mod tracking;
