//! One file with the runs of all units of an `InitSupervisor`.
//!
//! File systems allocate space for each file, so a file per unit would cost more than the unit's
//! processes. Appending a line to one file is much cheaper. A line is one of:
//!
//! - the run of a unit,
//! - the definition from which a unit was started, or
//! - the removal of a unit.
//!
//! The last run and the last definition of a unit count; their lines are called *live*. As in
//! [`unit_directory`](super::unit_directory), each record starts with a line break, and a partial
//! line is ignored.
//!
//! The file is compacted once the live lines are a small part of it. The journal keeps only the
//! positions of the live lines in memory, not their content.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::unit_directory::{RunRecord, invalid_record};
use crate::files::private_file;

/// Minimum size in bytes for a compaction.
const MIN_COMPACTION_SIZE: u64 = 1024 * 1024;

/// Ratio of the file size to the live bytes that triggers a compaction.
const COMPACTION_FACTOR: u64 = 4;

/// One file for the runs of all units.
#[derive(Debug)]
pub(crate) struct RunJournal {
    path: PathBuf,
    /// Opened on first use.
    state: Mutex<Option<JournalFile>>,
}

#[derive(Debug)]
struct JournalFile {
    file: File,
    length: u64,
    /// Total size of the live lines.
    live_bytes: u64,
    /// Size above which the file may be compacted.
    compact_above: u64,
    units: BTreeMap<String, LinePositions>,
}

/// Positions of the live lines of a unit.
#[derive(Debug, Clone, Copy, Default)]
struct LinePositions {
    run: Option<LineSpan>,
    stanza: Option<LineSpan>,
}

#[derive(Debug, Clone, Copy)]
struct LineSpan {
    from: u64,
    length: usize,
}

/// A line, for writing.
#[derive(Debug, Serialize)]
struct JournalEntry<'a> {
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a RunRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stanza: Option<&'a str>,
}

/// Parts of a line that are needed to index it.
#[derive(Debug, Deserialize)]
struct EntryHeader {
    unit: String,
    run: Option<IgnoredAny>,
    stanza: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct RunLine {
    run: RunRecord,
}

#[derive(Debug, Deserialize)]
struct DefinitionLine {
    stanza: String,
}

impl RunJournal {
    /// Creates the journal for this file, which need not exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default() }
    }

    /// Writes the run of a unit.
    pub(crate) fn write_run(&self, unit: &str, run: &RunRecord) -> io::Result<()> {
        self.add(&JournalEntry { unit, run: Some(run), stanza: None })
    }

    /// Reads the run of a unit; `None` if there is none.
    pub(crate) fn read_run(&self, unit: &str) -> io::Result<Option<RunRecord>> {
        let line = self.line(unit, |positions| positions.run)?;
        let run = line.map(|line| serde_json::from_slice::<RunLine>(&line)).transpose();
        Ok(run.map_err(|why| self.invalid_record(why))?.map(|it| it.run))
    }

    /// Writes the definition that a unit is started from.
    pub(crate) fn write_stanza(&self, unit: &str, stanza: &str) -> io::Result<()> {
        self.add(&JournalEntry { unit, run: None, stanza: Some(stanza) })
    }

    /// Reads the definition from which a unit was started; `None` if none is stored.
    pub(crate) fn read_stanza(&self, unit: &str) -> io::Result<Option<String>> {
        let line = self.line(unit, |positions| positions.stanza)?;
        let read = line.map(|line| serde_json::from_slice::<DefinitionLine>(&line)).transpose();
        Ok(read.map_err(|why| self.invalid_record(why))?.map(|it| it.stanza))
    }

    /// Returns the error for an invalid line.
    pub(crate) fn invalid_record(&self, why: impl Into<io::Error>) -> io::Error {
        invalid_record(&self.path, why, "")
    }

    /// Removes a unit.
    pub(crate) fn forget(&self, unit: &str) -> io::Result<()> {
        if self.with(|file| Ok(file.units.contains_key(unit)))? {
            self.add(&JournalEntry { unit, run: None, stanza: None })?;
        }
        Ok(())
    }

    /// Returns the names of all stored units.
    pub(crate) fn units(&self) -> io::Result<Vec<String>> {
        self.with(|file| Ok(file.units.keys().cloned().collect()))
    }

    fn add(&self, line: &JournalEntry<'_>) -> io::Result<()> {
        self.with(|file| {
            file.add(line)?;
            if file.length
                > file.compact_above.max(file.live_bytes.saturating_mul(COMPACTION_FACTOR))
            {
                file.compact(&self.path);
            }
            Ok(())
        })
    }

    fn line(
        &self,
        unit: &str,
        which: impl Fn(&LinePositions) -> Option<LineSpan>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.with(|file| {
            let span = file.units.get(unit).and_then(which);
            span.map(|span| file.read(span)).transpose()
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut JournalFile) -> io::Result<T>) -> io::Result<T> {
        // A poisoned lock is used as it is: no holder leaves the state half changed.
        let mut file = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut *file {
            return f(file);
        }
        f(file.insert(JournalFile::open(&self.path)?))
    }
}

impl JournalFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = private_file().read(true).append(true).create(true).open(path)?;
        let text = std::fs::read(path)?;
        let complete = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        // Removes a partial line, so that the next write cannot complete it.
        file.set_len(complete as u64)?;
        let (compact_above, units) = (MIN_COMPACTION_SIZE, BTreeMap::new());
        let mut file = Self { file, length: 0, live_bytes: 0, compact_above, units };
        for line in text[..complete].split_inclusive(|&byte| byte == b'\n') {
            file.take(line);
        }
        Ok(file)
    }

    /// Indexes the next line of the file.
    fn take(&mut self, line: &[u8]) {
        let span = LineSpan { from: self.length, length: line.len() };
        self.length += line.len() as u64;
        // Skips empty lines, and partial ones, which can occur anywhere.
        if let Ok(EntryHeader { unit, run, stanza }) = serde_json::from_slice(line) {
            self.count(&unit, run.map(|_| span), stanza.map(|_| span));
        }
    }

    /// Makes a line the live one of its unit.
    fn count(&mut self, unit: &str, run: Option<LineSpan>, stanza: Option<LineSpan>) {
        let size = |span: Option<LineSpan>| span.map_or(0, |span| span.length as u64);
        if run.is_none() && stanza.is_none() {
            let gone = self.units.remove(unit).unwrap_or_default();
            self.live_bytes -= size(gone.run) + size(gone.stanza);
            return;
        }
        if !self.units.contains_key(unit) {
            self.units.insert(unit.to_owned(), LinePositions::default());
        }
        let Some(positions) = self.units.get_mut(unit) else { return };
        for (new, span) in [(run, &mut positions.run), (stanza, &mut positions.stanza)] {
            if new.is_some() {
                self.live_bytes = self.live_bytes + size(new) - size(*span);
                *span = new;
            }
        }
    }

    fn add(&mut self, line: &JournalEntry<'_>) -> io::Result<()> {
        let mut text = vec![b'\n'];
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        if let Err(error) = self.file.write_all(&text) {
            // A part of it may have been written.
            self.length = self.file.metadata()?.len();
            return Err(error);
        }
        let span = LineSpan { from: self.length + 1, length: text.len() - 1 };
        self.length += text.len() as u64;
        let (run, stanza) = (line.run.map(|_| span), line.stanza.map(|_| span));
        self.count(line.unit, run, stanza);
        Ok(())
    }

    fn read(&self, span: LineSpan) -> io::Result<Vec<u8>> {
        let mut line = vec![0; span.length];
        self.file.read_exact_at(&mut line, span.from)?;
        Ok(line)
    }

    /// Rewrites the file so that it contains only the live lines. If that fails, for example on a
    /// full disk, the old file stays in use. The next attempt follows once the file has grown by
    /// [`MIN_COMPACTION_SIZE`].
    fn compact(&mut self, path: &Path) {
        let temporary = path.with_extension("new");
        match self.compacted(path, &temporary) {
            Ok(compacted) => *self = compacted,
            Err(error) => {
                let file = path.display();
                tracing::warn!(
                    %error,
                    %file,
                    "cannot compact the saved states of units: the file keeps growing"
                );
                self.compact_above = self.length.saturating_add(MIN_COMPACTION_SIZE);
                // A partial copy would waste space.
                drop(std::fs::remove_file(temporary));
            }
        }
    }

    /// Writes the live lines to the file `temporary`, and renames it to `path` as the last step.
    fn compacted(&self, path: &Path, temporary: &Path) -> io::Result<Self> {
        let mut writer =
            BufWriter::new(private_file().write(true).create(true).truncate(true).open(temporary)?);
        for positions in self.units.values() {
            for span in positions.run.into_iter().chain(positions.stanza) {
                writer.write_all(&self.read(span)?)?;
            }
        }
        drop(writer.into_inner().map_err(io::IntoInnerError::into_error)?);
        // No step after the rename can fail.
        let compacted = Self::open(temporary)?;
        std::fs::rename(temporary, path)?;
        Ok(compacted)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::native::linux::process_info::ProcessId;

    fn run(pid: u32) -> RunRecord {
        RunRecord { leaders: vec![ProcessId { pid, start: 1 }], ..RunRecord::default() }
    }

    fn home() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("runs");
        (home, path)
    }

    fn read(path: &Path, unit: &str) -> (Option<RunRecord>, Option<String>) {
        let records = RunJournal::new(path.to_owned());
        let run = records.read_run(unit).expect("it can be read");
        (run, records.read_stanza(unit).expect("it can be read"))
    }

    /// Writes one record for one of three units. `f` selects a removal (0), a definition (1 to 20),
    /// or a run.
    fn write(records: &RunJournal, (unit, f): (usize, u32)) {
        let unit = ["a", "b", "c"][unit];
        let written = match f {
            0 => records.forget(unit),
            1..=20 => records.write_stanza(unit, &"x".repeat(f as usize)),
            _ => records.write_run(unit, &run(f)),
        };
        written.expect("it can be written");
    }

    proptest! {
        #[test]
        fn last_record_of_each_unit_counts_after_any_reopening(
            steps in prop::collection::vec((0..3usize, 0..40u32), 0..40),
            again in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (_home, path) = home();
            let mut records = RunJournal::new(path.clone());
            let mut twin: BTreeMap<usize, (Option<RunRecord>, Option<String>)> = BTreeMap::new();
            for (step, again) in steps.into_iter().zip(again) {
                write(&records, step);
                let known = twin.entry(step.0).or_default();
                match step.1 {
                    0 => *known = (None, None),
                    1..=20 => known.1 = Some("x".repeat(step.1 as usize)),
                    pid => known.0 = Some(run(pid)),
                }
                if again {
                    records = RunJournal::new(path.clone());
                }
                for (unit, expected) in &twin {
                    prop_assert_eq!(&read(&path, ["a", "b", "c"][*unit]), expected);
                }
            }
        }
    }

    #[test]
    fn partial_line_is_ignored() {
        let (_home, path) = home();
        let records = RunJournal::new(path.clone());
        records.write_stanza("b", "unit: b\n").expect("it can be written");
        records.write_run("a", &run(1)).expect("it can be written");
        let one = std::fs::read(&path).expect("it is there");
        records.write_run("a", &run(2)).expect("it can be written");
        let two = std::fs::read(&path).expect("it is there");
        for length in one.len()..=two.len() {
            std::fs::write(&path, &two[..length]).expect("it can be written");
            let expected = if length == two.len() { run(2) } else { run(1) };
            assert_eq!(read(&path, "a").0, Some(expected.clone()), "{length} of {}", two.len());
            let records = RunJournal::new(path.clone());
            records.write_run("b", &run(3)).expect("it can be written");
            assert_eq!(read(&path, "a").0, Some(expected), "{length} of {}", two.len());
            assert_eq!(read(&path, "b"), (Some(run(3)), Some("unit: b\n".to_owned())));
        }
    }

    /// Alternates between two units until the file is large enough for a compaction.
    fn write_much(records: &RunJournal) {
        for pid in 0..10_000 {
            records.write_run(["a", "b"][pid as usize % 2], &run(pid)).expect("it is written");
        }
    }

    #[test]
    fn journal_works_if_compaction_fails() {
        let (_home, path) = home();
        let (records, temporary) = (RunJournal::new(path.clone()), path.with_extension("new"));
        std::fs::create_dir(&temporary).expect("it can be in the way");
        let length = || std::fs::metadata(&path).expect("it is there").len();
        write_much(&records);
        assert!(length() > 2 * MIN_COMPACTION_SIZE, "it could not be replaced");
        assert_eq!(read(&path, "b").0, Some(run(9_999)));
        std::fs::remove_dir(&temporary).expect("it is there");
        write_much(&records);
        assert!(length() < 2 * MIN_COMPACTION_SIZE, "a retry is scheduled");
        assert_eq!(read(&path, "b").0, Some(run(9_999)));
    }

    #[test]
    fn failed_compaction_removes_its_file() {
        let (_home, path) = home();
        let records = RunJournal::new(path.clone());
        records.write_run("a", &run(1)).expect("it is written");
        std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("it can be");
        write_much(&records);
        assert!(!path.with_extension("new").exists(), "it takes room");
        assert_eq!(records.read_run("b").expect("it can be read"), Some(run(9_999)));
    }

    #[test]
    fn journal_is_compacted() {
        let (_home, path) = home();
        let records = RunJournal::new(path.clone());
        records.write_stanza("a", "unit: a\n").expect("it can be written");
        let mut most = 0;
        for pid in 0..20_000 {
            records.write_run(["a", "b"][pid as usize % 2], &run(pid)).expect("it can be written");
            most = most.max(std::fs::metadata(&path).expect("it is there").len());
        }
        assert!(most < 2 * MIN_COMPACTION_SIZE, "{most}");
        assert_eq!(read(&path, "a"), (Some(run(19_998)), Some("unit: a\n".to_owned())));
        assert_eq!(read(&path, "b"), (Some(run(19_999)), None));
        assert_eq!(records.units().expect("it can be read"), ["a", "b"]);
    }
}
