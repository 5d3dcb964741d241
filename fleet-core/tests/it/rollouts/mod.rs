//! Tests of rollouts.

mod laws;
mod requests;
mod runs;
mod world;
