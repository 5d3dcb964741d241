//! Where the units of a fleet-init come from that runs those of files, and what it last took there.
//!
//! What it took is kept in its directory until its units have ended. One that breaks off while its
//! files are broken is begun again with that: units that run are not to end of a mistake in a file.

use std::fs;
use std::path::PathBuf;

use fleet_agent::InitSupervisor;
use fleet_core::graph::text::InitFile;
use fleet_core::graph::{Graph, Settings, Target};
use serde::{Deserialize, Serialize};

use super::asks::Source;
use super::files::{self, Files};
use crate::fleetctl::error::CliError;

/// The file in which what was taken is kept.
const KEPT: &str = "taken.json";

/// Where the units of a fleet-init come from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    paths: Vec<PathBuf>,
    /// The goal that the command line says, which wins over that of the files.
    pub(super) goal: Option<Target>,
    /// Where it keeps its files.
    pub(super) directory: PathBuf,
}

/// What is to be run.
pub(super) struct ToRun {
    pub(super) graph: Graph,
    pub(super) settings: Settings,
    files: Vec<InitFile>,
}

/// What was taken, from where, as it is kept.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    paths: Vec<PathBuf>,
    goal: Option<String>,
    files: Vec<Source>,
}

impl ToRun {
    /// What files say is to be run.
    ///
    /// # Errors
    ///
    /// All that is wrong with them; or there is no goal.
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
    /// These paths, as they are found from anywhere, for one that keeps its files in a directory.
    pub(super) fn new(
        paths: &[PathBuf],
        goal: Option<Target>,
        directory: PathBuf,
    ) -> Result<Self, CliError> {
        let cannot = |error| CliError::failed("cannot tell where this is").because(error);
        let paths = paths.iter().map(std::path::absolute).collect::<Result<_, _>>();
        Ok(Self { paths: paths.map_err(cannot)?, goal, directory })
    }

    /// Reads what is there, or goes on with what was taken before if that cannot be run and units
    /// of it may be left.
    ///
    /// # Errors
    ///
    /// All that is wrong.
    pub(super) fn read(&self) -> Result<ToRun, CliError> {
        let read = files::read(&self.paths).and_then(|read| ToRun::of(read, self.goal.as_ref()));
        read.or_else(|error| match self.taken().filter(|_| InitSupervisor::has_used(&self.directory)) {
            Some(taken) => {
                tell(&error);
                tracing::error!("goes on with the files that it last took: mend these, and reload");
                Ok(taken)
            }
            None => Err(error),
        })
    }

    /// The same, while signals are heard.
    ///
    /// # Errors
    ///
    /// All that is wrong.
    pub(super) async fn read_beside(&self) -> Result<ToRun, CliError> {
        let own = self.clone();
        let read = tokio::task::spawn_blocking(move || own.read());
        read.await.map_err(|error| CliError::failed("cannot read the files").because(error))?
    }

    /// Reads once more what is there, while others are served.
    ///
    /// # Errors
    ///
    /// All that is wrong.
    pub(super) async fn read_again(&self) -> Result<ToRun, CliError> {
        let (paths, goal) = (self.paths.clone(), self.goal.clone());
        let read = tokio::task::spawn_blocking(move || {
            files::read_regular(&paths).and_then(|read| ToRun::of(read, goal.as_ref()))
        });
        read.await.map_err(|error| CliError::failed("cannot read the files").because(error))?
    }

    /// Keeps what was taken.
    pub(super) fn keep(&self, taken: &ToRun) {
        let taken = self.of(taken.files.iter().map(Source::of).collect());
        let aside = self.kept().with_extension("new");
        let kept = serde_json::to_vec(&taken).map_err(Into::into);
        let kept = kept.and_then(|text| fs::write(&aside, text));
        if let Err(error) = kept.and_then(|()| fs::rename(aside, self.kept())) {
            tracing::warn!(%error, "cannot keep what it has read, for when it is begun again");
        }
    }

    /// Forgets what was taken, as its units have ended.
    pub(super) fn forget(&self) {
        // If it is left, it is of use to nobody but one who names the same files.
        drop(fs::remove_file(self.kept()));
    }

    /// What was taken from here, if that is kept and was run.
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

/// Tells those who read the log why units are not taken from where they should be.
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
