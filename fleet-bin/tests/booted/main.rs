//! Tests of clusters: three booted machines with their own systemd, and a real etcd. Also a
//! comparison of confined units under both service managers, and restarts with dynamic users.
//!
//! The campaign injects random faults for minutes or hours, with `scripts/campaign`.
//!
//! This is a separate test binary because it boots machines. Each scenario boots a cluster, runs
//! `fleetctl`, injects failures, and checks the units on all machines. `scripts/test --full` runs
//! them if the host can boot machines.

mod campaign;
mod cluster;
mod confinement;
mod dynamic_user;
mod figures;
mod kit;
mod observe;
mod scenarios;
