//! Tests of the etcd store with a real etcd, which each test starts itself.
//!
//! They are in a separate binary because they need `etcd` and `etcdctl`. They are ignored by
//! default; to run them: `cargo test -p fleet-store --features etcd --test etcd -- --ignored`.

mod behaviour;
mod campaign;
mod certificates;
mod cluster;
mod conformance;
mod history;
mod link;
mod outages;
mod support;
