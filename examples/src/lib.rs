//! The examples are programs: see `examples/` next to this file, and run one with `cargo run -p
//! fleet-examples --example NAME`.
