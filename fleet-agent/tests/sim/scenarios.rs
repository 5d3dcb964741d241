//! One short story for each invariant. All that `safety` looks for is looked for in these, too.

mod balance;
mod decisions;
mod drains;
mod failures;
mod fences;
mod machines;
mod notes;
mod rest;
mod swarms;
mod units;
