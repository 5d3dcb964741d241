//! `fleetctl`: the command-line client of a cluster.
//!
//! | step | modules |
//! |---|---|
//! | parse the arguments | `args`, `help`, `session::settings` |
//! | authenticate to the daemon and verify it | `session::credentials` |
//! | resolve unit arguments | `args::ranges`, `select`, `unit_filter` |
//! | read and check local unit files | `local`, `colocation`, `manager_check` |
//! | query the cluster, or open its store | `session` |
//! | connect through ssh | `session::{ssh, tunnel}` |
//! | limit and batch requests, and collect their failures | `concurrent`, `session::machines` |
//! | decide what to do (pure) | `resolve`, `manifest_diff`, `wait`, `wait_state` |
//! | find problems | `diagnosis`, `ignored_options`, `outdated`, `rebalance_status` |
//! | run commands | `commands`, `follow`, `job_follow`, `job_output` |
//! | complete words | `completion` |
//! | print results | `report`, `columns`, `format` |
//! | report progress | `progress` |
//!
//! Errors, output formats, tables and colours are those of all programs (`ui`).

pub(crate) mod args;
mod colocation;
mod commands;
mod completion;
mod concurrent;
mod diagnosis;
mod follow;
mod format;
mod help;
mod ignored_options;
mod job_follow;
mod job_output;
mod local;
mod manager_check;
mod manifest_diff;
mod obstacles;
mod outdated;
mod progress;
mod rebalance_status;
mod report;
mod resolve;
mod select;
mod session;
mod unit_filter;
mod wait;
mod wait_state;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::FromArgMatches;
use fleet_agent::SystemClock;

use crate::ui::error::{CliError, Exit};
use crate::ui::global_args::Format;
use crate::ui::output::Output;
use crate::ui::table::Colour;
use args::flags::Flags;
use args::{Cli, Command, flags, spelling};
use progress::Progress;
use session::settings::Settings;
use session::ssh::Ssh;
use session::tunnel::Tunnel;
use session::{Session, settings, tunnel};

/// Runs `fleetctl` and returns its exit code. `args` starts with the name of the program, and
/// `environment` looks up environment variables.
///
/// Results go to standard output, everything else to standard error.
pub fn run(args: Vec<OsString>, environment: impl Fn(&str) -> Option<OsString>) -> ExitCode {
    let exit = match read(args) {
        Ok((cli, overridden)) => {
            let environment = |name: &str| environment(name).filter(|_| !overridden.contains(name));
            report_error(execute(cli, &environment))
        }
        Err(error) => usage(&error),
    };
    ExitCode::from(exit.code())
}

/// Parses the command line. Also returns the environment variables that it overrides with `false`.
fn read(args: Vec<OsString>) -> Result<(Cli, BTreeSet<String>), clap::Error> {
    let mut command = help::command();
    let args = spelling::normalize(args, &command);
    let Flags { args, overridden } = flags::resolve(args, &command);
    let matches = command.try_get_matches_from_mut(&args);
    let matches = matches.map_err(|error| {
        let error = spelling::with_suggestion(error, &args, help::command());
        spelling::with_usage(error, &args, help::command())
    })?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, overridden))
}

/// Prints a usage error of clap, or the help that was requested.
fn usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.use_stderr() {
        return Exit::Usage;
    }
    report_error(printed.map(|()| Exit::Success).map_err(CliError::from))
}

fn execute(cli: Cli, environment: settings::Environment<'_>) -> Result<Exit, CliError> {
    let Some(command) = cli.command else {
        help::command().print_help()?;
        return Ok(Exit::Success);
    };
    if let Command::CompleteWords(args) = &command {
        let found = completion::candidates(args, environment);
        Output::on_stdout(Format::Table).raw(found.as_bytes())?;
        return Ok(Exit::Success);
    }
    let settings = Settings::new(&cli.global, environment)?;
    if settings.debug {
        trace_to_stderr();
    }
    let dev_hint = settings.dev_hint();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match settings.ssh.tunnel() {
            Some(_) if !command.is_local() => {
                tunnel::until_signal(run_command(command, settings)).await
            }
            _ => run_command(command, settings).await,
        }
    });
    // A blocking read of standard input cannot be cancelled.
    runtime.shutdown_background();
    result.map_err(|error| match dev_hint {
        Some(hint) if error.is_unreachable() => error.help(hint),
        _ => error,
    })
}

async fn run_command(command: Command, settings: Settings) -> Result<Exit, CliError> {
    let clock = SystemClock::start();
    let tunnel = match command.is_local() {
        true => None,
        false => Tunnel::open(&settings.ssh, &settings.endpoint, &clock).await?,
    };
    let endpoint = tunnel.as_ref().map_or(settings.endpoint, Tunnel::endpoint);
    let mut context = Context {
        session: Session::new(&endpoint, &settings.credentials)?,
        output: Output::on_stdout(settings.format),
        progress: Progress::on_stderr(),
        ssh: settings.ssh,
        clock,
    };
    commands::run(&mut context, command).await
}

/// Prints an error, if any, and returns the exit status.
fn report_error(result: Result<Exit, CliError>) -> Exit {
    result.unwrap_or_else(|error| {
        // If standard error is closed, only the exit code is left.
        let _closed =
            error.print_as("fleetctl", Colour::for_stream(&io::stderr()), &mut io::stderr());
        error.exit()
    })
}

fn trace_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::new("warn,fleet_http=debug,fleet_bin=debug");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
}

/// Session, outputs and clock of a running command.
pub(crate) struct Context {
    /// Connection to the cluster.
    pub(crate) session: Session,
    /// Prints results.
    pub(crate) output: Output<io::Stdout>,
    /// Prints progress and notices.
    pub(crate) progress: Progress<io::Stderr>,
    /// Settings for running `ssh`.
    pub(crate) ssh: Ssh,
    /// Clock for timeouts and pauses.
    pub(crate) clock: SystemClock,
}
