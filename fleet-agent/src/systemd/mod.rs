//! The service manager that drives the machine's systemd over D-Bus.
//!
//! ```text
//! manager ── load, install ────> files, record     unit files and requests
//!    │           └─────────────> bus               calls to systemd
//!    │           └ batch_query ──┘                 one call about many units
//!    ├───── operations, jobs ──> bus               start, stop, restart; the ends of jobs
//!    ├───── journal                                journalctl as a child process
//!    └ connection: one task ─ dispatch > state, jobs   systemd's signals, in order
//!                         └── refresh ─> state         everything once, after missed signals
//!                                └ recovery ─> record  requests with an unknown outcome
//! ```
//!
//! systemd's signals report the states of units, so these are not polled. All units are read once
//! after a connection was lost, or after systemd has reloaded its files.

mod batch_query;
mod bus;
mod config;
mod connection;
mod context;
mod elapse;
mod external_stop;
mod files;
mod install;
mod jobs;
mod journal;
mod load;
mod manager;
mod name_conflict;
mod operations;
mod reason;
mod record;
mod recovery;
mod refresh;
mod reload;
mod state;
mod unit_locks;
mod units;

pub use config::{SystemdConfig, SystemdScope};
pub use manager::SystemdManager;
