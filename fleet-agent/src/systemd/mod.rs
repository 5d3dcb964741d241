//! The service manager that drives the context's systemd over D-Bus.
//!
//! ```text
//! manager ── load, install ──> files, record     unit files and what was asked of them
//!    │           └───────────> bus               calls to systemd
//!    │           └─ gather ──┘                   one call about many units
//!    ├───── order, jobs ─────> bus               start, stop, restart; the ends of jobs
//!    ├───── journal ── nudge                     journalctl as a child process
//!    └ link: one task ── dispatch ──> state, jobs    systemd's signals, in their order
//!                     └─ look ──────> state          everything once, when signals were missed
//! ```
//!
//! Nothing is polled but a journal that is followed. What a unit does is known from systemd's
//! signals alone; after a connection was lost, or systemd has read its files again, everything is
//! looked at once.

mod batch_query;
mod bus;
mod config;
mod connection;
mod context;
mod external_stop;
mod files;
mod install;
mod jobs;
mod journal;
mod load;
mod manager;
mod name_conflict;
mod nudge;
mod operations;
mod private;
mod reason;
mod record;
mod refresh;
mod reload;
mod state;
mod unit_locks;
mod units;

pub use config::{SystemdConfig, SystemdScope};
pub use manager::SystemdManager;
