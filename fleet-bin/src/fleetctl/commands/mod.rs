//! Implementations of the commands, one file each.

mod apply;
mod docs;
mod doctor;
mod events;
mod explain;
mod export;
mod history;
mod import;
mod job;
mod list_machines;
mod list_unit_files;
mod list_units;
mod logs;
mod machine;
mod rebalance;
mod rollout;
mod run;
mod scale;
mod ssh;
mod start;
mod status;
mod stop;
mod top;
mod ui;
mod upload;
mod verify;

use fleet_core::Verb;

use super::Context;
use super::args::{Command, DestroyArgs, LoadArgs, StartArgs, StopArgs, WaitUntil};
use crate::ui::error::{CliError, Exit};

/// Runs a command and returns the exit status.
pub(crate) async fn run(context: &mut Context, command: Command) -> Result<Exit, CliError> {
    let result = carry_out(context, command).await;
    if result.is_err() {
        // Results before the error are printed, too. The first error wins.
        let _closed = context.output.finish_partial();
    }
    if let Some(age) = context.session.behind() {
        let seconds = age.as_secs();
        context.progress.note(&format!(
            "warning: fleetd has had no contact with its store for at least {seconds} s; this \
             output is older than that"
        ));
    }
    result
}

async fn carry_out(context: &mut Context, command: Command) -> Result<Exit, CliError> {
    match command {
        Command::Submit(args) => start::submit(context, &args.create).await?,
        Command::Load(LoadArgs { create, wait }) => {
            start::run(context, Verb::Load, &create, WaitUntil::Loaded, wait.into()).await?;
        }
        Command::Start(StartArgs { create, until, wait }) => {
            start::run(context, Verb::Start, &create, until.state, wait.into()).await?;
        }
        Command::Run(args) => return run::run(context, args).await,
        Command::Job(args) => return job::run(context, args.command).await,
        Command::Schedule(args) => return job::schedule(context, args.command).await,
        Command::Stop(args) => stop_units(context, Verb::Stop, args).await?,
        Command::Unload(args) => stop_units(context, Verb::Unload, args).await?,
        Command::Destroy(DestroyArgs { stop, yes }) => {
            stop::destroy(context, &stop.units, yes, stop.wait.into()).await?;
        }
        Command::Restart(args) => stop::restart(context, args).await?,
        Command::Apply(args) => return apply::run(context, args).await,
        Command::Diff(args) => return apply::diff(context, &args.manifest).await,
        Command::History(args) => history::history(context, &args).await?,
        Command::Revisions(args) => history::revisions(context, &args).await?,
        Command::Rollback(args) => return history::rollback(context, args).await,
        Command::Plan(args) => return apply::plan(context, &args).await,
        Command::Explain(args) => explain::run(context, &args).await?,
        Command::Logs(args) => logs::run(context, &args).await?,
        Command::Events(args) => events::run(context, &args).await?,
        Command::Doctor => return doctor::run(context).await,
        Command::Scale(args) => return scale::run(context, args).await,
        Command::Cat(args) => list_unit_files::cat(context, &args.units).await?,
        Command::Status(args) => return status::run(context, &args).await,
        Command::Journal(args) => logs::journal(context, &args).await?,
        Command::Verify(args) => verify::run(context, &args)?,
        Command::ListUnits(args) => {
            let run = async |context: &mut Context| list_units::run(context, &args).await;
            list(context, args.list.watch, run).await?;
        }
        Command::ListUnitFiles(args) => {
            let run = async |context: &mut Context| list_unit_files::run(context, &args).await;
            list(context, args.list.watch, run).await?;
        }
        Command::ListMachines(args) => {
            let run = async |context: &mut Context| list_machines::run(context, &args).await;
            list(context, args.list.watch, run).await?;
        }
        Command::Top => top::run(context).await?,
        Command::Export(args) => export::run(context, &args).await?,
        Command::Import(args) => import::run(context, &args).await?,
        Command::Machine(args) => return machine::run(context, &args.command).await,
        Command::Rollout(args) => return rollout::run(context, args.command).await,
        Command::Rebalance(args) => return rebalance::run(context, &args).await,
        Command::Completions(args) => docs::completions(context, args.shell)?,
        // It ran before the settings were checked.
        Command::CompleteWords(_) => {}
        Command::Man(args) => docs::man(context, &args.folder)?,
        Command::Reference => docs::print_reference(context)?,
        Command::Version(args) => docs::version(context, args.server).await?,
        Command::Ssh(args) => return ssh::run(context, &args).await,
        Command::Ui(args) => ui::run(context, &args).await?,
        Command::FdForward(args) => ssh::fd_forward(&args.socket).await?,
    }
    Ok(Exit::Success)
}

/// Returns the names of the columns of a list; none for another command.
pub(crate) fn column_names(command: &str) -> Vec<&'static str> {
    match command {
        "list-units" => list_units::COLUMNS.names(),
        "list-unit-files" => list_unit_files::COLUMNS.names(),
        "list-machines" => list_machines::COLUMNS.names(),
        _ => Vec::new(),
    }
}

async fn stop_units(context: &mut Context, verb: Verb, args: StopArgs) -> Result<(), CliError> {
    stop::run(context, verb, &args.units, args.wait.into()).await
}

/// Prints a list once, or again after each change.
async fn list(
    context: &mut Context,
    again: bool,
    run: impl AsyncFn(&mut Context) -> Result<(), CliError>,
) -> Result<(), CliError> {
    match again {
        true => events::watch(context, run).await,
        false => run(context).await,
    }
}
