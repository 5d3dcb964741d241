//! The scheduler as its users see it: through a snapshot that goes in and a plan that comes out.

mod bounds;
mod clusters;
mod language;
mod linter;
mod naive;
mod properties;
mod scenarios;
mod truths;
