//! The scheduler through its public API: a snapshot goes in and a plan comes out.

mod bounds;
mod config;
mod custom_policies;
mod features;
mod full_machines;
mod histories;
mod language;
mod linter;
mod mutations;
mod naive_planner;
mod naive_relocation;
mod properties;
mod reasons;
mod rebalance_orders;
mod regressions;
mod relocation;
mod relocation_mutations;
mod scenarios;
