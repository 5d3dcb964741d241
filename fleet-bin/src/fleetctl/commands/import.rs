//! `import`: what an export holds, or the keys of a fleet v1, brought into a cluster.

mod told;

use std::fs::File;
use std::io;

use fleet_core::Epoch;
use fleet_http::UnitUpload;
use fleet_store::{
    Import, ImportAction, ImportOptions, ImportPlan, ImportReport, PlacementsLeft, PlannedUnit,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::fleetctl::args::ImportArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::session::Session;
use crate::fleetctl::{offline, target};
use crate::fleetd::offline::Missing;
use told::Told;

/// How many units are sent at once. A store that writes durably takes many at hardly more cost
/// than one.
const AT_ONCE: usize = 32;

/// How many pairs of metadata are set in one step.
const PAIRS: usize = 64;

/// Runs the command.
pub(super) async fn run(context: &mut Context, args: &ImportArgs) -> Result<(), CliError> {
    let import = read(args)?;
    let mut told = Told::new(args, &import);
    for remark in &import.remarks {
        context.progress.note(&format!("note: {remark}"));
    }
    let imported = tokio::select! {
        imported = bring(context, import, args) => imported,
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(again(CliError::interrupted("the import was broken off")))
        }
    };
    told.take(imported?);
    context.output.list(std::slice::from_ref(&told), &told.text())?;
    told.verdict()
}

fn read(args: &ImportArgs) -> Result<Import, CliError> {
    let name = args.file.display();
    let failed = |what: &str| CliError::failed(format!("cannot {what} {name}"));
    if args.file.as_os_str() == "-" {
        return Import::read(io::stdin()).map_err(|error| failed("import").because(error));
    }
    let file = File::open(&args.file).map_err(|error| {
        failed("read").because(error).help("name a file that \"fleetctl export FILE\" wrote")
    })?;
    Import::read(file).map_err(|error| failed("import").because(error))
}

async fn bring(
    context: &mut Context,
    import: Import,
    args: &ImportArgs,
) -> Result<ImportReport, CliError> {
    let mut options = ImportOptions {
        replace: args.replace,
        keep_going: args.keep_going,
        dry_run: args.dry_run,
        ..ImportOptions::default()
    };
    let Some(config) = &args.config else {
        return ask(&context.session, import, &mut options).await;
    };
    let missing = if args.dry_run { Missing::Pretend } else { Missing::Make };
    let offline = offline::open(context, config, missing).await?;
    options.strictness = offline.strictness;
    let report = fleet_store::import(&offline.registry, import, &options).await;
    let name = args.file.display();
    let failed = || CliError::failed(format!("cannot import all that {name} holds"));
    let report = report.map_err(|error| again(failed().because(error)))?;
    if report.differing.is_some() {
        offline.keep().map_err(|error| CliError::failed(error.to_string()))?;
    }
    Ok(report)
}

/// Some of it may be there now.
fn again(error: CliError) -> CliError {
    error.help("import it again: what is there already is left as it is")
}

/// Has a daemon take everything in. Its engine alone chooses machines.
async fn ask(
    session: &Session,
    import: Import,
    options: &mut ImportOptions,
) -> Result<ImportReport, CliError> {
    let before = target::read(session).await?;
    options.strictness = before.strictness;
    let epochs = import.epochs_ahead_of(&before.cluster);
    let plan = ImportPlan::new(import, &before.cluster, options);
    let report = plan.report(Some(PlacementsLeft::ThroughDaemon));
    if options.dry_run || plan.is_refused(options) {
        return Ok(report);
    }
    write(session, &plan, epochs).await.map_err(again)?;
    let after = target::read(session).await?;
    Ok(ImportReport { differing: Some(plan.differing(&after.cluster)), ..report })
}

/// First what counts for whatever the engine decides on the units.
async fn write(session: &Session, plan: &ImportPlan, epochs: Epoch) -> Result<(), CliError> {
    session.hand_over(epochs, &plan.intents).await?;
    for changes in plan.metadata.chunks(PAIRS) {
        session.set_metadata(changes).await?;
    }
    let puts = stream::iter(plan.new_units()).map(|it| put(session, it));
    puts.buffer_unordered(AT_ONCE).try_collect().await
}

async fn put(session: &Session, it: &PlannedUnit) -> Result<(), CliError> {
    let upload = UnitUpload {
        file: it.unit.file.clone(),
        desired: Some(it.unit.desired),
        create_only: it.action == ImportAction::Create,
    };
    match session.put(&it.unit.name, &upload).await? {
        true => Ok(()),
        false => {
            let name = &it.unit.name;
            Err(CliError::failed(format!("somebody else has just created {name}")))
        }
    }
}
