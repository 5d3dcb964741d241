//! The API over real sockets: a router over a registry and a mirror, as a daemon has them.

mod certificates;
mod client;
mod defects;
mod discovery;
mod document;
mod doors;
mod events;
mod export;
mod filters;
mod harness;
mod http;
mod intents;
mod journal;
mod listening;
mod machines;
mod metrics;
mod outage;
mod paging;
mod plans;
mod protocol;
mod proxied;
mod put;
mod repeated;
mod robust;
mod states;
mod units;
