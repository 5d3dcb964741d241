//! `export`: the whole cluster as one portable file.

use std::io::{self, ErrorKind};
use std::path::Path;

use fleet_http::ExportBytes;
use fleet_store::{ExportEnd, ExportHeader, ExportItem, ExportLines, ExportReader};
use serde::Serialize;

use crate::fleetctl::args::ExportArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::offline;
use crate::fleetctl::output::Record;
use crate::fleetctl::whole_file::WholeFile;
use crate::fleetd::offline::Missing;

/// What was exported.
#[derive(Debug, Serialize)]
struct Exported {
    file: String,
    units: u64,
    metadata: u64,
    intents: u64,
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lineage: Option<String>,
    content: String,
    sha256: String,
}

impl Record for Exported {
    fn name(&self) -> &str {
        &self.file
    }
}

/// Where the lines come from.
enum From {
    Daemon(ExportBytes),
    Store(Box<ExportLines>),
}

/// Where they go.
enum To {
    Stdout,
    File(WholeFile),
}

/// Runs the command. What passes is read along the way, so that what a daemon cut off is no export.
pub(super) async fn run(context: &mut Context, args: &ExportArgs) -> Result<(), CliError> {
    let from = match &args.config {
        Some(config) => {
            let offline = offline::open(context, config, Missing::Refuse).await?;
            let export = offline.registry.export().await;
            let export = export.map_err(|error| failed("read the store").because(error))?;
            From::Store(Box::new(export.lines()))
        }
        None => From::Daemon(context.session.export().await?),
    };
    let mut to = match args.file.as_os_str() == "-" {
        true => To::Stdout,
        false => To::File(WholeFile::begin(&args.file).map_err(|it| unwritten(&args.file, it))?),
    };
    let copied = tokio::select! {
        copied = copy(context, from, &mut to, &args.file) => copied,
        Ok(()) = tokio::signal::ctrl_c() => Err(CliError::interrupted("nothing was exported")),
    };
    let (header, end, broken) = copied?;
    if let To::File(file) = to {
        file.finish().map_err(|error| unwritten(&args.file, error))?;
        tell(context, &args.file, header, end)?;
    }
    match broken.len() {
        0 => Ok(()),
        _ => Err(left_out(&broken)),
    }
}

/// Copies all lines, and returns what they say, with the units that cannot be understood.
async fn copy(
    context: &mut Context,
    mut from: From,
    to: &mut To,
    path: &Path,
) -> Result<(ExportHeader, ExportEnd, Vec<String>), CliError> {
    let mut reader = ExportReader::new();
    let mut broken = Vec::new();
    let wrong = |error| failed("export the cluster").because(error);
    loop {
        let piece = match &mut from {
            From::Daemon(bytes) => context.session.more(bytes).await?,
            From::Store(lines) => lines.next().map(Into::into),
        };
        let Some(piece) = piece else { break };
        let note = &mut |item, _| {
            if let ExportItem::Fault { unit, problem } = item {
                broken.push(format!("{unit}: {problem}"));
            }
        };
        reader.push(&piece, note).map_err(wrong)?;
        match to {
            To::Stdout => context.output.raw(&piece)?,
            To::File(file) => file.write(&piece).map_err(|error| unwritten(path, error))?,
        }
    }
    let (header, end) = reader.finish().map_err(wrong)?;
    Ok((header, end, broken))
}

fn tell(
    context: &mut Context,
    file: &Path,
    header: ExportHeader,
    end: ExportEnd,
) -> Result<(), CliError> {
    let exported = Exported {
        file: file.display().to_string(),
        units: end.units,
        metadata: end.metadata,
        intents: end.intents,
        revision: header.revision.0,
        lineage: header.lineage,
        content: end.content,
        sha256: end.sha256,
    };
    let Exported { units, revision, content, .. } = &exported;
    let units = if *units == 1 { "1 unit".to_owned() } else { format!("{units} units") };
    let text = format!("exported {units} at revision {revision}\ncontent sha256 {content}\n");
    context.output.list(&[exported], &text)
}

/// The export is complete but for what nobody could read.
fn left_out(broken: &[String]) -> CliError {
    let what = broken.join("; ");
    CliError::failed(format!("what cannot be understood is not in the export: {what}"))
        .help("mend such a unit, by \"fleetctl submit --replace\", or destroy it, and export again")
}

fn failed(what: &str) -> CliError {
    CliError::failed(format!("cannot {what}"))
}

fn unwritten(path: &Path, error: io::Error) -> CliError {
    let kind = error.kind();
    let error = failed(&format!("write {}", path.display())).because(error);
    match kind {
        ErrorKind::NotFound | ErrorKind::PermissionDenied => {
            error.help("name a file in a folder that is there and may be written")
        }
        _ => error,
    }
}
