//! The two real programs, end to end: unit files in, processes out.

mod crash;
mod daemon;
mod dev;
mod doors;
#[cfg(feature = "etcd")]
mod etcd;
mod fleet_init;
mod handed_over;
mod harm;
mod lineage;
mod metrics;
mod moving;
mod refusals;
mod run;
mod service;
mod sshd;
mod tour;
