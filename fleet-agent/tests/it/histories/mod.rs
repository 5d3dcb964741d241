//! Units, each with the history of states that systemd gives it.
//!
//! A *story* is a line of steps. What is done to the unit: `+` starts it, `-` stops it, `~`
//! restarts it, `^` reloads it, and `.` waits until these orders are over. `NAME=WORD` waits for
//! the command of that name to run, and tells it to `go` on or with which status to exit;
//! `NAME!SIGNAL` kills it, and `NAME?` only waits. Each other word is a sub-state that the unit
//! has to show next, perhaps with a result after a colon, and one in parentheses may show before.
//!
//! Since each command waits for its word, each state of a story lasts until it has been seen.

mod orders;
mod restarts;
mod starts;
mod stops;
mod story;

use std::path::Path;
use std::sync::Arc;

use fleet_agent::ServiceManager;
use futures_util::stream::{self, StreamExt as _};

use self::story::Teller;
use crate::helper::that_does;

/// So many stories are told at once.
const AT_ONCE: usize = 8;

/// A unit and its story.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// What is told, in a word or two that name it in the documents.
    pub(crate) name: &'static str,
    /// The lines of `[Service]`, or more sections than that. What stands in `<>` are the steps of
    /// a command.
    unit: &'static str,
    /// What systemd does.
    story: &'static str,
    /// What the native service manager does, where that is something else. The documents say why.
    native: Option<&'static str>,
    /// Whether only root may have such a unit.
    of_root: bool,
}

const fn case(name: &'static str, unit: &'static str, story: &'static str) -> Case {
    Case { name, unit, story, native: None, of_root: false }
}

impl Case {
    const fn but_native(self, native: &'static str) -> Self {
        Self { native: Some(native), ..self }
    }

    const fn of_root(self) -> Self {
        Self { of_root: true, ..self }
    }

    /// What systemd does.
    pub(crate) fn by_systemd(&self) -> &'static str {
        self.story
    }

    /// What the native service manager does.
    pub(crate) fn by_native(&self) -> &'static str {
        self.native.unwrap_or(self.story)
    }

    fn text(&self, place: &Path) -> String {
        let mut text = self.unit.to_owned();
        while let Some((before, rest)) = text.split_once('<') {
            let (steps, after) = rest.split_once('>').expect("it is closed");
            text = format!("{before}{}{after}", that_does(steps, place));
        }
        let text = text.replace("{at}", &place.display().to_string());
        if text.starts_with('[') { text } else { format!("[Service]\n{text}\n") }
    }
}

/// All units that the user of that kind may have.
pub(crate) fn cases(is_root: bool) -> Vec<Case> {
    let all = [starts::CASES, stops::CASES, restarts::CASES, orders::CASES].concat();
    all.into_iter().filter(|case| is_root || !case.of_root).collect()
}

/// Lets a service manager live through one story of each unit; what went otherwise. The units meet
/// the teller in `place`.
pub(crate) async fn tell_all(
    manager: &Arc<dyn ServiceManager>,
    place: &Path,
    cases: &[Case],
    story: fn(&Case) -> &'static str,
) -> Vec<String> {
    let told = cases.iter().enumerate().map(|(at, case)| async move {
        let place = place.join(at.to_string());
        std::fs::create_dir_all(&place).expect("a folder can be made");
        let unit = format!("story-{at}.service");
        let text = case.text(&place);
        let told = tell(Arc::clone(manager), &unit, &text, &place, story(case)).await;
        told.err().map(|problem| format!("{}: {problem}", case.name))
    });
    let told: Vec<Option<String>> = stream::iter(told).buffered(AT_ONCE).collect().await;
    told.into_iter().flatten().collect()
}

async fn tell(
    manager: Arc<dyn ServiceManager>,
    unit: &str,
    text: &str,
    place: &Path,
    story: &str,
) -> Result<(), String> {
    let mut teller = Teller::new(Arc::clone(&manager), unit, text, place).await?;
    let told = teller.tell(story).await;
    let unloaded = manager.unload(&unit.parse().expect("it is a name")).await;
    told.and(unloaded.map_err(|error| error.to_string()))
}
