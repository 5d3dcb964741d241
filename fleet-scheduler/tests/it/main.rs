//! The scheduler as its users see it: through a snapshot that goes in and a plan that comes out.

mod bounds;
mod config;
mod histories;
mod known;
mod language;
mod linter;
mod lives;
mod properties;
mod relocation;
mod sabotage;
mod scenarios;
mod truths;
mod twin;
