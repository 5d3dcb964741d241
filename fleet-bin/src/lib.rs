#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod fleetctl;
pub mod fleetd;
