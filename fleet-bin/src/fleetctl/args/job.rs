//! Options of `run`, and the subcommands of `job` and `schedule`.

use clap::{Args, Subcommand};
use fleet_unitfile::values::{Timespan, parse_timespan};

use super::VerificationArgs;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Names or paths of unit files of jobs, such as ./backup.service; ".service" may be omitted.
    #[arg(value_name = "FILE|UNIT", required = true)]
    pub(crate) units: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: JobWaitArgs,
    #[command(flatten)]
    pub(crate) verification: VerificationArgs,
}

/// Options of commands that can wait for jobs.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct JobWaitArgs {
    /// Print the output until the jobs have ended, and exit with their exit code.
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Wait for up to SPAN, such as 10min; the jobs go on after that.
    #[arg(long, value_name = "SPAN", requires = "wait", value_parser = parse_timespan)]
    pub(crate) timeout: Option<Timespan>,
}

#[derive(Debug, Args)]
pub(crate) struct JobCommandArgs {
    #[command(subcommand)]
    pub(crate) command: JobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List the jobs that have not ended.
    List(JobListArgs),
    /// Show a job, with its attempts and their last lines.
    Status(JobNameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct JobListArgs {
    /// List the jobs that have ended, too.
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobNameArgs {
    /// Unit of the job, such as backup.service, or backup (".service" is added).
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleCommandArgs {
    #[command(subcommand)]
    pub(crate) command: ScheduleCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List the schedules.
    List,
    /// Show a schedule, with its unfinished runs and its history.
    Status(ScheduleNameArgs),
    /// Run the job of a schedule now, also while the schedule is paused.
    RunNow(RunNowArgs),
    /// Pause a schedule: it makes no runs by itself until it is resumed.
    Pause(ScheduleNameArgs),
    /// Resume a paused schedule. Its missed times are not caught up.
    Resume(ScheduleNameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleNameArgs {
    /// Unit of the schedule, such as backup.service, or backup (".service" is added).
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
}

#[derive(Debug, Args)]
pub(crate) struct RunNowArgs {
    #[command(flatten)]
    pub(crate) name: ScheduleNameArgs,
    #[command(flatten)]
    pub(crate) wait: JobWaitArgs,
}
