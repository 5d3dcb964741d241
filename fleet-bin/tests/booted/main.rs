//! Clusters of three machines, each with a systemd of its own, that share a real etcd.
//!
//! A test binary by itself, because it boots machines. Each test is a *story*: it boots a cluster,
//! has it do something with `fleetctl`, lets something befall it, and looks at what its machines
//! do. `scripts/test` runs it where that can be done.

mod cluster;
mod figures;
mod kit;
mod look;
mod stories;
