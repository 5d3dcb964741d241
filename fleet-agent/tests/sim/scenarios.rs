//! One short story for each invariant.
