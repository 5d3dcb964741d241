//! A log of the requests to a daemon that is to be killed, which survives the daemon.
//!
//! A line is written before each call and after its answer, and whenever an idle unit was observed.
//! The kernel has each written line, so no kill can lose one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fleet_agent::ManagedUnit;
use fleet_core::{Generation, TargetState};

/// The file, for writing.
pub(super) struct RequestLog {
    file: File,
    path: PathBuf,
    last: AtomicU64,
}

/// Kinds of requests for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Start,
    Restart,
    Stop,
}

const VERBS: [(&str, Verb); 3] =
    [("start", Verb::Start), ("restart", Verb::Restart), ("stop", Verb::Stop)];

/// Facts known about one unit.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitHistory {
    /// Last observed state.
    pub(super) seen: Seen,
    /// Calls since then, in order.
    pub(super) calls: Vec<Call>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) launched: bool,
    pub(super) generation: u64,
    /// Another observed value, such as its main process.
    pub(super) what: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) generation: u64,
    pub(super) sent_at: usize,
    pub(super) answered_at: Option<usize>,
}

impl RequestLog {
    /// Opens the log, as each daemon does.
    pub(super) fn open(home: &Path) -> Self {
        let path = home.join("ledger");
        let file =
            File::options().append(true).create(true).open(&path).expect("it can be created");
        // One line per call, so that no number is used twice.
        let last = read(&path).lines().count() as u64;
        Self { file, path, last: AtomicU64::new(last) }
    }

    /// Logs a call that is about to be made, with a unique number.
    pub(super) fn ask(&self, unit: &str, verb: Verb) -> Generation {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let word = VERBS.iter().find(|(_, it)| *it == verb).expect("each has a word").0;
        self.write(&format!("ask {unit} {word} {number}"));
        Generation(number)
    }

    /// Logs the answer to a call.
    pub(super) fn answered(&self, unit: &str, call: Generation) {
        self.write(&format!("answer {unit} {}", call.0));
    }

    /// Logs observed units without calls in progress, in a single write. Split in two, a kill
    /// between them could settle the calls of some units and not of others.
    pub(super) fn see<'a>(&self, units: impl IntoIterator<Item = (&'a ManagedUnit, u64)>) {
        let line = |(unit, what): (&ManagedUnit, u64)| {
            let launched = u8::from(unit.known.requested == TargetState::Launched);
            format!("seen {} {launched} {} {what}", unit.unit, unit.known.generation.0)
        };
        let lines: Vec<String> = units.into_iter().map(line).collect();
        self.write(&lines.join("\n"));
    }

    fn write(&self, line: &str) {
        (&self.file).write_all(format!("{line}\n").as_bytes()).expect("it can be written");
    }

    /// Reads all facts, by unit.
    pub(super) fn read(&self) -> BTreeMap<String, UnitHistory> {
        let mut all: BTreeMap<String, UnitHistory> = BTreeMap::new();
        for (line, text) in read(&self.path).lines().enumerate() {
            let words: Vec<&str> = text.split(' ').collect();
            let history = all.entry(words[1].to_owned()).or_default();
            history.take(line, words[0], &words[2..]);
        }
        all
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it can be read")
}

impl UnitHistory {
    fn take(&mut self, line: usize, kind: &str, words: &[&str]) {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match kind {
            "ask" => {
                let verb = VERBS.iter().find(|(word, _)| *word == words[0]).expect("a verb").1;
                let generation = number(1);
                self.calls.push(Call { verb, generation, sent_at: line, answered_at: None });
            }
            "answer" => {
                let answered = number(0);
                let call = self.calls.iter_mut().find(|call| call.generation == answered);
                call.expect("the request is in the log").answered_at = Some(line);
            }
            _ => {
                let (launched, generation, what) = (number(0) == 1, number(1), number(2));
                self.seen = Seen { launched, generation, what };
                self.calls.clear();
            }
        }
    }

    /// Returns whether all other calls were answered before this line of the log.
    pub(super) fn is_over_before(&self, line: usize) -> bool {
        let mut others = self.calls.iter().filter(|call| call.sent_at != line);
        others.all(|call| call.answered_at.is_some_and(|answered| answered < line))
    }

    /// Returns the calls that may have taken effect last. An answered call has taken effect; an
    /// unanswered one may have or not.
    fn may_be_last(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| {
            let later = |it: &&Call| call.answered_at.is_some_and(|answered| it.sent_at > answered);
            !self.calls.iter().filter(later).any(|it| it.answered_at.is_some())
        })
    }

    /// Returns whether a daemon may know this state of the unit, after all these calls.
    pub(super) fn allows(&self, unit: &ManagedUnit) -> bool {
        let launched = unit.known.requested == TargetState::Launched;
        let generation = unit.known.generation.0;
        let is_open = self.calls.iter().all(|call| call.answered_at.is_none());
        let untouched = (launched, generation) == (self.seen.launched, self.seen.generation);
        // The rest of a call before a stop is not compared.
        let fits = |call: &Call| match call.verb {
            Verb::Stop => !launched,
            _ => launched && call.generation == generation,
        };
        is_open && untouched || self.may_be_last().any(fits)
    }

    /// Returns whether an active unit whose processes never exit has the observed value; `None` if
    /// either is possible.
    pub(super) fn is_same(&self, unit: &ManagedUnit) -> Option<bool> {
        let generation = unit.known.generation.0;
        if self.seen.launched && generation == self.seen.generation {
            return Some(true);
        }
        let call = self.calls.iter().find(|call| call.generation == generation)?;
        (call.verb == Verb::Restart).then_some(false)
    }
}

#[test]
fn unanswered_calls_may_or_may_not_have_effect() {
    use fleet_core::unit::LoadState;
    use fleet_core::{ActiveState, Epoch, KnownUnit, SystemdState};
    use fleet_unitfile::UnitHash;
    let is = |requested, generation| {
        let (hash, generation) = (UnitHash::from_bytes([0; 20]), Generation(generation));
        ManagedUnit::new(
            "a.service".parse().expect("it is a name"),
            KnownUnit { hash, requested, epoch: Epoch(1), generation },
            SystemdState::new(LoadState::Loaded, ActiveState::Inactive, "dead"),
        )
    };
    let (up, down) = (TargetState::Launched, TargetState::Loaded);
    for (lines, allowed, refused) in [
        (&["seen a 1 7 9"][..], vec![(up, 7)], vec![(down, 7), (up, 6)]),
        (&["ask a start 1"], vec![(up, 1), (down, 0)], vec![(up, 0)]),
        (&["ask a start 1", "answer a 1"], vec![(up, 1)], vec![(down, 0), (up, 2)]),
        (&["ask a start 1", "answer a 1", "ask a stop 2"], vec![(up, 1), (down, 1)], vec![(up, 2)]),
        (
            &["ask a start 1", "answer a 1", "ask a stop 2", "answer a 2"],
            vec![(down, 1)],
            vec![(up, 1)],
        ),
        // Overlapping calls have no order.
        (
            &["ask a start 1", "ask a stop 2", "answer a 1", "answer a 2"],
            vec![(up, 1), (down, 1)],
            vec![(up, 2)],
        ),
    ] {
        let mut history = UnitHistory::default();
        for (line, text) in lines.iter().enumerate() {
            let words: Vec<&str> = text.split(' ').collect();
            history.take(line, words[0], &words[2..]);
        }
        for (requested, generation) in allowed {
            assert!(
                history.allows(&is(requested, generation)),
                "{lines:?}: {requested:?} {generation}"
            );
        }
        for (requested, generation) in refused {
            assert!(
                !history.allows(&is(requested, generation)),
                "{lines:?}: {requested:?} {generation}"
            );
        }
    }
}
