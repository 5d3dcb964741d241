//! Tests of the public interface.

mod convergence;
mod convert;
mod cycles;
mod documents;
mod expression_laws;
mod expressions;
mod failures;
mod init;
mod jobs;
mod laws;
mod options;
mod reasons;
mod refusals;
mod requirements;
mod rollouts;
mod snapshot;
mod start_order;
mod systemd;
mod text;
mod transitions;
mod validation;
mod warnings;
mod wrap;
