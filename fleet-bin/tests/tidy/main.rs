//! The house rules, as tests: what a machine can check is not left to a reader.
//!
//! One `#[test]` per rule, in the file of its subject under `rules`; a failure lists each place and
//! what to do about it. The reasons are in CONTRIBUTING.md. Run with `cargo tidy`.

mod report;
mod rules;
mod rust;
mod tree;
mod workspace;
