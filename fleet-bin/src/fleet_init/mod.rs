//! `fleet-init`: an init that computes its state from a dependency graph of units.
//!
//! | step | module |
//! |---|---|
//! | command line | `args` |
//! | files | `files`; the accepted definitions of a running one: `sources` |
//! | the commands `plan` and `check` | `plan` |
//! | drawings (pure) | `dot` |
//! | conversion from other inits | `convert` |
//! | running and ending units | `run`, `shutdown` |
//! | serving requests | `server`; the results: `client`, `status` |
//! | process 1 of a container | `pid1` |
//! | socket and directories | `paths` |
//! | client commands | `client`, `status`, `tree`, `logs`, `verbs`, `outcome` |

mod args;
mod client;
mod convert;
mod dot;
mod files;
mod logs;
mod outcome;
mod paths;
mod pid1;
mod plan;
mod run;
mod server;
mod shutdown;
mod sources;
mod status;
mod tree;
mod verbs;

pub(crate) use self::status::format_duration;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::ui::error::{CliError, Exit};
use crate::ui::table::Colour;
use args::{Cli, Command};

/// Runs `fleet-init` with these arguments, of which the first is the program name. Returns the exit
/// code.
///
/// | status | meaning |
/// |---|---|
/// | 0 | success |
/// | 1 | failure, or the checked files have errors |
/// | 2 | the command line is wrong |
/// | 3 | `convert`: some settings could not be converted |
///
/// Results go to standard output, everything else to standard error.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    match Cli::try_parse_from(args) {
        Ok(cli) => execute(cli),
        Err(error) => {
            let error = args::with_hint(error, &Cli::command());
            ExitCode::from(usage(&error).code())
        }
    }
}

/// Prints clap's message, which may be requested help.
fn usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.use_stderr() {
        return Exit::Usage;
    }
    exit_of(printed.map_err(CliError::from))
}

fn execute(cli: Cli) -> ExitCode {
    let done = match cli.command {
        None => Cli::command().print_help().map_err(CliError::from),
        Some(Command::Check(args)) => plan::check(&args),
        Some(Command::Plan(args)) => plan::run(&args),
        Some(Command::Graph(args)) => dot::run(&args),
        Some(Command::Convert(args)) => convert::run(&args),
        Some(Command::Run(args)) => return run::run(&args),
        Some(Command::Status(args)) => status::run(&args),
        Some(Command::Logs(args)) => logs::run(&args),
        Some(Command::SetTarget(args)) => verbs::set_target(&args),
        Some(Command::Reload(args)) => verbs::reload(&args),
        Some(Command::Restart(args)) => verbs::restart(&args),
        Some(Command::ResetFailed(args)) => verbs::reset_failed(&args),
        Some(Command::Mask(args)) => verbs::mask(&args),
        Some(Command::Unmask(args)) => verbs::unmask(&args),
    };
    exit_with(done)
}

/// Prints an error and returns the exit code.
fn exit_with(result: Result<(), CliError>) -> ExitCode {
    ExitCode::from(exit_of(result).code())
}

/// Prints an error and returns its exit.
fn exit_of(result: Result<(), CliError>) -> Exit {
    let Err(error) = result else { return Exit::Success };
    // If standard error is closed, the exit code is all that remains.
    let _closed =
        error.print_as("fleet-init", Colour::for_stream(&io::stderr()), &mut io::stderr());
    error.exit()
}
