//! The house rules as tests.
//!
//! Each rule is one `#[test]` in the file of its subject under `rules`. A failure lists every place
//! and the remedy. CONTRIBUTING.md has the reasons. Run with `cargo tidy`.

mod report;
mod rules;
mod rust;
mod tree;
mod workspace;
