//! One short scenario per invariant. All safety checks apply to these too.

mod balance;
mod bursts;
mod decisions;
mod drains;
mod failures;
mod fences;
mod flapping;
mod idle_cluster;
mod jobs;
mod machines;
mod rollouts;
mod start_order;
mod stored_state;
mod stores;
mod units;
