//! Scenarios, one test each.

mod commands;
mod containers;
mod daemons;
mod failures;
mod jobs;
mod journals;
mod machines;
mod outages;
mod rollouts;
mod rules;
mod types;
mod units;
