//! The two real programs, end to end: unit files in, processes out.

mod authentication;
mod crash;
mod daemon;
mod dev;
#[cfg(feature = "etcd")]
mod etcd;
mod fleet_init;
mod lineage;
mod metrics;
mod moving;
mod overload;
mod refusals;
mod run;
mod service;
mod socket_activation;
mod sshd;
mod tour;
