//! What came of an import, in words and as JSON.

use fleet_store::{Import, ImportOrigin, ImportReport};
use serde::Serialize;

use crate::fleetctl::args::ImportArgs;
use crate::fleetctl::error::CliError;
use crate::fleetctl::output::Record;

/// What came of an import, or would come of it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    file: String,
    /// `export` or `v1`.
    format: &'static str,
    /// Whether anything was written, or would have been; not if something was refused.
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
    refused: Vec<Refused>,
    remarks: Vec<String>,
    content: String,
    /// What was read back and is not as it was written; nothing if it was not read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    differing: Option<Vec<String>>,
    /// What the file says of itself.
    #[serde(skip)]
    origin: String,
    #[serde(skip)]
    keep_going: bool,
}

/// Something that was refused.
#[derive(Debug, Serialize)]
struct Refused {
    place: String,
    name: String,
    reasons: Vec<String>,
}

impl Record for Told {
    fn name(&self) -> &str {
        &self.file
    }
}

impl Told {
    pub(super) fn new(args: &ImportArgs, import: &Import) -> Self {
        let (format, origin) = match &import.origin {
            ImportOrigin::Export { header, .. } => {
                let lineage = header.lineage.as_deref().unwrap_or("none");
                let (fleet, revision) = (&header.fleet, header.revision);
                let of = format!("by fleet {fleet} at revision {revision} of lineage {lineage}");
                ("export", format!("an export {of}"))
            }
            ImportOrigin::V1 { prefix } => ("v1", format!("the keys of a fleet v1 in {prefix}")),
        };
        Self {
            file: args.file.display().to_string(),
            format,
            dry_run: args.dry_run,
            keep_going: args.keep_going,
            remarks: import.remarks.clone(),
            origin,
            ..Self::default()
        }
    }

    pub(super) fn take(&mut self, report: ImportReport) {
        self.written = report.differing.is_some();
        (self.created, self.replaced, self.same) = (report.created, report.replaced, report.same);
        (self.kept, self.left, self.metadata) = (report.kept, report.left, report.metadata);
        self.intents = report.intents;
        self.why_left = report.why_left.map(|why| why.to_string()).unwrap_or_default();
        let refused = report.refused.into_iter();
        let refused =
            refused.map(|it| Refused { place: it.place, name: it.name, reasons: it.reasons });
        self.refused = refused.collect();
        (self.content, self.differing) = (report.content, report.differing);
    }

    /// What a person sees.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.file, self.origin)];
        for it in &self.refused {
            let told = it.reasons.iter().map(|reason| (&it.place, &it.name, reason));
            lines.extend(told.map(|(place, name, reason)| format!("{place}: {name}: {reason}")));
        }
        if !self.refused.is_empty() && !self.keep_going {
            return lines.join("\n") + "\n";
        }
        if self.dry_run {
            lines.push("dry run, nothing was written; this would be done:".to_owned());
        }
        let counts = [(self.created, "created"), (self.replaced, "replaced")];
        let counts = counts.map(|(count, what)| format!("{count} {what}")).join(", ");
        lines.push(format!("units: {counts}, {} the same already", self.same));
        if self.metadata > 0 {
            lines.push(format!("metadata: {} set", self.metadata));
        }
        if self.intents > 0 {
            lines.push(format!("machines to take no units: {} noted", self.intents));
        }
        lines.extend(self.placements());
        let read_back = match &self.differing {
            None => "",
            Some(none) if none.is_empty() => ": read back, and the same",
            Some(_) => ": read back, and not the same",
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

    /// How the program ends.
    pub(super) fn verdict(&self) -> Result<(), CliError> {
        if !self.refused.is_empty() {
            return Err(self.refusal());
        }
        match self.differing.as_deref().unwrap_or_default() {
            [] => Ok(()),
            differing => Err(CliError::failed(format!(
                "what was read back is not as it was written: {}",
                differing.join(", ")
            ))
            .help("somebody else changes the cluster: look at these, and import again")),
        }
    }

    fn refusal(&self) -> CliError {
        let count = self.refused.len();
        if self.keep_going {
            return CliError::failed(format!("{count} refused and left out, as told above"));
        }
        CliError::failed(format!("nothing was written: {count} refused, as told above"))
            .help("--replace puts what is in the file in the place of what differs in the cluster")
            .help("--keep-going imports the rest")
    }
}
