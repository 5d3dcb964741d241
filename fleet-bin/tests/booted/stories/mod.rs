//! What is told to clusters, a test each.

mod daemons;
mod failures;
mod journals;
mod machines;
mod outages;
mod rules;
mod types;
mod units;
mod verbs;
