//! The real `fleet-init`, and the real `fleetctl` against a real server on a unix socket. A fake
//! engine with fake agents makes each unit behave as its test requires.

mod apply;
mod cluster;
mod completion;
mod docs;
mod drop_ins;
mod errors;
mod export_import;
mod fake_engine;
mod fleet_init;
mod fleetctl;
mod history;
mod jobs;
mod lists;
mod machines;
mod monitor;
mod plan;
mod pty;
mod racing_store;
mod rebalance;
mod relay;
mod requests;
mod scale;
mod schema;
mod show;
mod ssh;
mod start;
mod stop;
mod terminal;
mod top;
mod usage;
mod wait;
