//! The service managers, as whoever uses the crate sees them.

mod native;
mod support;
