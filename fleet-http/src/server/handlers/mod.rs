//! Responses to requests, one file for each group of paths, and what several of them share.

pub(super) mod bulk;
pub(super) mod check;
pub(super) mod export;
pub(super) mod extract;
pub(super) mod health;
pub(super) mod intents;
pub(super) mod jobs;
pub(super) mod listings;
pub(super) mod machines;
pub(super) mod openapi;
pub(super) mod plan;
pub(super) mod put;
pub(super) mod rebalance;
pub(super) mod revisions;
pub(super) mod rollouts;
pub(super) mod states;
pub(super) mod status;
pub(super) mod units;
