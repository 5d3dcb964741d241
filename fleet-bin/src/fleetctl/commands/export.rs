//! `export`: writes the cluster to one portable file, through a daemon or directly from its store.

use std::fs::File;
use std::io;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use fleet_http::client::ExportBytes;
use fleet_store::transfer::{ExportEnd, ExportHeader, ExportItem, ExportLines, ExportReader};
use fleet_store::{EmbeddedStore, Layout, Salvage};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::fleetctl::Context;
use crate::fleetctl::args::ExportArgs;
use crate::fleetd::offline;
use crate::fleetd::offline::{MissingStore, OfflineCluster};
use crate::ui::error::{CliError, Exit};
use crate::ui::output::Record;

/// Summary of an export.
#[derive(Debug, Serialize)]
struct ExportRecord {
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

impl Record for ExportRecord {
    fn name(&self) -> &str {
        &self.file
    }
}

/// Origin of the export.
enum ExportSource {
    Daemon(ExportBytes),
    Store(Box<ExportLines>),
}

/// Destination of the export.
enum ExportSink {
    Stdout {
        /// Last line, as far as it was received.
        partial: Vec<u8>,
    },
    File(ExportFile),
}

/// Runs the command. Parses the export while copying it, so that a truncated export is detected.
pub(super) async fn run(context: &mut Context, args: &ExportArgs) -> Result<(), CliError> {
    let mut lost = Vec::new();
    let from = match (&args.config, &args.salvage) {
        (_, Some(store)) => {
            let saved = EmbeddedStore::salvage(store, &Layout::default()).await;
            let saved = saved.map_err(|error| failed("read the store").because(error))?;
            lost = losses(&saved);
            ExportSource::Store(Box::new(saved.export.lines()))
        }
        (Some(config), None) => {
            let offline = open_store(context, config, MissingStore::Refuse).await?;
            let export = offline.registry.export().await;
            let export = export.map_err(|error| failed("read the store").because(error))?;
            ExportSource::Store(Box::new(export.lines()))
        }
        (None, None) => ExportSource::Daemon(context.session.export().await?),
    };
    let mut to = match args.file.as_os_str() == "-" {
        true => ExportSink::Stdout { partial: Vec::new() },
        false => ExportSink::File(
            ExportFile::begin(&args.file).map_err(|it| write_error(&args.file, it))?,
        ),
    };
    let copied = tokio::select! {
        copied = copy(context, from, &mut to, &args.file) => copied,
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(CliError::interrupted("interrupted: nothing was exported"))
        },
    };
    let (header, end, broken) = copied?;
    if let ExportSink::File(file) = to {
        file.finish().map_err(|error| write_error(&args.file, error))?;
        print_summary(context, &args.file, header, end)?;
    }
    if let Some(store) = args.salvage.as_deref().filter(|_| !lost.is_empty()) {
        lost.extend(broken.iter().map(|unit| format!("lost: unit {unit}")));
        return Err(incomplete_salvage(store, &lost));
    }
    match broken.len() {
        0 => Ok(()),
        _ => Err(broken_units(&broken)),
    }
}

/// Returns a line for each lost or uncertain part of a salvaged store.
fn losses(saved: &Salvage) -> Vec<String> {
    let unreadable = saved.unreadable.iter().map(|part| format!("unreadable: {part}"));
    let lost = saved.lost_units.iter().map(|unit| format!("lost: unit {unit}"));
    let uncertain = saved.uncertain.iter();
    let uncertain = uncertain.map(|part| format!("possibly out of date or deleted: {part}"));
    unreadable.chain(lost).chain(uncertain).collect()
}

/// Returns the error for a salvage that is not complete. The export is written.
fn incomplete_salvage(store: &Path, lost: &[String]) -> CliError {
    let lines: String = lost.iter().map(|line| format!("\n  {line}")).collect();
    CliError::failed(format!("{} is not fully readable:{lines}", store.display())).help(
        "import the export into a new store, compare it with your unit files, and run \"fleetd \
         accept-store\" on each machine: this stops the units that are not in it",
    )
}

/// Copies the export to its destination. Returns its header, its end record, and the units in it
/// that cannot be read, each with the problem.
async fn copy(
    context: &mut Context,
    mut from: ExportSource,
    to: &mut ExportSink,
    path: &Path,
) -> Result<(ExportHeader, ExportEnd, Vec<String>), CliError> {
    let mut reader = ExportReader::new();
    let mut broken = Vec::new();
    let wrong = |error| failed("export the cluster").because(error);
    loop {
        let piece = match &mut from {
            ExportSource::Daemon(bytes) => context.session.next_export_chunk(bytes).await?,
            ExportSource::Store(lines) => lines.next().map(Into::into),
        };
        let Some(piece) = piece else { break };
        let note = &mut |item, _| {
            if let ExportItem::Fault { unit, problem } = item {
                broken.push(format!("{unit}: {problem}"));
            }
        };
        reader.push(&piece, note).map_err(wrong)?;
        match to {
            ExportSink::Stdout { partial } => {
                partial.extend_from_slice(&piece);
                let end = partial.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                context.output.json_lines(&partial[..end])?;
                partial.drain(..end);
            }
            ExportSink::File(file) => {
                file.write(&piece).map_err(|error| write_error(path, error))?;
            }
        }
    }
    let (header, end) = reader.finish().map_err(wrong)?;
    Ok((header, end, broken))
}

fn print_summary(
    context: &mut Context,
    file: &Path,
    header: ExportHeader,
    end: ExportEnd,
) -> Result<(), CliError> {
    let exported = ExportRecord {
        file: file.display().to_string(),
        units: end.units,
        metadata: end.metadata,
        intents: end.intents,
        revision: header.revision.0,
        lineage: header.lineage,
        content: end.content,
        sha256: end.sha256,
    };
    let ExportRecord { units, revision, content, .. } = &exported;
    let units = if *units == 1 { "1 unit".to_owned() } else { format!("{units} units") };
    let text = format!("exported {units} at revision {revision}\ncontent sha256 {content}\n");
    context.output.list(&[exported], &text)
}

/// Returns the error for broken units. The export is complete except for them.
fn broken_units(broken: &[String]) -> CliError {
    let what = broken.join("; ");
    CliError::failed(format!("the export lacks units whose files cannot be read: {what}")).help(
        "replace the files with \"fleetctl submit --replace\", or destroy the units, and export \
         again",
    )
}

fn failed(what: &str) -> CliError {
    CliError::failed(format!("cannot {what}"))
}

fn write_error(path: &Path, error: io::Error) -> CliError {
    let kind = error.kind();
    let error = failed(&format!("write {}", path.display())).because(error);
    match kind {
        ErrorKind::NotFound | ErrorKind::PermissionDenied => {
            error.help("give a file in an existing and writable folder")
        }
        _ => error,
    }
}

/// Opens the store, and prints warnings about the configuration.
pub(crate) async fn open_store(
    context: &mut Context,
    config: &Path,
    missing: MissingStore,
) -> Result<OfflineCluster, CliError> {
    let store = offline::open(config, missing).await.map_err(|error| {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failure };
        CliError::failed(error.to_string()).with_exit(exit)
    })?;
    for remark in &store.warnings {
        context.progress.note(&format!("{}: {remark}", config.display()));
    }
    Ok(store)
}

/// A temporary file that gets its final name once it is complete and synced. Until then, an
/// existing file of that name is unchanged. Only the owner can read the new file.
struct ExportFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl ExportFile {
    /// Creates a temporary file next to `path`.
    ///
    /// # Errors
    ///
    /// `path` is a directory or a device, or its parent directory is missing or not writable.
    fn begin(path: &Path) -> io::Result<Self> {
        // A symbolic link stays; its target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Ok(existing) = path.metadata()
            && !existing.is_file()
        {
            let text = match existing.is_dir() {
                true => "it is a directory: give a file in it",
                false => "not a regular file: redirect standard output to it instead",
            };
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        // A missing folder is reported without the name of the temporary file.
        folder(&path).metadata()?;
        let file = tempfile::Builder::new().prefix(".fleet-export-").tempfile_in(folder(&path))?;
        Ok(Self { path, file })
    }

    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Syncs the file, and moves it to its final name.
    fn finish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path)?;
        File::open(folder(&self.path))?.sync_all()
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_file_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export");
        std::fs::write(&path, "before").unwrap();
        let mut file = ExportFile::begin(&path).unwrap();
        file.write(b"ha").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        let mut file = ExportFile::begin(&path).unwrap();
        file.write(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "something was left behind");
    }

    #[test]
    fn missing_folder_error_hides_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = ExportFile::begin(&folder.path().join("none/export")).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    }

    #[test]
    fn folders_and_devices_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ExportFile::begin(folder.path()).is_err());
        assert!(ExportFile::begin(Path::new("/dev/null")).is_err());
    }
}
