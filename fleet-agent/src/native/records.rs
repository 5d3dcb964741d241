//! What is kept of the runs of all units in one file, for a runner.
//!
//! A file for each unit would cost more than the unit's processes do: to make one has a file system
//! look for room. Here a line is added, which costs a fraction of that. A line tells of a unit what
//! runs of it, or what it was started from; the last one of each kind counts, and one that tells
//! neither says that the unit is gone. The rules of a line are those of [`record`](super::record):
//! a daemon that is killed while it writes leaves a part of a line, which is as if nothing had been
//! written, and each line begins on a new one.
//!
//! The file is replaced by what counts once that is a small part of it. Where what counts is in the
//! file is remembered, and not what it says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::record::{Run, senseless};

/// How many bytes there are at least before the file is replaced.
const LEAST_TO_REPLACE: u64 = 1024 * 1024;

/// How many times as much as counts there is then.
const MOST_TIMES: u64 = 4;

/// One file for all units.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    /// Read when it is first asked for.
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    file: File,
    length: u64,
    /// How much of it counts.
    counting: u64,
    /// How long it is at least before it is replaced.
    least: u64,
    units: BTreeMap<String, Places>,
}

/// Where the lines of a unit are.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    run: Option<Place>,
    stanza: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    from: u64,
    length: usize,
}

/// A line as it is written.
#[derive(Debug, Serialize)]
struct Line<'a> {
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a Run>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stanza: Option<&'a str>,
}

/// What has to be known of a line to find it again.
#[derive(Debug, Deserialize)]
struct Kind {
    unit: String,
    run: Option<IgnoredAny>,
    stanza: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct OfRun {
    run: Run,
}

#[derive(Debug, Deserialize)]
struct OfStanza {
    stanza: String,
}

impl Records {
    /// The records in that file, which need not exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, kept: Mutex::default() }
    }

    /// Writes what runs of a unit.
    pub(crate) fn write_run(&self, unit: &str, run: &Run) -> io::Result<()> {
        self.add(&Line { unit, run: Some(run), stanza: None })
    }

    /// Reads what runs of a unit; `None` when nothing ever ran.
    pub(crate) fn read_run(&self, unit: &str) -> io::Result<Option<Run>> {
        let line = self.line(unit, |places| places.run)?;
        let run = line.map(|line| serde_json::from_slice::<OfRun>(&line)).transpose();
        Ok(run.map_err(|why| self.senseless(why))?.map(|it| it.run))
    }

    /// Writes what a unit was started from.
    pub(crate) fn write_stanza(&self, unit: &str, stanza: &str) -> io::Result<()> {
        self.add(&Line { unit, run: None, stanza: Some(stanza) })
    }

    /// Reads what a unit was started from; `None` when it never was.
    pub(crate) fn read_stanza(&self, unit: &str) -> io::Result<Option<String>> {
        let line = self.line(unit, |places| places.stanza)?;
        let read = line.map(|line| serde_json::from_slice::<OfStanza>(&line)).transpose();
        Ok(read.map_err(|why| self.senseless(why))?.map(|it| it.stanza))
    }

    /// What is written of a unit makes no sense.
    pub(crate) fn senseless(&self, why: impl Into<io::Error>) -> io::Error {
        senseless(&self.path, why, "")
    }

    /// Forgets a unit.
    pub(crate) fn forget(&self, unit: &str) -> io::Result<()> {
        if self.with(|kept| Ok(kept.units.contains_key(unit)))? {
            self.add(&Line { unit, run: None, stanza: None })?;
        }
        Ok(())
    }

    /// The units that something is known of, by name.
    pub(crate) fn units(&self) -> io::Result<Vec<String>> {
        self.with(|kept| Ok(kept.units.keys().cloned().collect()))
    }

    fn add(&self, line: &Line<'_>) -> io::Result<()> {
        self.with(|kept| {
            kept.add(line)?;
            if kept.length > kept.least.max(kept.counting.saturating_mul(MOST_TIMES)) {
                kept.replace(&self.path);
            }
            Ok(())
        })
    }

    fn line(
        &self,
        unit: &str,
        which: impl Fn(&Places) -> Option<Place>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.with(|kept| {
            let place = kept.units.get(unit).and_then(which);
            place.map(|place| kept.read(place)).transpose()
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut Kept) -> io::Result<T>) -> io::Result<T> {
        // What it guards is whole even if a holder panicked.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &mut *kept {
            return what(kept);
        }
        what(kept.insert(Kept::open(&self.path)?))
    }
}

impl Kept {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create(true).open(path)?;
        let text = std::fs::read(path)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        // What is broken off was not written, and must not come to be by what follows it.
        file.set_len(whole as u64)?;
        let (least, units) = (LEAST_TO_REPLACE, BTreeMap::new());
        let mut kept = Self { file, length: 0, counting: 0, least, units };
        for line in text[..whole].split_inclusive(|&byte| byte == b'\n') {
            kept.take(line);
        }
        Ok(kept)
    }

    /// Takes note of what the next bytes of the file are.
    fn take(&mut self, line: &[u8]) {
        let place = Place { from: self.length, length: line.len() };
        self.length += line.len() as u64;
        // Empty lines part the others, and what is broken off can be within the file, too.
        if let Ok(Kind { unit, run, stanza }) = serde_json::from_slice(line) {
            self.count(&unit, run.map(|_| place), stanza.map(|_| place));
        }
    }

    /// A line of a unit counts from now on.
    fn count(&mut self, unit: &str, run: Option<Place>, stanza: Option<Place>) {
        let size = |place: Option<Place>| place.map_or(0, |place| place.length as u64);
        if run.is_none() && stanza.is_none() {
            let gone = self.units.remove(unit).unwrap_or_default();
            self.counting -= size(gone.run) + size(gone.stanza);
            return;
        }
        if !self.units.contains_key(unit) {
            self.units.insert(unit.to_owned(), Places::default());
        }
        let Some(places) = self.units.get_mut(unit) else { return };
        for (new, place) in [(run, &mut places.run), (stanza, &mut places.stanza)] {
            if new.is_some() {
                self.counting = self.counting + size(new) - size(*place);
                *place = new;
            }
        }
    }

    fn add(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = vec![b'\n'];
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        if let Err(error) = self.file.write_all(&text) {
            // Some of it may have been.
            self.length = self.file.metadata()?.len();
            return Err(error);
        }
        let place = Place { from: self.length + 1, length: text.len() - 1 };
        self.length += text.len() as u64;
        let (run, stanza) = (line.run.map(|_| place), line.stanza.map(|_| place));
        self.count(line.unit, run, stanza);
        Ok(())
    }

    fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut line = vec![0; place.length];
        self.file.read_exact_at(&mut line, place.from)?;
        Ok(line)
    }

    /// Goes on without what does not count. All that counts is written, so that it harms nothing
    /// where that cannot be, as on a full disk: it is tried again once there is as much more.
    fn replace(&mut self, path: &Path) {
        let aside = path.with_extension("new");
        match self.replaced(path, &aside) {
            Ok(replaced) => *self = replaced,
            Err(error) => {
                tracing::warn!(%error, "cannot make the records of units shorter");
                self.least = self.length.saturating_add(LEAST_TO_REPLACE);
                // It takes room that others need.
                drop(std::fs::remove_file(aside));
            }
        }
    }

    /// The same without what does not count. Whatever happens meanwhile, the file is one of both.
    fn replaced(&self, path: &Path, aside: &Path) -> io::Result<Self> {
        let mut writer = BufWriter::new(File::create(aside)?);
        for places in self.units.values() {
            for place in places.run.into_iter().chain(places.stanza) {
                writer.write_all(&self.read(place)?)?;
            }
        }
        drop(writer.into_inner().map_err(io::IntoInnerError::into_error)?);
        // After this nothing is left that could fail.
        let replaced = Self::open(aside)?;
        std::fs::rename(aside, path)?;
        Ok(replaced)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::native::life::ProcessId;

    fn run(pid: u32) -> Run {
        Run { leaders: vec![ProcessId { pid, start: 1 }], ..Run::default() }
    }

    fn home() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("runs");
        (home, path)
    }

    fn read(path: &Path, unit: &str) -> (Option<Run>, Option<String>) {
        let records = Records::new(path.to_owned());
        let run = records.read_run(unit).expect("it can be read");
        (run, records.read_stanza(unit).expect("it can be read"))
    }

    /// One thing that is written of one of three units: a run, a stanza, or that it is gone.
    fn write(records: &Records, (unit, what): (usize, u32)) {
        let unit = ["a", "b", "c"][unit];
        let written = match what {
            0 => records.forget(unit),
            1..=20 => records.write_stanza(unit, &"x".repeat(what as usize)),
            _ => records.write_run(unit, &run(what)),
        };
        written.expect("it can be written");
    }

    proptest! {
        #[test]
        fn the_last_of_each_unit_counts_wherever_the_next_daemon_begins(
            steps in prop::collection::vec((0..3usize, 0..40u32), 0..40),
            again in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (_home, path) = home();
            let mut records = Records::new(path.clone());
            let mut twin: BTreeMap<usize, (Option<Run>, Option<String>)> = BTreeMap::new();
            for (step, again) in steps.into_iter().zip(again) {
                write(&records, step);
                let known = twin.entry(step.0).or_default();
                match step.1 {
                    0 => *known = (None, None),
                    1..=20 => known.1 = Some("x".repeat(step.1 as usize)),
                    pid => known.0 = Some(run(pid)),
                }
                if again {
                    records = Records::new(path.clone());
                }
                for (unit, expected) in &twin {
                    prop_assert_eq!(&read(&path, ["a", "b", "c"][*unit]), expected);
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_broken_off_anywhere_was_not_written() {
        let (_home, path) = home();
        let records = Records::new(path.clone());
        records.write_stanza("b", "unit: b\n").expect("it can be written");
        records.write_run("a", &run(1)).expect("it can be written");
        let one = std::fs::read(&path).expect("it is there");
        records.write_run("a", &run(2)).expect("it can be written");
        let two = std::fs::read(&path).expect("it is there");
        for length in one.len()..=two.len() {
            std::fs::write(&path, &two[..length]).expect("it can be written");
            let expected = if length == two.len() { run(2) } else { run(1) };
            assert_eq!(read(&path, "a").0, Some(expected.clone()), "{length} of {}", two.len());
            let records = Records::new(path.clone());
            records.write_run("b", &run(3)).expect("it can be written");
            assert_eq!(read(&path, "a").0, Some(expected), "{length} of {}", two.len());
            assert_eq!(read(&path, "b"), (Some(run(3)), Some("unit: b\n".to_owned())));
        }
    }

    /// Writes of two units until there is more than is kept before the file is replaced.
    fn write_much(records: &Records) {
        for pid in 0..10_000 {
            records.write_run(["a", "b"][pid as usize % 2], &run(pid)).expect("it is written");
        }
    }

    #[test]
    fn what_is_written_counts_also_where_the_file_cannot_be_replaced() {
        let (_home, path) = home();
        let (records, aside) = (Records::new(path.clone()), path.with_extension("new"));
        std::fs::create_dir(&aside).expect("it can be in the way");
        let length = || std::fs::metadata(&path).expect("it is there").len();
        write_much(&records);
        assert!(length() > 2 * LEAST_TO_REPLACE, "it could not be replaced");
        assert_eq!(read(&path, "b").0, Some(run(9_999)));
        std::fs::remove_dir(&aside).expect("it is there");
        write_much(&records);
        assert!(length() < 2 * LEAST_TO_REPLACE, "it is tried again");
        assert_eq!(read(&path, "b").0, Some(run(9_999)));
    }

    #[test]
    fn a_replacement_that_comes_to_nothing_is_taken_away() {
        let (_home, path) = home();
        let records = Records::new(path.clone());
        records.write_run("a", &run(1)).expect("it is written");
        std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("it can be");
        write_much(&records);
        assert!(!path.with_extension("new").exists(), "it takes room");
        assert_eq!(records.read_run("b").expect("it can be read"), Some(run(9_999)));
    }

    #[test]
    fn lines_do_not_pile_up() {
        let (_home, path) = home();
        let records = Records::new(path.clone());
        records.write_stanza("a", "unit: a\n").expect("it can be written");
        let mut most = 0;
        for pid in 0..20_000 {
            records.write_run(["a", "b"][pid as usize % 2], &run(pid)).expect("it can be written");
            most = most.max(std::fs::metadata(&path).expect("it is there").len());
        }
        assert!(most < 2 * LEAST_TO_REPLACE, "{most}");
        assert_eq!(read(&path, "a"), (Some(run(19_998)), Some("unit: a\n".to_owned())));
        assert_eq!(read(&path, "b"), (Some(run(19_999)), None));
        assert_eq!(records.units().expect("it can be read"), ["a", "b"]);
    }
}
