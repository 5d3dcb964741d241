//! The files of a fleet-init, and the definitions last accepted from them.
//!
//! The accepted definitions are kept in the state directory until the units have ended. A
//! fleet-init that crashes while its files are invalid restarts with them, so that a mistake in a
//! file does not stop running units.

use std::fs;
use std::path::PathBuf;

use fleet_agent::InitSupervisor;
use fleet_core::graph::text::InitFile;
use fleet_core::graph::{Graph, Settings, Target};
use serde::{Deserialize, Serialize};

use super::asks::Source;
use super::files::{self, Files};
use crate::fleetctl::error::CliError;

/// File with the accepted definitions.
const KEPT: &str = "taken.json";

/// The configured paths of a fleet-init.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    paths: Vec<PathBuf>,
    /// Goal of the command line, which wins over the files' goal.
    pub(super) goal: Option<Target>,
    /// State directory.
    pub(super) directory: PathBuf,
}

/// Valid definitions to run.
pub(super) struct ToRun {
    pub(super) graph: Graph,
    pub(super) settings: Settings,
    files: Vec<InitFile>,
}

/// Accepted definitions with their origin, as stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    paths: Vec<PathBuf>,
    goal: Option<String>,
    files: Vec<Source>,
}

impl ToRun {
    /// Builds the definitions from files.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them, or a missing goal.
    pub(super) fn of(read: Files, goal: Option<&Target>) -> Result<Self, CliError> {
        let whole = read.whole(goal).map(|(graph, goal)| (graph.clone(), goal));
        let (graph, goal) = whole.map_err(|error| read.with_others(error))?;
        if goal.is_none() {
            let error = CliError::usage("there is no goal to run");
            let help = "name one by --goal TARGET, or write `goal: TARGET` in init.conf";
            return Err(read.with_others(error.help(help)));
        }
        let settings = Settings { goal, ..read.sources.settings().clone() };
        Ok(Self { graph, settings, files: read.sources.files })
    }
}

impl Origin {
    /// Creates the sources from paths, made absolute, and a state directory.
    pub(super) fn new(
        paths: &[PathBuf],
        goal: Option<Target>,
        directory: PathBuf,
    ) -> Result<Self, CliError> {
        let cannot = |error| CliError::failed("cannot tell where this is").because(error);
        let paths = paths.iter().map(std::path::absolute).collect::<Result<_, _>>();
        Ok(Self { paths: paths.map_err(cannot)?, goal, directory })
    }

    /// Reads the files. If they are invalid and units may still be running, returns the last
    /// accepted definitions.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub(super) fn read(&self) -> Result<ToRun, CliError> {
        let read = files::read(&self.paths).and_then(|read| ToRun::of(read, self.goal.as_ref()));
        read.or_else(|error| {
            match self.taken().filter(|_| InitSupervisor::has_used(&self.directory)) {
                Some(taken) => {
                    tell(&error);
                    tracing::error!(
                        "goes on with the files that it last took: mend these, and reload"
                    );
                    Ok(taken)
                }
                None => Err(error),
            }
        })
    }

    /// Like [`read`](Self::read), without blocking signal handling.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub(super) async fn read_beside(&self) -> Result<ToRun, CliError> {
        let own = self.clone();
        let read = tokio::task::spawn_blocking(move || own.read());
        read.await.map_err(|error| CliError::failed("cannot read the files").because(error))?
    }

    /// Reads the files again without blocking other requests.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub(super) async fn read_again(&self) -> Result<ToRun, CliError> {
        let (paths, goal) = (self.paths.clone(), self.goal.clone());
        let read = tokio::task::spawn_blocking(move || {
            files::read_regular(&paths).and_then(|read| ToRun::of(read, goal.as_ref()))
        });
        read.await.map_err(|error| CliError::failed("cannot read the files").because(error))?
    }

    /// Stores the accepted definitions.
    pub(super) fn keep(&self, taken: &ToRun) {
        let taken = self.of(taken.files.iter().map(Source::of).collect());
        let aside = self.kept().with_extension("new");
        let kept = serde_json::to_vec(&taken).map_err(Into::into);
        let kept = kept.and_then(|text| fs::write(&aside, text));
        if let Err(error) = kept.and_then(|()| fs::rename(aside, self.kept())) {
            tracing::warn!(%error, "cannot keep what it has read, for when it is begun again");
        }
    }

    /// Removes the accepted definitions, after the units have ended.
    pub(super) fn forget(&self) {
        // A leftover file only matters to a start with the same paths.
        drop(fs::remove_file(self.kept()));
    }

    /// Returns the stored definitions of these sources, if there are any.
    fn taken(&self) -> Option<ToRun> {
        let taken: Taken = serde_json::from_slice(&fs::read(self.kept()).ok()?).ok()?;
        if taken != self.of(taken.files.clone()) {
            return None;
        }
        let files = taken.files.into_iter().map(Source::into_file).collect();
        ToRun::of(files::of(files), self.goal.as_ref()).ok()
    }

    fn of(&self, files: Vec<Source>) -> Taken {
        let goal = self.goal.as_ref().map(ToString::to_string);
        Taken { paths: self.paths.clone(), goal, files }
    }

    fn kept(&self) -> PathBuf {
        self.directory.join(KEPT)
    }
}

/// Logs why definitions could not be read.
pub(super) fn tell(error: &CliError) {
    let (problems, help) = error.parts();
    problems.lines().for_each(|problem| tracing::error!("{problem}"));
    help.iter().for_each(|help| tracing::error!("help: {help}"));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_was_taken_is_kept_for_the_same_files_and_goal_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.unit");
        let target = |name| Some(Target::new(name).unwrap());
        fs::write(&path, "unit: a\ntype: virtual\nprovides: a, b\n").unwrap();
        let origin = |path: &Path, goal| {
            Origin::new(&[path.to_owned()], goal, home.path().to_owned()).unwrap()
        };
        let ours = origin(&path, target("a"));
        ours.keep(&ours.read().unwrap());
        assert!(ours.taken().is_some_and(|taken| taken.graph.units().count() == 1));
        assert!(origin(&path, target("b")).taken().is_none(), "another goal");
        assert!(origin(home.path(), target("a")).taken().is_none(), "other files");
        ours.forget();
        assert!(ours.taken().is_none() && fs::read_dir(home.path()).unwrap().count() == 1);
    }

    #[test]
    fn what_nobody_has_run_since_the_boot_is_not_gone_on_with() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.unit");
        fs::write(&path, "unit: a\ntype: virtual\nprovides: a\n").unwrap();
        let ours = Origin::new(
            std::slice::from_ref(&path),
            Some(Target::new("a").unwrap()),
            home.path().to_owned(),
        );
        let ours = ours.unwrap();
        ours.keep(&ours.read().unwrap());
        fs::write(&path, "typo\n").unwrap();
        assert!(ours.taken().is_some() && ours.read().is_err());
    }
}
