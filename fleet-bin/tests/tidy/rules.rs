//! The rules, by subject.

mod build_paths;
mod clock;
mod dependencies;
mod documents;
mod invariants;
mod leftovers;
mod module_tree;
mod prose;
mod public_api;
mod purity;
mod seams;
mod shape;
