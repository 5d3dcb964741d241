//! The scheduler as its users see it: through a snapshot that goes in and a plan that comes out.

mod bounds;
mod config;
mod histories;
mod known;
mod language;
mod linter;
mod ordered;
mod own;
mod properties;
mod regressions;
mod relocated;
mod relocation;
mod sabotage;
mod sabotaged_moves;
mod scenarios;
mod truths;
mod twin;
