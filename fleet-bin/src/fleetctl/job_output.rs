//! Output of the attempts of jobs, from the journals of their machines.

use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock};
use fleet_core::Timestamp;
use fleet_http::client::JournalOptions;
use fleet_unitfile::UnitName;
use fleet_unitfile::values::Timespan;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::session::{Session, next_line};

/// First pause between two attempts to open a journal. Later ones grow up to [`LONGEST_PAUSE`]. The
/// unit may not be loaded on its machine yet.
const FIRST_PAUSE: Duration = Duration::from_millis(40);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Time limit for reading the whole output of an attempt that has ended.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without a line after which the output of an ended attempt counts as complete.
const QUIET: Duration = Duration::from_millis(500);

/// Number of lines that are read ahead.
const READ_AHEAD: usize = 256;

/// Output of one attempt.
pub(super) struct AttemptOutput {
    number: u64,
    machine: String,
    /// Age of the attempt at `known`; an upper bound.
    age: Duration,
    known: Timestamp,
    printed: usize,
    last: Option<String>,
    /// Whether the reader has ended.
    is_over: bool,
    reader: Option<AbortHandle>,
    /// Lets the reader pass on lines; `None` once it may.
    release: Option<oneshot::Sender<()>>,
}

impl AttemptOutput {
    /// Creates an output that is not read yet. `age` is the time since the begin of the attempt.
    pub(super) fn new(number: u64, machine: &str, age: Duration, known: Timestamp) -> Self {
        let machine = machine.to_owned();
        let (printed, last, is_over) = (0, None, false);
        Self { number, machine, age, known, printed, last, is_over, reader: None, release: None }
    }

    /// Returns options that select all lines of the attempt. The machine subtracts the age from its
    /// own time, so its clock may differ.
    fn options(&self, now: Timestamp) -> JournalOptions {
        let age = self.age + now.since(self.known);
        JournalOptions::default()
            .with_machine(self.machine.clone())
            .with_since(Timespan::Finite(age))
    }
}

/// The whole output of an attempt, if its machine still has it.
pub(super) enum Lines {
    All(Vec<String>),
    Unreadable,
}

/// Outputs of the current attempts of all followed jobs.
pub(super) struct Outputs {
    current: Vec<Option<AttemptOutput>>,
    lines: mpsc::Receiver<Event>,
    to_lines: mpsc::Sender<Event>,
    /// Readers. Dropping the set ends them.
    readers: JoinSet<()>,
}

/// A line of the attempt with this number, or `None` at the end of its journal.
struct Event {
    job: usize,
    number: u64,
    line: Option<String>,
}

impl Outputs {
    pub(super) fn new(jobs: usize) -> Self {
        let (to_lines, lines) = mpsc::channel(READ_AHEAD);
        let current = std::iter::repeat_with(|| None).take(jobs).collect();
        Self { current, lines, to_lines, readers: JoinSet::new() }
    }

    /// Returns whether the output of this attempt on this machine is followed.
    pub(super) fn is_of(&self, job: usize, number: u64, machine: &str) -> bool {
        let is_it = |output: &AttemptOutput| output.number == number && output.machine == machine;
        self.current[job].as_ref().is_some_and(is_it)
    }

    /// Follows the output of an attempt in place of the former one. Its lines are held back until
    /// [`release`](Self::release), because the attempt may not be reported as begun yet.
    pub(super) fn follow(
        &mut self,
        job: usize,
        session: &Session,
        unit: &UnitName,
        mut output: AttemptOutput,
    ) {
        self.stop(job);
        let (number, lines) = (output.number, self.to_lines.clone());
        let (session, unit, clock) = (session.clone(), unit.clone(), SystemClock::start());
        let template = AttemptOutput::new(number, &output.machine, output.age, output.known);
        let (release, released) = oneshot::channel();
        let reader = self.readers.spawn(async move {
            let mut pause = FIRST_PAUSE;
            let mut journal = loop {
                let options = template.options(clock.now()).with_follow(true);
                match session.journal(&unit, &options).await {
                    Ok(journal) => break journal,
                    Err(_) => clock.sleep_until(clock.now().after(pause)).await,
                }
                pause = LONGEST_PAUSE.min(pause * 3 / 2);
            };
            if released.await.is_err() {
                return;
            }
            while let Ok(Some(line)) = next_line(&mut journal, &unit).await {
                if lines.send(Event { job, number, line: Some(line) }).await.is_err() {
                    return;
                }
            }
            let _closed = lines.send(Event { job, number, line: None }).await;
        });
        (output.reader, output.release) = (Some(reader), Some(release));
        self.current[job] = Some(output);
    }

    /// Lets the lines of the current attempt pass.
    pub(super) fn release(&mut self, job: usize) {
        let release = self.current[job].as_mut().and_then(|output| output.release.take());
        if let Some(release) = release {
            // The reader may have ended.
            let _ended = release.send(());
        }
    }

    /// Returns the next line, with the number of its job. Cancel-safe.
    pub(super) async fn next(&mut self) -> (usize, String) {
        loop {
            // There always is a sender, so the channel is not closed.
            let Some(event) = self.lines.recv().await else { std::future::pending().await };
            if let Some(line) = self.accept(event) {
                return line;
            }
        }
    }

    /// Returns the next line that has arrived already.
    pub(super) fn next_arrived(&mut self) -> Option<(usize, String)> {
        loop {
            let event = self.lines.try_recv().ok()?;
            if let Some(line) = self.accept(event) {
                return Some(line);
            }
        }
    }

    /// Returns the next line; `None` once the journal of this job has ended, or is quiet.
    pub(super) async fn next_in_time(&mut self, job: usize) -> Option<(usize, String)> {
        if let Some(line) = self.next_arrived() {
            return Some(line);
        }
        if self.current[job].as_ref().is_none_or(|output| output.is_over) {
            return None;
        }
        tokio::time::timeout(QUIET, self.next()).await.ok()
    }

    /// Counts a line as printed. Lines of former attempts are dropped.
    fn accept(&mut self, Event { job, number, line }: Event) -> Option<(usize, String)> {
        let output = self.current[job].as_mut().filter(|output| output.number == number)?;
        match line {
            Some(line) => {
                output.printed += 1;
                output.last = Some(line.clone());
                Some((job, line))
            }
            None => {
                output.is_over = true;
                None
            }
        }
    }

    /// Reads the whole output of an attempt that has ended.
    pub(super) async fn complete(
        &self,
        job: usize,
        session: &Session,
        unit: &UnitName,
        clock: &SystemClock,
    ) -> Lines {
        let Some(output) = &self.current[job] else { return Lines::Unreadable };
        let read = async {
            let mut journal = session.journal(unit, &output.options(clock.now())).await?;
            let mut lines = Vec::new();
            while let Some(line) = next_line(&mut journal, unit).await? {
                lines.push(line);
            }
            Ok::<_, crate::ui::error::CliError>(lines)
        };
        match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(Ok(lines)) => Lines::All(lines),
            Ok(Err(_)) | Err(_) => Lines::Unreadable,
        }
    }

    /// Returns the last lines of an attempt that were not printed, given all last lines that its
    /// machine has reported.
    pub(super) fn missing(&self, job: usize, reported: &[String]) -> Vec<String> {
        let last = self.current[job].as_ref().and_then(|output| output.last.as_deref());
        after_last(reported, last).to_vec()
    }

    /// Stops following the output of a job. Returns the number of printed lines.
    pub(super) fn stop(&mut self, job: usize) -> usize {
        let Some(output) = self.current[job].take() else { return 0 };
        if let Some(reader) = output.reader {
            reader.abort();
        }
        output.printed
    }
}

/// Returns the lines after the last occurrence of `last`, or all lines if it does not occur.
fn after_last<'a>(lines: &'a [String], last: Option<&str>) -> &'a [String] {
    let at = last.and_then(|last| lines.iter().rposition(|line| line == last));
    at.map_or(lines, |at| &lines[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_lines_continue_the_printed_ones() {
        let lines = ["a", "b", "a", "c"].map(str::to_owned);
        for (last, expected) in
            [(None, "a b a c"), (Some("a"), "c"), (Some("c"), ""), (Some("z"), "a b a c")]
        {
            assert_eq!(after_last(&lines, last).join(" "), expected, "{last:?}");
        }
    }
}
