//! Jobs and schedules.

mod job_histories;
mod job_laws;
mod observation;
mod options;
mod run_histories;
mod run_laws;
mod settings;
