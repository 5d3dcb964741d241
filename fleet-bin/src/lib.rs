#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod findings;

pub mod fleetctl;
pub mod fleetd;
