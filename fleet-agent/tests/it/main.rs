//! The service managers, as whoever uses the crate sees them.

mod fake;
mod native;
mod pulse;
mod remote;
mod support;
mod wait;
