//! The files of a fleet-init, and the definitions that it last accepted from these files.
//!
//! The accepted definitions stay in the state directory until all units have stopped. If a
//! fleet-init crashes while its files have errors, the next start uses the accepted definitions.
//! Without them, it could not start, and no process would supervise the running units.

use std::fs;
use std::path::PathBuf;

use fleet_agent::native::InitSupervisor;
use fleet_agent::remote::InitFileWire;
use fleet_core::graph::format::InitFile;
use fleet_core::graph::{Graph, Settings, Target};
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;

use super::files;
use super::files::Files;
use crate::ui::error::CliError;

/// File with the accepted definitions.
const FILE_NAME: &str = "accepted.json";

/// The configured paths of a fleet-init.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    paths: Vec<PathBuf>,
    /// Goal of the command line, which overrides the goal of the files.
    pub(super) goal: Option<Target>,
    /// State directory.
    pub(super) directory: PathBuf,
}

/// Valid definitions to run.
pub(super) struct Definitions {
    pub(super) graph: Graph,
    pub(super) settings: Settings,
    files: Vec<InitFile>,
}

/// Accepted definitions with their origin, as stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredDefinitions {
    paths: Vec<PathBuf>,
    goal: Option<String>,
    files: Vec<InitFileWire>,
}

impl Definitions {
    /// Builds the definitions from files. `goal` overrides the goal of the files.
    ///
    /// # Errors
    ///
    /// The files have errors, or neither they nor `goal` name a goal.
    pub(super) fn of(read: Files, goal: Option<&Target>) -> Result<Self, CliError> {
        let graph_and_goal = read.graph_and_goal(goal).map(|(graph, goal)| (graph.clone(), goal));
        let (graph, goal) = graph_and_goal.map_err(|error| read.with_skipped(error))?;
        if goal.is_none() {
            let error = CliError::usage("no goal is set, so there is nothing to run");
            let help = "give a goal with --goal TARGET, or write `goal: TARGET` in init.conf";
            return Err(read.with_skipped(error.help(help)));
        }
        let settings = Settings { goal, ..read.sources.settings().clone() };
        Ok(Self { graph, settings, files: read.sources.files })
    }
}

impl Sources {
    /// Creates the sources from paths, made absolute, and a state directory.
    pub(super) fn new(
        paths: &[PathBuf],
        goal: Option<Target>,
        directory: PathBuf,
    ) -> Result<Self, CliError> {
        let absolute = |path: &PathBuf| {
            let cannot = || format!("cannot make the path {} absolute", path.display());
            std::path::absolute(path).map_err(|error| CliError::failed(cannot()).because(error))
        };
        Ok(Self { paths: paths.iter().map(absolute).collect::<Result<_, _>>()?, goal, directory })
    }

    /// Reads the files. If the files have errors and units may still be running, logs the errors
    /// and returns the last accepted definitions.
    ///
    /// # Errors
    ///
    /// The files have errors, and there are no accepted definitions to continue with.
    pub(super) fn read(&self) -> Result<Definitions, CliError> {
        let read =
            files::read(&self.paths).and_then(|read| Definitions::of(read, self.goal.as_ref()));
        read.or_else(|error| {
            match self.accepted().filter(|_| InitSupervisor::has_used(&self.directory)) {
                Some(accepted) => {
                    log_error(&error);
                    tracing::error!(
                        "cannot use the unit files: using the last version without errors; \
                         correct the files, then run `fleet-init reload`"
                    );
                    Ok(accepted)
                }
                None => Err(error),
            }
        })
    }

    /// Like [`read`](Self::read), without blocking signal handling.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub(super) async fn read_in_background(&self) -> Result<Definitions, CliError> {
        let own = self.clone();
        let read = tokio::task::spawn_blocking(move || own.read());
        read.await.map_err(reader_failed)?
    }

    /// Reads the files again without blocking other requests.
    ///
    /// # Errors
    ///
    /// The files have errors; the error lists all of them.
    pub(super) async fn reread(&self) -> Result<Definitions, CliError> {
        let (paths, goal) = (self.paths.clone(), self.goal.clone());
        let read = tokio::task::spawn_blocking(move || {
            files::read_regular(&paths).and_then(|read| Definitions::of(read, goal.as_ref()))
        });
        read.await.map_err(reader_failed)?
    }

    /// Stores the accepted definitions.
    pub(super) fn store(&self, accepted: &Definitions) {
        let accepted = self.of(accepted.files.iter().map(InitFileWire::from).collect());
        let aside = self.path().with_extension("new");
        let written = serde_json::to_vec(&accepted).map_err(Into::into);
        let written = written.and_then(|text| fs::write(&aside, text));
        if let Err(error) = written.and_then(|()| fs::rename(aside, self.path())) {
            let path = self.path();
            tracing::warn!(
                path = %path.display(), %error,
                "cannot store a copy of the unit files: if the files have errors when fleet-init \
                 starts again, it cannot return to this version"
            );
        }
    }

    /// Removes the accepted definitions, after the units have ended.
    pub(super) fn forget(&self) {
        // A leftover file only matters to a start with the same paths.
        drop(fs::remove_file(self.path()));
    }

    /// Returns the stored definitions of these sources, if there are any.
    fn accepted(&self) -> Option<Definitions> {
        let accepted: StoredDefinitions =
            serde_json::from_slice(&fs::read(self.path()).ok()?).ok()?;
        if accepted != self.of(accepted.files.clone()) {
            return None;
        }
        let files = accepted.files.into_iter().map(InitFile::from).collect();
        Definitions::of(files::of(files), self.goal.as_ref()).ok()
    }

    fn of(&self, files: Vec<InitFileWire>) -> StoredDefinitions {
        let goal = self.goal.as_ref().map(ToString::to_string);
        StoredDefinitions { paths: self.paths.clone(), goal, files }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }
}

fn reader_failed(error: JoinError) -> CliError {
    CliError::failed("internal error while reading the unit files").because(error)
}

/// Logs why definitions could not be read.
pub(super) fn log_error(error: &CliError) {
    let (problems, help) = error.parts();
    problems.lines().for_each(|problem| tracing::error!("{problem}"));
    help.iter().for_each(|help| tracing::error!("help: {help}"));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn stored_definitions_belong_to_their_paths_and_goal() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.unit");
        let target = |name| Some(Target::new(name).unwrap());
        fs::write(&path, "unit: a\ntype: virtual\nprovides: a, b\n").unwrap();
        let sources = |path: &Path, goal| {
            Sources::new(&[path.to_owned()], goal, home.path().to_owned()).unwrap()
        };
        let ours = sources(&path, target("a"));
        ours.store(&ours.read().unwrap());
        assert!(ours.accepted().is_some_and(|accepted| accepted.graph.units().count() == 1));
        assert!(sources(&path, target("b")).accepted().is_none(), "another goal");
        assert!(sources(home.path(), target("a")).accepted().is_none(), "other files");
        ours.forget();
        assert!(ours.accepted().is_none() && fs::read_dir(home.path()).unwrap().count() == 1);
    }

    #[test]
    fn stored_definitions_of_an_earlier_boot_are_not_used() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.unit");
        fs::write(&path, "unit: a\ntype: virtual\nprovides: a\n").unwrap();
        let ours = Sources::new(
            std::slice::from_ref(&path),
            Some(Target::new("a").unwrap()),
            home.path().to_owned(),
        );
        let ours = ours.unwrap();
        ours.store(&ours.read().unwrap());
        fs::write(&path, "typo\n").unwrap();
        assert!(ours.accepted().is_some() && ours.read().is_err());
    }
}
