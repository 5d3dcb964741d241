//! The etcd store over a real etcd, which each test starts for itself.
//!
//! They are a binary of their own since they need `etcd` and `etcdctl` on the machine, and so are
//! ignored unless asked for: `cargo test -p fleet-store --features etcd --test etcd -- --ignored`.

mod behaviour;
mod campaign;
mod certificates;
mod cluster;
mod conformance;
mod history;
mod link;
mod outages;
mod support;
