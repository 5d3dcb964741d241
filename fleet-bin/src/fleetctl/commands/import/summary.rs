//! Summary of an import, as text and as JSON.

use fleet_store::transfer::{Import, ImportOrigin, ImportReport};
use serde::Serialize;

use crate::fleetctl::args::ImportArgs;
use crate::ui::error::CliError;
use crate::ui::output::Record;

/// Result of an import or of a dry run.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImportSummary {
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
    pub(super) fn new(args: &ImportArgs, import: &Import) -> Self {
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
            input: super::input_name(args),
            format,
            dry_run: args.dry_run,
            keep_going: args.keep_going,
            remarks: import.remarks.clone(),
            origin,
            ..Self::default()
        }
    }

    pub(super) fn add_report(&mut self, report: ImportReport) {
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
    pub(super) fn text(&self) -> String {
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
    pub(super) fn verdict(&self) -> Result<(), CliError> {
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
