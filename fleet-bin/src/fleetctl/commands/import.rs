//! `import`: imports an export, or an etcd dump of fleet v1.

mod summary;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Requirements, Snapshot, Strictness, Unit};
use fleet_http::client::UnitUpload;
use fleet_store::transfer::{
    Export, ExportItem, ExportReader, ExportedUnit, Import, ImportAction, ImportOptions,
    ImportPlan, ImportReport, PlannedUnit, RescheduleReason,
};
use fleet_unitfile::UnitFile;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::fleetctl::Context;
use crate::fleetctl::args::ImportArgs;
use crate::fleetctl::commands::export;
use crate::fleetctl::session::Session;
use crate::fleetd::offline::MissingStore;
use crate::ui::error::CliError;
use summary::ImportSummary;

/// Maximum number of concurrent uploads. Uploads are concurrent because a store commits many writes
/// in one transaction, at about the cost of a single write.
const MAX_IN_FLIGHT: usize = 32;

/// Number of metadata pairs per request.
const PAIRS_PER_REQUEST: usize = 64;

/// Runs the command.
pub(super) async fn run(context: &mut Context, args: &ImportArgs) -> Result<(), CliError> {
    let import = read(args)?;
    let mut summary = ImportSummary::new(args, &import);
    for remark in &import.remarks {
        context.progress.note(&format!("note: {remark}"));
    }
    let imported = tokio::select! {
        imported = import_all(context, import, args) => imported,
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(retry_hint(CliError::interrupted("the import was interrupted")))
        }
    };
    let report = imported?;
    for it in &report.warnings {
        context.progress.note(&format!("warning: {}: {}: {}", it.location, it.unit, it.message));
    }
    summary.add_report(report);
    context.output.list(std::slice::from_ref(&summary), &summary.text())?;
    summary.verdict()
}

fn read(args: &ImportArgs) -> Result<Import, CliError> {
    let name = input_name(args);
    let failed = |what: &str| CliError::failed(format!("cannot {what} {name}"));
    if args.file.as_os_str() == "-" {
        return Import::read(io::stdin()).map_err(|error| failed("import").because(error));
    }
    let file = File::open(&args.file).map_err(|error| {
        failed("read").because(error).help("give a file that \"fleetctl export FILE\" wrote")
    })?;
    Import::read(file).map_err(|error| failed("import").because(error))
}

/// Returns the name of the input for messages.
fn input_name(args: &ImportArgs) -> String {
    match args.file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => args.file.display().to_string(),
    }
}

async fn import_all(
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
        return import_through_daemon(&context.session, import, &mut options).await;
    };
    let missing = if args.dry_run { MissingStore::AssumeEmpty } else { MissingStore::Create };
    let offline = export::open_store(context, config, missing).await?;
    options.strictness = offline.strictness;
    let report = fleet_store::transfer::import(&offline.registry, import, &options).await;
    let name = input_name(args);
    let failed = || CliError::failed(format!("the import of {name} is incomplete"));
    let report = report.map_err(|error| retry_hint(failed().because(error)))?;
    if report.mismatches.is_some() {
        offline.keep().map_err(|error| CliError::failed(error.to_string()))?;
    }
    Ok(report)
}

/// Adds the hint that the import can be repeated after a partial write.
fn retry_hint(error: CliError) -> CliError {
    error.help("run the import again: units that are already imported are skipped")
}

/// Imports through a daemon. Its engine chooses all machines.
async fn import_through_daemon(
    session: &Session,
    import: Import,
    options: &mut ImportOptions,
) -> Result<ImportReport, CliError> {
    let before = read_target(session).await?;
    options.strictness = before.strictness;
    let epochs = import.epoch_to_exceed(&before.cluster);
    let plan = ImportPlan::new(import, &before.cluster, options);
    let mut report = plan.report(Some(RescheduleReason::ThroughDaemon));
    if options.dry_run || plan.is_refused(options) {
        return Ok(report);
    }
    write(session, &plan, epochs).await.map_err(retry_hint)?;
    let after = read_target(session).await?;
    report.mismatches = Some(plan.mismatches(&after.cluster));
    Ok(report)
}

/// Writes the plan. The epoch, the intents and the metadata come before the units, because the
/// engine's decisions about the units depend on them.
async fn write(session: &Session, plan: &ImportPlan, epochs: Epoch) -> Result<(), CliError> {
    session.import_epoch_and_intents(epochs, &plan.intents).await?;
    for changes in plan.metadata.chunks(PAIRS_PER_REQUEST) {
        session.set_metadata(changes).await?;
    }
    let puts = stream::iter(plan.new_units()).map(|it| put(session, it));
    puts.buffer_unordered(MAX_IN_FLIGHT).try_collect().await
}

async fn put(session: &Session, it: &PlannedUnit) -> Result<(), CliError> {
    let upload = UnitUpload::new(it.unit.file.clone())
        .with_desired(it.unit.desired)
        .with_create_only(it.action == ImportAction::Create);
    match session.import_unit(&it.unit.name, &upload, it.unit.generation).await? {
        true => Ok(()),
        false => {
            let name = &it.unit.name;
            Err(CliError::failed(format!(
                "cannot import {name}: another client has created a unit with this name"
            )))
        }
    }
}

/// Content of a cluster, and the strictness of its daemon.
pub(crate) struct ImportTarget {
    /// Units, broken units, run-time metadata, and intents for machines.
    pub(crate) cluster: Export,
    /// Treatment of unit files with problems that fleet v1 ignored, as configured in the daemon.
    pub(crate) strictness: Strictness,
}

/// Reads the content of the cluster.
pub(crate) async fn read_target(session: &Session) -> Result<ImportTarget, CliError> {
    let mut bytes = session.export().await?;
    let mut reader = ExportReader::new();
    let (mut snapshot, mut intents) = (Snapshot::default(), BTreeMap::new());
    let wrong = |error| CliError::failed("cannot read the units of the cluster").because(error);
    while let Some(piece) = session.next_export_chunk(&mut bytes).await? {
        let take = &mut |item, _| match item {
            ExportItem::Intent(it) => drop(intents.insert(it.machine, it.intent)),
            item => add(&mut snapshot, item),
        };
        reader.push(&piece, take).map_err(wrong)?;
    }
    let (header, _) = reader.finish().map_err(wrong)?;
    snapshot.revision = header.revision;
    let (snapshot, max_epoch) = (Arc::new(snapshot), header.max_epoch);
    // A lineage of an unknown form cannot equal that of any file.
    let lineage = header.lineage.and_then(|it| it.parse().ok());
    let cluster = Export { snapshot, intents, lineage, max_epoch };
    Ok(ImportTarget { cluster, strictness: bytes.strictness() })
}

fn add(snapshot: &mut Snapshot, item: ExportItem) {
    match item {
        ExportItem::Metadata(it) => snapshot.put_dynamic_metadata(it.machine, it.key, it.value),
        ExportItem::Intent(_) => {}
        ExportItem::Fault { unit, problem } => snapshot.put_fault(unit, Fault { message: problem }),
        ExportItem::Unit(it) => match unit(&it) {
            Ok(unit) => snapshot.put_unit(unit),
            Err(message) => snapshot.put_fault(it.name, Fault { message }),
        },
    }
}

/// Parses a unit of the cluster. A unit that is valid for the daemon can still fail here, because
/// the daemon may be newer than this program.
fn unit(from: &ExportedUnit) -> Result<Unit, String> {
    let file = UnitFile::parse(&from.source).map_err(|error| error.to_string())?;
    let parsed = Requirements::parse(&from.name, &file, Strictness::Warn);
    let requirements = parsed.map_err(|error| error.to_string())?.requirements;
    Ok(Unit::new(from.name.clone(), file, requirements, from.desired))
}
