//! End-to-end tests of the programs: from unit files to processes.

mod activators;
mod authentication;
mod crash;
mod daemon;
mod dev;
#[cfg(feature = "etcd")]
mod etcd;
mod fleet_init;
mod health;
mod history;
mod jobs;
mod lineage;
mod metrics;
mod moving;
mod overload;
mod permissions;
mod refusals;
mod relations;
mod rollouts;
mod run;
mod service;
mod service_manager;
mod socket_activation;
mod sshd;
mod starts;
mod timers;
mod tour;
