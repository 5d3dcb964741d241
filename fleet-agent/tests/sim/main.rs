//! A whole cluster in one process and in simulated time: the real loops over the memory store and
//! fake service managers, with faults, all of it drawn from one seed.
//!
//! `history` and `safety` look at what the cluster did, `liveness` at what became of it; neither
//! knows how it came about. A seed that failed is replayed with `FLEET_SIM_SEED`, and
//! `FLEET_SIM_RUNS` says how many seeds the campaign takes.

mod campaign;
mod clock;
mod cluster;
mod history;
mod host;
mod liveness;
mod operation;
mod overstay;
mod partitions;
mod regressions;
mod rng;
mod safety;
mod scenarios;
mod spy;
mod units;
