//! `fleet-init`: an init whose state follows from a graph of units.
//!
//! | step | module |
//! |---|---|
//! | read the command line | `args` |
//! | read the files | `files` |
//! | check them | `check` |
//! | say what would start (pure) | `waves`, `plan` |
//! | draw the graph (pure) | `dot`, `picture`, `layers` |
//! | convert units of other inits | `convert` |

mod args;
mod check;
mod convert;
mod dot;
mod files;
mod layers;
mod picture;
mod plan;
mod waves;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::fleetctl::error::{CliError, Exit};
use args::{Cli, Command};

/// Runs `fleet-init` with these arguments, the name of the program first, and returns its exit
/// code.
///
/// | status | meaning |
/// |---|---|
/// | 0 | done |
/// | 1 | it could not be done, or what was checked is wrong |
/// | 2 | the command line is wrong |
///
/// Results go to standard output, everything else to standard error.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let exit = match Cli::try_parse_from(args) {
        Ok(cli) => settle(execute(cli)),
        Err(error) => usage(&error),
    };
    ExitCode::from(exit.code())
}

/// Prints what clap has to say, which may be the help that was asked for.
fn usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.use_stderr() {
        return Exit::Usage;
    }
    settle(printed.map_err(CliError::from))
}

fn execute(cli: Cli) -> Result<(), CliError> {
    match cli.command {
        None => Ok(Cli::command().print_help()?),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Plan(args)) => plan::run(&args),
        Some(Command::Graph(args)) => dot::run(&args),
        Some(Command::Convert(args)) => convert::run(&args),
    }
}

/// Prints an error, and says how the program ends.
fn settle(result: Result<(), CliError>) -> Exit {
    let Err(error) = result else { return Exit::Success };
    // Where nobody reads errors, the exit code is all that is left to give.
    let _closed = error.print_as("fleet-init", &mut io::stderr());
    error.exit()
}
