//! Units with the history of states that systemd gives them.
//!
//! A *story* is a line of steps. Requests to the unit: `+` starts it, `-` stops it, `~` restarts
//! it, `^` reloads it, and `.` waits until these requests are answered. `NAME=WORD` waits until the
//! command of this name runs, and sends it a word: `go`, or the status to exit with. `NAME!SIGNAL`
//! kills the command, and `NAME?` only waits for it. Every other word is the next sub-state of the
//! unit, perhaps with a result after a colon. A word in parentheses is a sub-state that may occur
//! before it.
//!
//! With several units, `b/` before a step refers to the unit `b`. The states are in order per unit.
//! To compare the order of two units, a command of one waits for its word meanwhile.
//!
//! Since each command waits for its word, each state of a story lasts until it was observed.

mod environment;
mod relations;
mod requests;
mod restarts;
mod starts;
mod stops;
mod story;
mod timers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fleet_agent::ServiceManager;
use futures_util::stream::{self, StreamExt as _};

use self::story::StoryRunner;
use crate::helper::command_with_steps;

/// Number of stories that run at once.
const AT_ONCE: usize = 8;

/// A unit and its story.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Short name, used in the documents.
    pub(crate) name: &'static str,
    /// The lines of `[Service]`, or several sections. Text in `<>` holds the steps of a command.
    unit: &'static str,
    /// The other units, likewise: name with type, and text, where `{b}` stands for the real name of
    /// the unit `b`. The unit itself is `a.service`.
    others: &'static [(&'static str, &'static str)],
    /// Story under systemd.
    story: &'static str,
    /// Story under the native service manager, if it differs. The documents give the reasons.
    native: Option<&'static str>,
    /// Whether the unit needs root.
    root_only: bool,
}

const fn case(name: &'static str, unit: &'static str, story: &'static str) -> Case {
    Case { name, unit, others: &[], story, native: None, root_only: false }
}

impl Case {
    const fn with_native(self, native: &'static str) -> Self {
        Self { native: Some(native), ..self }
    }

    const fn with_units(self, others: &'static [(&'static str, &'static str)]) -> Self {
        Self { others, ..self }
    }

    const fn root_only(self) -> Self {
        Self { root_only: true, ..self }
    }

    /// Returns the story under systemd.
    pub(crate) fn by_systemd(&self) -> &'static str {
        self.story
    }

    /// Returns the story under the native service manager.
    pub(crate) fn by_native(&self) -> &'static str {
        self.native.unwrap_or(self.story)
    }

    /// Returns the units of the story: name in the story, real name, and text. The main unit comes
    /// last, after the units that it needs.
    fn cast(&self, at: usize, place: &Path) -> Vec<(&'static str, String, String)> {
        let all = self.others.iter().copied().chain([("a.service", self.unit)]);
        let parts: Vec<_> =
            all.filter_map(|(file, text)| Some((file.split_once('.')?, text))).collect();
        let named = |&((called, suffix), _): &((&'static str, &str), _)| {
            (called, format!("story-{at}-{called}.{suffix}"))
        };
        let names: BTreeMap<&str, String> = parts.iter().map(named).collect();
        let text = |called: &str, text: &str| {
            let text = full_text(text, &place.join(called));
            names.iter().fold(text, |text, (it, name)| text.replace(&format!("{{{it}}}"), name))
        };
        let cast = parts
            .iter()
            .map(|&((called, _), it)| (called, names[called].clone(), text(called, it)));
        cast.collect()
    }
}

/// Completes a unit file, with commands that use this directory.
fn full_text(unit: &str, place: &Path) -> String {
    let mut text = unit.to_owned();
    while let Some((before, rest)) = text.split_once('<') {
        let (steps, after) = rest.split_once('>').expect("it is closed");
        text = format!("{before}{}{after}", command_with_steps(steps, place));
    }
    let text = text.replace("{at}", &place.display().to_string());
    if text.starts_with('[') { text } else { format!("[Service]\n{text}\n") }
}

/// Returns all cases that this kind of user can run.
pub(crate) fn cases(is_root: bool) -> Vec<Case> {
    let all = [
        starts::CASES,
        environment::CASES,
        stops::CASES,
        restarts::CASES,
        requests::CASES,
        relations::CASES,
        timers::CASES,
    ]
    .concat();
    all.into_iter().filter(|case| is_root || !case.root_only).collect()
}

/// Runs one story per case on a service manager, and returns the differences. The units' commands
/// use the directory `place`.
pub(crate) async fn run_all(
    manager: &Arc<dyn ServiceManager>,
    place: &Path,
    cases: &[Case],
    story: fn(&Case) -> &'static str,
) -> Vec<String> {
    let results = cases.iter().enumerate().map(|(at, case)| async move {
        let place = place.join(at.to_string());
        let results =
            run_case(Arc::clone(manager), case.cast(at, &place), &place, story(case)).await;
        results.err().map(|problem| format!("{}: {problem}", case.name))
    });
    let results: Vec<Option<String>> = stream::iter(results).buffered(AT_ONCE).collect().await;
    results.into_iter().flatten().collect()
}

async fn run_case(
    manager: Arc<dyn ServiceManager>,
    cast: Vec<(&'static str, String, String)>,
    place: &Path,
    story: &str,
) -> Result<(), String> {
    let mut runners = BTreeMap::new();
    for (called, unit, text) in cast {
        let place = place.join(called);
        std::fs::create_dir_all(&place).expect("a folder can be made");
        runners.insert(called, StoryRunner::new(Arc::clone(&manager), &unit, &text, &place).await?);
    }
    let results = run_story(&mut runners, story).await;
    let mut unloaded = Ok(());
    for runner in runners.values() {
        unloaded = unloaded.and(runner.unload().await);
    }
    results.and(unloaded)
}

/// Runs a whole story, and returns the first difference.
async fn run_story(runners: &mut BTreeMap<&str, StoryRunner>, story: &str) -> Result<(), String> {
    for word in story.split_whitespace() {
        let (called, step) = word.split_once('/').unwrap_or(("a", word));
        runners.get_mut(called).expect("it is part of the story").run_step(step).await?;
    }
    for runner in runners.values_mut() {
        runner.end().await?;
    }
    Ok(())
}
