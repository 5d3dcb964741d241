//! The two real programs, end to end: unit files in, processes out.

mod crash;
mod daemon;
mod dev;
mod etcd;
mod refusals;
mod run;
mod service;
