#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod dev_directory;
mod ui;

pub mod fleet_init;
pub mod fleetctl;
pub mod fleetd;
