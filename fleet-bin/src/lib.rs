#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod ui;

pub mod fleet_init;
pub mod fleetctl;
pub mod fleetd;
