//! The examples are programs: see `examples/` beside this file, and run one with
//! `cargo run -p fleet-examples --example NAME`.
