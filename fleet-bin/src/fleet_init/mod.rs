//! `fleet-init`: an init whose state follows from a graph of units.
//!
//! | step | module |
//! |---|---|
//! | read the command line | `args` |
//! | read the files | `files`; what one that runs took of them: `origin` |
//! | check them | `check` |
//! | say what would be done (pure) | `foretold`; as it is asked for: `plan` |
//! | draw the graph (pure) | `dot`, `picture`, `layers` |
//! | convert units of other inits | `convert` |
//! | run units, and end them | `run`, `ending`; break off at a defect: `defects` |
//! | answer what is asked of it | `answers`; as it is sent: `asks`, `shown` |
//! | be the first process of a container | `warden`; what is left at its end: `orphans` |
//! | where it listens and keeps files | `places` |
//! | ask one that runs | `asking`, `status`, `tree`, `fleet`, `logs`, `verbs` |

mod answers;
mod args;
mod asking;
mod asks;
mod check;
mod convert;
mod defects;
mod dot;
mod ending;
mod files;
mod fleet;
mod foretold;
mod layers;
mod logs;
mod origin;
mod orphans;
mod picture;
mod places;
mod plan;
mod run;
mod shown;
mod status;
mod tree;
mod verbs;
mod warden;

pub(crate) use shown::brief;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::fleetctl::colour::Colour;
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
/// | 3 | `convert`: something is lost |
///
/// Results go to standard output, everything else to standard error.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    match Cli::try_parse_from(args) {
        Ok(cli) => execute(cli),
        Err(error) => ExitCode::from(usage(&error).code()),
    }
}

/// Prints what clap has to say, which may be the help that was asked for.
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
        Some(Command::Check(args)) => check::run(&args),
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
    };
    settle(done)
}

/// Prints an error, and ends the program in its way.
fn settle(result: Result<(), CliError>) -> ExitCode {
    ExitCode::from(exit_of(result).code())
}

/// Prints an error, and says how the program ends.
fn exit_of(result: Result<(), CliError>) -> Exit {
    let Err(error) = result else { return Exit::Success };
    // Where nobody reads errors, the exit code is all that is left to give.
    let _closed = error.print_as("fleet-init", Colour::of(&io::stderr()), &mut io::stderr());
    error.exit()
}
