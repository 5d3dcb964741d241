//! `completions`, `man` and `reference`: documents generated from the program itself.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::fleetctl::args::Cli;
use crate::fleetctl::help;
use crate::fleetctl::reference::reference;
use crate::fleetctl::session::context::Context;
use crate::ui::error::CliError;

/// Runs `completions`.
pub(super) fn completions(context: &mut Context, shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fleetctl", &mut script);
    context.output.raw(&script)
}

/// Runs `man`: a page for the program and one for each command.
pub(super) fn man(context: &mut Context, folder: &Path) -> Result<(), CliError> {
    let cannot = |error| {
        CliError::failed(format!("cannot write manual pages to {}", folder.display()))
            .because(error)
            .help("give an existing folder, such as /usr/local/share/man/man1")
    };
    clap_mangen::generate_to(help::command(), folder).map_err(cannot)?;
    context.progress.note(&format!("see \"man {}/fleetctl.1\"", folder.display()));
    Ok(())
}

/// Runs `reference`.
pub(super) fn print_reference(context: &mut Context) -> Result<(), CliError> {
    context.output.raw(reference(help::command()).as_bytes())
}
