//! Responses to requests, one file for each group of paths, and what several of them share.

pub(super) mod discovery;
pub(super) mod drain_report;
pub(super) mod dry_run;
pub(super) mod etag;
pub(super) mod explain;
pub(super) mod export;
pub(super) mod extract;
pub(super) mod filters;
pub(super) mod health;
pub(super) mod import;
pub(super) mod intents;
pub(super) mod listings;
pub(super) mod machines;
pub(super) mod openapi;
pub(super) mod page;
pub(super) mod plan;
pub(super) mod planning;
pub(super) mod put;
pub(super) mod rebalance;
pub(super) mod rebalance_report;
pub(super) mod snapshot_metrics;
pub(super) mod states;
pub(super) mod status;
pub(super) mod units;
pub(super) mod validate;
