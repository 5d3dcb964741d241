//! Tools that verify the planner, and schedulers and rules of your own (feature `testing`).
//!
//! - [`naive`] is the placement specification as plain, slow code.
//! - [`strategies`] generates clusters, their histories and policies.

pub mod naive;
pub mod strategies;
