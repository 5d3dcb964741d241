//! The part of the conformance suite about the output of units.

use std::time::Duration;

use fleet_core::journal::{JournalLine, JournalQuery, Since};
use fleet_core::{Epoch, Generation, Timestamp};
use fleet_unitfile::UnitName;

use super::UnitKind;
use super::conformance::{Check, DEADLINE};
use crate::journal::Journal;
use crate::{Clock as _, SystemClock, wall_time};

/// Pause between two writes that must have different times. After a shorter pause the times may be
/// equal, because the file system dates writes by a coarse clock.
const APART: Duration = Duration::from_millis(50);

impl Check<'_> {
    pub(super) async fn the_last_lines_come_oldest_first(&self) {
        let unit = self.run("writing.service", UnitKind::Writes).await;
        let query = JournalQuery::default().with_follow(true);
        let mut journal = self.journal(&unit, query).await;
        assert_eq!(next(&mut journal, 3).await, ["one", "two", "three"]);
        let query = JournalQuery::default().with_lines(2);
        assert_eq!(all(self.journal(&unit, query).await).await, ["two", "three"]);
        self.unload(&unit).await;
    }

    pub(super) async fn since_excludes_earlier_lines(&self) {
        let start = wall_time();
        let unit = self.run("dated.service", UnitKind::Writes).await;
        let query = JournalQuery::default().with_follow(true);
        let mut followed = self.journal(&unit, query).await;
        assert_eq!(next(&mut followed, 3).await, ["one", "two", "three"]);
        let between = wait_for_distinct_time().await;

        let future = Since::Time(between.after(Duration::from_secs(3600)));
        let query = JournalQuery::default().with_since(future);
        assert_eq!(all(self.journal(&unit, query).await).await, [""; 0], "nothing is of then");
        let query = JournalQuery::default().with_since(future).with_follow(true);
        let mut from_now_on = self.journal(&unit, query).await;

        let file = self.harness.unit(&unit, UnitKind::WritesMore);
        self.manager.load(&unit, &file, Epoch(2)).await.expect("load");
        self.manager.reload().await.expect("reload");
        self.manager.restart(&unit, Generation(2)).await.expect("restart");
        assert_eq!(next(&mut followed, 1).await, ["four"]);
        assert_eq!(next(&mut from_now_on, 1).await, ["four"], "new lines come all the same");

        self.check_selections(&unit, start, between).await;
        self.unload(&unit).await;
    }

    /// Without cursors all lines come again, after a line that reports the gap.
    pub(super) async fn journal_resumes_after_cursor(&self) {
        let (unit, mut journal) = self.follow_new_writer("resumed.service").await;
        let mut cursors = Vec::new();
        for expected in ["one", "two", "three"] {
            let line = next_line(&mut journal).await;
            assert_eq!(line.text, expected);
            cursors.extend(line.cursor.map(|cursor| (expected, cursor)));
        }
        for (line, cursor) in &cursors {
            assert!(cursor.len() <= 512 && cursor.bytes().all(|b| b.is_ascii_graphic()));
            let expected: &[&str] = match *line {
                "one" => &["two", "three"],
                "two" => &["three"],
                _ => &[],
            };
            assert_eq!(all(self.after(&unit, cursor, false).await).await, expected, "after {line}");
        }
        let mut unknown = self.after(&unit, "nowhere", true).await;
        let gap = JournalLine::gap().text;
        assert_eq!(next(&mut unknown, 4).await, [&*gap, "one", "two", "three"]);

        let last = cursors.last().map_or("nowhere", |(_, cursor)| cursor);
        let mut followed = self.after(&unit, last, true).await;
        let file = self.harness.unit(&unit, UnitKind::WritesMore);
        self.manager.load(&unit, &file, Epoch(2)).await.expect("load");
        self.manager.reload().await.expect("reload");
        self.manager.restart(&unit, Generation(2)).await.expect("restart");
        if cursors.is_empty() {
            assert_eq!(next(&mut followed, 4).await, [&*gap, "one", "two", "three"]);
        }
        assert_eq!(next(&mut followed, 1).await, ["four"]);
        self.unload(&unit).await;
    }

    pub(super) async fn followed_journal_ends_with_its_unit(&self) {
        let (unit, mut journal) = self.follow_new_writer("followed.service").await;
        assert_eq!(next(&mut journal, 3).await, ["one", "two", "three"]);
        self.unload(&unit).await;
        assert_eq!(all(journal).await, [""; 0], "nothing comes of a unit that is not known");
    }

    /// Runs a unit that writes, and returns the cursor of the line `two`.
    pub(super) async fn cursor_of_two(&self) -> (UnitName, Option<String>) {
        let (unit, mut journal) = self.follow_new_writer("wrote.service").await;
        let lines = [next_line(&mut journal).await, next_line(&mut journal).await];
        assert_eq!(next(&mut journal, 1).await, ["three"]);
        let [_, two] = lines;
        (unit, two.cursor)
    }

    /// A cursor of an earlier manager is valid for this one.
    pub(super) async fn journal_still_resumes(&self, unit: &UnitName, two: Option<String>) {
        if let Some(two) = two {
            assert_eq!(all(self.after(unit, &two, false).await).await, ["three"]);
        }
    }

    /// The machine may have lines of an earlier unit of that name.
    async fn follow_new_writer(&self, name: &str) -> (UnitName, Journal) {
        let since = Since::Time(wall_time());
        let unit = self.run(name, UnitKind::Writes).await;
        let query = JournalQuery::default().with_since(since).with_follow(true);
        let journal = self.journal(&unit, query).await;
        (unit, journal)
    }

    async fn after(&self, unit: &UnitName, cursor: &str, follow: bool) -> Journal {
        let query = JournalQuery::default().with_after(cursor.to_owned()).with_follow(follow);
        self.journal(unit, query).await
    }

    /// Checks selections of lines from a journal with the lines `one` to `four`. The first three
    /// lines were written after `start`, and `four` was written after `between`.
    async fn check_selections(&self, unit: &UnitName, start: Timestamp, between: Timestamp) {
        let rows: [(Timestamp, Option<usize>, &[&str]); 6] = [
            (start, None, &["one", "two", "three", "four"]),
            (start, Some(2), &["three", "four"]),
            (between, None, &["four"]),
            (between, Some(1), &["four"]),
            (between, Some(3), &["four"]),
            (between, Some(0), &[]),
        ];
        for (since, lines, expected) in rows {
            let query = JournalQuery::default().with_lines(lines).with_since(Since::Time(since));
            let found = all(self.journal(unit, query).await).await;
            assert_eq!(found, expected, "the last {lines:?} since {since:?}");
        }
        let query = JournalQuery::default()
            .with_since(Since::Time(between))
            .with_lines(3)
            .with_follow(true);
        let mut followed = self.journal(unit, query).await;
        assert_eq!(next(&mut followed, 1).await, ["four"], "followed, too");
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Journal {
        self.journals.journal(unit, query).await.expect("a journal")
    }
}

/// Returns this many lines, as they come.
async fn next(journal: &mut Journal, lines: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < lines {
        found.push(next_line(journal).await.text);
    }
    found
}

async fn next_line(journal: &mut Journal) -> JournalLine {
    let line = tokio::time::timeout(DEADLINE, journal.next_line()).await;
    line.expect("a line in time").expect("the journal goes on")
}

/// Returns all lines of a journal that is not followed.
async fn all(mut journal: Journal) -> Vec<String> {
    let read = async {
        let mut lines = Vec::new();
        while let Some(line) = journal.next().await {
            lines.push(line);
        }
        lines
    };
    tokio::time::timeout(DEADLINE, read).await.expect("the journal ends")
}

/// Waits for a time that differs from all earlier and all later ones.
async fn wait_for_distinct_time() -> Timestamp {
    wait_until_after(wall_time()).await;
    let time = wall_time();
    wait_until_after(time).await;
    time
}

async fn wait_until_after(time: Timestamp) {
    let clock = SystemClock::start();
    let deadline = clock.now().after(DEADLINE);
    while wall_time() < time.after(APART) {
        assert!(clock.now() < deadline, "the wall clock goes on");
        clock.sleep(Duration::from_millis(5)).await;
    }
}
