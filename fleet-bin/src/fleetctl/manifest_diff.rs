//! Comparison of unit files with the units of the cluster.

use std::path::{Path, PathBuf};

use fleet_core::{Requirements, Strictness, TargetState};
use fleet_http::client::UnitUpload;
use fleet_http::wire;
use fleet_unitfile::UnitName;
use similar::TextDiff;

use super::args::ranges::expand_all;
use super::concurrent::buffered;
use super::local::{LocalFile, LocalUnits, read_units};
use super::session::{Session, source};
use crate::ui::drop_ins::drop_in_folder;
use crate::ui::error::CliError;
use crate::ui::findings::orphaned_drop_ins;
use crate::ui::names::unit_args;

/// A unit of a file, with the cluster's unit of this name.
#[derive(Debug)]
pub(crate) struct UnitDiff {
    pub(crate) name: UnitName,
    pub(crate) file: LocalFile,
    pub(crate) desired: TargetState,
    pub(crate) known: Option<wire::UnitEntity>,
}

/// Change that applying a file makes to its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitChange {
    /// No change.
    None,
    /// The cluster does not know the unit.
    Create,
    /// The cluster has a different file.
    Replace,
    /// The file is the same, but the desired state differs.
    State,
}

impl UnitChange {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::State => "state",
        }
    }
}

/// Reads the unit files at all paths. The path of a directory selects all unit files in it.
/// Drop-ins in the directory without a unit file are an error in the result.
///
/// # Errors
///
/// A file does not exist or cannot be read, or a directory has no unit files.
pub(crate) fn read(paths: &[String]) -> Result<LocalUnits, CliError> {
    let paths = expand_all(paths)?;
    let orphans = paths.iter().map(|path| orphaned_drop_ins(Path::new(path))).collect();
    let orphans = CliError::all_or_none(orphans)?;
    let files = paths.into_iter().map(files_at).collect();
    let files: Vec<String> = CliError::all_or_none(files)?.into_iter().flatten().collect();
    let mut local = read_units(unit_args(&files)?)?;
    local.findings.extend(orphans.into_iter().flatten());
    let missing = local.units.iter().filter(|unit| unit.file.is_none());
    let missing = missing.map(|unit| {
        let error = CliError::failed(format!("there is no file {}", unit.path.display()));
        match unit.name.template() {
            Some(template) => error.help(format!("write that file, or its template {template}")),
            None => error.help("give unit files, or folders with unit files"),
        }
    });
    CliError::combined(missing.collect())?;
    Ok(local)
}

fn files_at(path: String) -> Result<Vec<String>, CliError> {
    if drop_in_folder(Path::new(&path)).is_some() {
        return Ok(vec![path]); // Accepted beside its unit
    }
    if !Path::new(&path).is_dir() {
        return match path.ends_with('/') {
            true => Err(CliError::failed(format!("there is no folder {path}"))
                .help("give unit files, or folders with unit files")),
            false => Ok(vec![path]),
        };
    }
    let files = unit_files_in(Path::new(&path))?;
    Ok(files.iter().map(|file| file.to_string_lossy().into_owned()).collect())
}

/// Returns the unit files in a directory, sorted by name.
///
/// # Errors
///
/// The directory cannot be read or has no unit files.
pub(crate) fn unit_files_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let folder_name = folder.display();
    let cannot = |error| CliError::failed(format!("cannot read {folder_name}")).because(error);
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if UnitName::parse(&name).is_ok() && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(CliError::failed(format!("no unit files in {folder_name}"))
            .help("the name of a unit file ends in its type, as in web.service")),
        false => Ok(files),
    }
}

/// Looks up each unit in the cluster, and returns it together with its local file and the state
/// that the user wants for it. That state is `desired`, or inactive for a template.
pub(crate) async fn compare(
    session: &Session,
    units: Vec<(UnitName, LocalFile)>,
    desired: TargetState,
) -> Result<Vec<UnitDiff>, CliError> {
    let known = buffered(units.iter().map(|(name, _)| session.unit(name))).await;
    let known = CliError::all_or_none(known)?;
    let diffs = units.into_iter().zip(known).map(|((name, file), known)| {
        let desired = if name.is_template() { TargetState::Inactive } else { desired };
        UnitDiff { name, file, desired, known }
    });
    Ok(diffs.collect())
}

impl UnitDiff {
    /// Returns the change to make.
    pub(crate) fn change(&self) -> UnitChange {
        let Some(known) = &self.known else { return UnitChange::Create };
        match source(known) {
            Ok(source) if source == self.file.file.source() => match self.changes_state() {
                true => UnitChange::State,
                false => UnitChange::None,
            },
            _ => UnitChange::Replace,
        }
    }

    /// Whether the desired state changes. A job that has ended is inactive, and its state only
    /// changes together with its file.
    pub(crate) fn changes_state(&self) -> bool {
        let has_run = self.desired == TargetState::Launched
            && self.ended_job().is_some_and(|job| job.hash == self.file.file.hash().to_string());
        !has_run && self.known.as_ref().is_none_or(|known| known.desired() != Some(self.desired))
    }

    /// Returns whether the file defines a job or a schedule; `false` for a file with errors.
    pub(crate) fn is_job_or_schedule(&self) -> bool {
        let parsed = Requirements::parse(&self.name, &self.file.file, Strictness::Warn);
        parsed.is_ok_and(|parsed| parsed.requirements.job.is_some())
    }

    /// Returns the unit's job if it has ended.
    pub(crate) fn ended_job(&self) -> Option<&wire::JobSummary> {
        let job = self.known.as_ref()?.job.as_ref();
        job.filter(|job| job.has_ended)
    }

    /// Returns the unit's present desired state; empty for an unknown unit.
    pub(crate) fn current_desired(&self) -> &str {
        self.known.as_ref().map_or("", |known| known.desired_state.as_str())
    }

    /// Returns the upload that applies the file.
    pub(crate) fn upload(&self) -> (UnitName, UnitUpload) {
        let (file, desired) = (self.file.file.clone(), Some(self.desired));
        (self.name.clone(), UnitUpload::new(file).with_desired(desired))
    }

    /// Returns a unified diff from the cluster's file to the local file; empty if both files are
    /// equal.
    pub(crate) fn diff(&self) -> String {
        let before = self.known.as_ref().and_then(|known| source(known).ok()).unwrap_or_default();
        let (before, after) = (lossy(&before), lossy(self.file.file.source()));
        if before == after {
            return String::new();
        }
        let theirs = match self.known {
            Some(_) => format!("cluster/{}", self.name),
            None => "/dev/null".to_owned(),
        };
        let diff = TextDiff::from_lines(&before, &after);
        diff.unified_diff().header(&theirs, &self.file.path.main().to_string_lossy()).to_string()
    }

    /// Describes the change in a line; empty if there is none.
    pub(crate) fn summary(&self) -> String {
        let (name, was, desired) = (&self.name, self.current_desired(), self.desired);
        match (self.change(), self.changes_state()) {
            (UnitChange::None, _) => String::new(),
            (UnitChange::Create, _) => format!("{name}: new, to be {desired}\n"),
            (UnitChange::Replace, false) => format!("{name}: changed file\n"),
            (UnitChange::Replace, true) if was.is_empty() => {
                format!("{name}: changed file, to be {desired}\n")
            }
            (UnitChange::Replace, true) => format!("{name}: changed file, {was} to {desired}\n"),
            (UnitChange::State, _) => format!("{name}: {was} to {desired}\n"),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::UnitFile;

    use super::*;

    fn unit_diff(known: Option<(&str, &str)>, text: &str) -> UnitDiff {
        let known = known.map(|(text, desired)| wire::UnitEntity {
            name: "web.service".into(),
            source: Some(text.into()),
            desired_state: desired.into(),
            ..wire::UnitEntity::default()
        });
        let file = LocalFile { path: "w/web.service".into(), file: UnitFile::parse(text).unwrap() };
        let name = "web.service".parse().unwrap();
        UnitDiff { name, file, desired: TargetState::Launched, known }
    }

    #[test]
    fn change_follows_from_file_and_desired_state() {
        let text = "[Service]\nExecStart=/bin/web\n";
        for (known, change, summary) in [
            (None, UnitChange::Create, "web.service: new, to be launched\n"),
            (Some((text, "launched")), UnitChange::None, ""),
            (Some((text, "loaded")), UnitChange::State, "web.service: loaded to launched\n"),
            (Some(("[A]\nb=c\n", "launched")), UnitChange::Replace, "web.service: changed file\n"),
            (
                Some(("[A]\nb=c\n", "loaded")),
                UnitChange::Replace,
                "web.service: changed file, loaded to launched\n",
            ),
        ] {
            let unit = unit_diff(known, text);
            assert_eq!((unit.change(), unit.summary().as_str()), (change, summary), "{known:?}");
        }
    }

    #[test]
    fn comments_and_missing_final_newlines_are_differences() {
        let unit = unit_diff(Some(("# old\n[A]\nb=c", "launched")), "# new\n[A]\nb=c\n");
        assert_eq!(unit.change(), UnitChange::Replace);
        insta::assert_snapshot!(unit.diff(), @r"
        --- cluster/web.service
        +++ w/web.service
        @@ -1,3 +1,3 @@
        -# old
        +# new
         [A]
        -b=c
        \ No newline at end of file
        +b=c
        ");
    }
}
