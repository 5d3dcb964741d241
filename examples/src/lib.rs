//! The examples are programs in the directory `examples/` of this package. Run one with:
//!
//! ```text
//! cargo run -p fleet-examples --example NAME
//! ```
