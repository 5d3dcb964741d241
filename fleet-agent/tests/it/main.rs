//! The service managers, as whoever uses the crate sees them.

mod fake;
mod native;
mod pulse;
mod support;
mod wait;
