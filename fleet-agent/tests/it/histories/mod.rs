//! Units, each with the history of states that systemd gives it.
//!
//! A *story* is a line of steps. What is done to the unit: `+` starts it, `-` stops it, `~`
//! restarts it, `^` reloads it, and `.` waits until these orders are over. `NAME=WORD` waits for
//! the command of that name to run, and tells it to `go` on or with which status to exit;
//! `NAME!SIGNAL` kills it, and `NAME?` only waits. Each other word is a sub-state that the unit
//! has to show next, perhaps with a result after a colon, and one in parentheses may show before.
//!
//! Where a unit has others beside it, `b/` before a step has it concern the unit `b`. What units
//! show is in order for each of them; which of two showed something first is seen where a command
//! of one waits for its word meanwhile.
//!
//! Since each command waits for its word, each state of a story lasts until it has been seen.

mod orders;
mod restarts;
mod starts;
mod stops;
mod story;
mod surroundings;
mod timers;
mod together;

use std::collections::BTreeMap;
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
    /// The units beside it, the same way: what they are called with their type, and their text,
    /// where `{b}` is the name of the unit that is called `b`. It is itself `a.service`.
    others: &'static [(&'static str, &'static str)],
    /// What systemd does.
    story: &'static str,
    /// What the native service manager does, where that is something else. The documents say why.
    native: Option<&'static str>,
    /// Whether only root may have such a unit.
    of_root: bool,
}

const fn case(name: &'static str, unit: &'static str, story: &'static str) -> Case {
    Case { name, unit, others: &[], story, native: None, of_root: false }
}

impl Case {
    const fn but_native(self, native: &'static str) -> Self {
        Self { native: Some(native), ..self }
    }

    const fn beside(self, others: &'static [(&'static str, &'static str)]) -> Self {
        Self { others, ..self }
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

    /// The units of the story: how it calls each, its name, and its text. The one that the
    /// story is about comes last, so that what it needs is there.
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

/// A unit file whose commands meet the teller in this place.
fn full_text(unit: &str, place: &Path) -> String {
    let mut text = unit.to_owned();
    while let Some((before, rest)) = text.split_once('<') {
        let (steps, after) = rest.split_once('>').expect("it is closed");
        text = format!("{before}{}{after}", that_does(steps, place));
    }
    let text = text.replace("{at}", &place.display().to_string());
    if text.starts_with('[') { text } else { format!("[Service]\n{text}\n") }
}

/// All units that the user of that kind may have.
pub(crate) fn cases(is_root: bool) -> Vec<Case> {
    let all = [
        starts::CASES,
        surroundings::CASES,
        stops::CASES,
        restarts::CASES,
        orders::CASES,
        together::CASES,
        timers::CASES,
    ]
    .concat();
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
        let told = tell(Arc::clone(manager), case.cast(at, &place), &place, story(case)).await;
        told.err().map(|problem| format!("{}: {problem}", case.name))
    });
    let told: Vec<Option<String>> = stream::iter(told).buffered(AT_ONCE).collect().await;
    told.into_iter().flatten().collect()
}

async fn tell(
    manager: Arc<dyn ServiceManager>,
    cast: Vec<(&'static str, String, String)>,
    place: &Path,
    story: &str,
) -> Result<(), String> {
    let mut tellers = BTreeMap::new();
    for (called, unit, text) in cast {
        let place = place.join(called);
        std::fs::create_dir_all(&place).expect("a folder can be made");
        tellers.insert(called, Teller::new(Arc::clone(&manager), &unit, &text, &place).await?);
    }
    let told = tell_of(&mut tellers, story).await;
    let mut unloaded = Ok(());
    for teller in tellers.values() {
        unloaded = unloaded.and(teller.unload().await);
    }
    told.and(unloaded)
}

/// Tells the whole story; what went otherwise, if anything did.
async fn tell_of(tellers: &mut BTreeMap<&str, Teller>, story: &str) -> Result<(), String> {
    for word in story.split_whitespace() {
        let (called, step) = word.split_once('/').unwrap_or(("a", word));
        tellers.get_mut(called).expect("the story knows it").tell(step).await?;
    }
    for teller in tellers.values_mut() {
        teller.end().await?;
    }
    Ok(())
}
