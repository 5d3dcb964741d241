//! The model of an init, as whoever runs the units sees it.

mod again;
pub(crate) mod config;
mod events;
mod foresight;
mod graphs;
mod liveness;
mod naive;
mod need;
mod one_by_one;
mod policy;
mod reloads;
mod safety;
mod same;
mod script;
mod shown;
mod table;
mod told;
mod twin;
mod wishes;
mod world;
