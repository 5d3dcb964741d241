//! A whole cluster in one process and in simulated time: the real loops with the memory store and
//! fake service managers, and with faults drawn from a seed.
//!
//! `history` and `safety` check the events of a cluster, and `liveness` its final state; neither
//! knows the operations. `FLEET_SIM_SEED` replays a failed seed, and `FLEET_SIM_RUNS` sets the
//! number of seeds of the campaign.

mod campaign;
mod clock;
mod cluster;
mod history;
mod host;
mod jobs;
mod liveness;
mod operation;
mod overstay;
mod partitions;
mod regressions;
mod rng;
mod rollouts;
mod safety;
mod scenarios;
mod spy;
mod units;
