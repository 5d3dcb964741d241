//! `import`: imports an export, or an etcd dump of fleet v1. Prints a summary as text or as JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Requirements, Snapshot, Strictness, Unit};
use fleet_http::client::UnitUpload;
use fleet_store::transfer::{
    Export, ExportItem, ExportReader, ExportedUnit, Import, ImportAction, ImportOptions,
    ImportOrigin, ImportPlan, ImportReport, PlannedUnit, RescheduleReason,
};
use fleet_unitfile::UnitFile;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::ImportArgs;
use crate::fleetctl::commands::export;
use crate::fleetctl::session::Session;
use crate::fleetd::offline::MissingStore;
use crate::ui::error::CliError;
use crate::ui::output::Record;

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

/// Result of an import or of a dry run.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportSummary {
    file: String,
    /// `export` or `v1`.
    format: &'static str,
    /// Whether the changes were written. This is `false` for a dry run, and if the import was
    /// refused.
    written: bool,
    dry_run: bool,
    created: u64,
    replaced: u64,
    same: u64,
    metadata: u64,
    intents: u64,
    kept: u64,
    left: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    why_left: String,
    refused: Vec<RefusedItem>,
    remarks: Vec<String>,
    content: String,
    /// Units that were not the same when they were read back; `None` if nothing was read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    differing: Option<Vec<String>>,
    /// Name of the file for messages.
    #[serde(skip)]
    input: String,
    /// Description of the file's origin.
    #[serde(skip)]
    origin: String,
    #[serde(skip)]
    keep_going: bool,
}

/// A refused item of the file.
#[derive(Debug, Serialize)]
struct RefusedItem {
    place: String,
    name: String,
    reasons: Vec<String>,
}

impl Record for ImportSummary {
    fn name(&self) -> &str {
        &self.file
    }
}

impl ImportSummary {
    fn new(args: &ImportArgs, import: &Import) -> Self {
        let (format, origin) = match &import.origin {
            ImportOrigin::Export { header, .. } => {
                let lineage = header.lineage.as_deref().unwrap_or("none");
                let (fleet, revision) = (&header.fleet, header.revision);
                let of = format!("by fleet {fleet} at revision {revision} of lineage {lineage}");
                ("export", format!("an export {of}"))
            }
            ImportOrigin::V1 { prefix } => {
                ("v1", format!("an etcd dump of fleet v1 with the key prefix {prefix}"))
            }
        };
        Self {
            file: args.file.display().to_string(),
            input: input_name(args),
            format,
            dry_run: args.dry_run,
            keep_going: args.keep_going,
            remarks: import.remarks.clone(),
            origin,
            ..Self::default()
        }
    }

    fn add_report(&mut self, report: ImportReport) {
        self.written = report.mismatches.is_some();
        (self.created, self.replaced, self.same) =
            (report.created, report.replaced, report.unchanged);
        (self.kept, self.left, self.metadata) =
            (report.placements_kept, report.rescheduled, report.metadata);
        self.intents = report.intents;
        self.why_left = report.reschedule_reason.map(|why| why.to_string()).unwrap_or_default();
        let refused = report.refused.into_iter();
        let refused = refused.map(|it| RefusedItem {
            place: it.location,
            name: it.name,
            reasons: it.reasons,
        });
        self.refused = refused.collect();
        (self.content, self.differing) = (report.content, report.mismatches);
    }

    /// Formats the summary for people.
    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.input, self.origin)];
        for it in &self.refused {
            let reasons = it.reasons.iter().map(|reason| (&it.place, &it.name, reason));
            lines.extend(reasons.map(|(place, name, reason)| format!("{place}: {name}: {reason}")));
        }
        if !self.refused.is_empty() && !self.keep_going {
            return lines.join("\n") + "\n";
        }
        if self.dry_run {
            lines.push("dry run: nothing was written; these changes would be made:".to_owned());
        }
        let counts = [(self.created, "created"), (self.replaced, "replaced")];
        let counts = counts.map(|(count, what)| format!("{count} {what}")).join(", ");
        lines.push(format!("units: {counts}, {} unchanged", self.same));
        if self.metadata > 0 {
            lines.push(format!("metadata: {} set", self.metadata));
        }
        if self.intents > 0 {
            lines.push(format!("machine intents: {} set", self.intents));
        }
        lines.extend(self.placements());
        let read_back = match &self.differing {
            None => "",
            Some(none) if none.is_empty() => "; read back and verified",
            Some(_) => "; read back and different",
        };
        lines.push(format!("content sha256 {}{read_back}", self.content));
        lines.join("\n") + "\n"
    }

    fn placements(&self) -> Option<String> {
        match (self.kept, self.left) {
            (0, 0) => None,
            (kept, 0) => Some(format!("placements: {kept} kept")),
            (_, left) => Some(format!("placements: {left} left to the engine: {}", self.why_left)),
        }
    }

    /// Returns an error if items of the file were refused, or if units were not the same when they
    /// were read back.
    fn verdict(&self) -> Result<(), CliError> {
        if !self.refused.is_empty() {
            return Err(self.refusal());
        }
        match self.differing.as_deref().unwrap_or_default() {
            [] => Ok(()),
            differing => Err(CliError::failed(format!(
                "after the import, these units differ from {}: {}",
                self.input,
                differing.join(", ")
            ))
            .help("another client might have changed them: check these units, then import again")),
        }
    }

    fn refusal(&self) -> CliError {
        let (file, items) = (
            &self.input,
            match self.refused.len() {
                1 => "1 item was".to_owned(),
                count => format!("{count} items were"),
            },
        );
        if self.keep_going {
            return CliError::failed(format!(
                "{items} refused and skipped while importing {file}, as listed above"
            ));
        }
        CliError::failed(format!(
            "nothing was imported from {file}: {items} refused, as listed above"
        ))
        .help("if units differ in the cluster, add --replace to overwrite them")
        .help("add --keep-going to skip the refused items and import the rest")
    }
}
