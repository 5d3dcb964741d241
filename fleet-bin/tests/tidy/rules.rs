//! The rules, by subject.

mod clock;
mod documents;
mod edges;
mod invariants;
mod leftovers;
mod purity;
mod reached;
mod seams;
mod shape;
mod words;
