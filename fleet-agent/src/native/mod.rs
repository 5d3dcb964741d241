//! A service manager that runs units itself, on machines without systemd.

mod adopt;
mod command;
mod compile;
mod context;
mod drive;
mod environment;
mod identity;
mod journal;
mod log;
mod machine;
mod manager;
mod options;
mod outcome;
mod proc;
mod process;
mod readable;
mod record;
mod service;
mod signals;
mod spec;
mod start_limit;
mod supervise;
mod sweep;
mod words;

pub use manager::{NativeConfig, NativeManager};
