//! Tests of the crate as its users see it.

mod convergence;
mod cycles;
mod laws;
mod reasons;
mod refusals;
mod requirements;
mod snapshot;
mod transitions;
mod warnings;
mod wrap;
