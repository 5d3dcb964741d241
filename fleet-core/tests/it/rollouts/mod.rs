//! Tests of rollouts.

mod laws;
mod observation;
mod requests;
mod runs;
mod world;
