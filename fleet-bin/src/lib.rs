#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chain;
mod dev_directory;
mod findings;
mod secret;

pub mod fleet_init;
pub mod fleetctl;
pub mod fleetd;
