//! `fleetctl`: the command line by which people work with a cluster.
//!
//! | step | module |
//! |---|---|
//! | read the command line | `spelling` (old ones, too), `args`, `…_args`, `numbers`, `settings` |
//! | say what a daemon is shown, and whom to trust | `access` |
//! | say which units are meant | `names`, `ranges`, `select` |
//! | read their files | `local`, `findings` |
//! | ask the cluster, or look into its store | `session`, `target`, `offline` |
//! | get to it, or to a machine, by ssh | `ssh`, `tunnel` |
//! | ask for much at a time, and for no more than that | `at_once`, `sights`, `met` |
//! | decide what to do (pure) | `resolve`, `wanted`, `wait`, `pending`, `ailments`, `stalled` |
//! | do it | `commands`, `follow` |
//! | print or write it | `output`, `colour`, `report`, `foreseen`, `columns`, `table`, `words` |
//! | show what comes from elsewhere | `harmless` |
//! | write it to a file | `whole_file` |
//! | tell of the program itself | `reference` |
//! | tell how it goes, and how far it came | `progress`, `error`, `partly` |

mod access;
mod ailments;
pub(crate) mod args;
mod at_once;
mod balance_args;
mod change_args;
pub(crate) mod colour;
mod columns;
mod commands;
mod context;
pub(crate) mod error;
mod follow;
mod foreseen;
pub(crate) mod global_args;
pub(crate) mod harmless;
mod local;
mod look_args;
mod machine_args;
mod met;
pub(crate) mod names;
mod numbers;
mod offline;
pub(crate) mod output;
mod partly;
mod pending;
mod progress;
mod ranges;
mod reference;
mod report;
mod resolve;
mod select;
mod session;
mod settings;
mod sights;
mod spelling;
mod ssh;
mod stalled;
pub(crate) mod table;
mod target;
mod tunnel;
mod wait;
mod wanted;
mod whole_file;
mod words;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use fleet_agent::SystemClock;

use args::{Cli, Command};
use colour::Colour;
use context::Context;
use error::{CliError, Exit};
use output::Output;
use progress::Progress;
use session::Session;
use settings::Settings;
use tunnel::Tunnel;

/// Runs `fleetctl` with these arguments, the name of the program first, and returns its exit code.
///
/// Results go to standard output, everything else to standard error. `environment` looks up a
/// variable of the environment.
pub fn run(args: Vec<OsString>, environment: impl Fn(&str) -> Option<OsString>) -> ExitCode {
    let exit = match read(args) {
        Ok(cli) => settle(execute(cli, &environment)),
        Err(error) => usage(&error),
    };
    ExitCode::from(exit.code())
}

fn read(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let args = spelling::modern(args, &Cli::command());
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(&args);
    let matches = matches.map_err(|error| {
        let error = spelling::with_near(error, &args, &Cli::command());
        spelling::with_usage(error, &args, Cli::command())
    })?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Prints what clap has to say, which may be the help that was asked for.
fn usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.use_stderr() {
        return Exit::Usage;
    }
    settle(printed.map(|()| Exit::Success).map_err(CliError::from))
}

fn execute(cli: Cli, environment: settings::Environment<'_>) -> Result<Exit, CliError> {
    let Some(command) = cli.command else {
        Cli::command().print_help()?;
        return Ok(Exit::Success);
    };
    let settings = Settings::new(&cli.global, environment)?;
    if settings.debug {
        trace_to_stderr();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match settings.ssh.tunnel() {
            Some(_) if !command.is_local() => {
                tunnel::closed_when_told(work(command, settings)).await
            }
            _ => work(command, settings).await,
        }
    });
    // Who still reads standard input cannot be told to end.
    runtime.shutdown_background();
    result
}

async fn work(command: Command, settings: Settings) -> Result<Exit, CliError> {
    let clock = SystemClock::start();
    let tunnel = match command.is_local() {
        true => None,
        false => Tunnel::open(&settings.ssh, &settings.endpoint, &clock).await?,
    };
    let endpoint = tunnel.as_ref().map_or(settings.endpoint, Tunnel::endpoint);
    let mut context = Context {
        session: Session::new(&endpoint, &settings.access)?,
        output: Output::on_stdout(settings.format),
        progress: Progress::on_stderr(),
        ssh: settings.ssh,
        clock,
    };
    commands::run(&mut context, command).await
}

/// Prints an error, and says how the program ends.
fn settle(result: Result<Exit, CliError>) -> Exit {
    result.unwrap_or_else(|error| {
        // Where nobody reads errors, the exit code is all that is left to give.
        let _closed = error.print_as("fleetctl", Colour::of(&io::stderr()), &mut io::stderr());
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
