//! A service manager that runs units itself, on machines without systemd.

mod adopt;
mod command;
mod compile;
#[cfg(test)]
mod compile_tests;
mod context;
mod drive;
mod environment;
mod identity;
mod journal;
mod life;
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
#[cfg(test)]
mod service_tests;
mod signals;
mod spec;
mod start_limit;
mod supervise;
mod sweep;
mod words;

pub use manager::{NativeConfig, NativeManager};
