//! Merges the journals of several machines in timestamp order, and reconnects interrupted ones.

use fleet_core::MachineId;
use fleet_core::journal::JournalLine;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::journal::{JournalError, JournalStream};
use super::journal_source::{JournalSource, MACHINE_TIMEOUT, timed_out};
use crate::client::Retry;
use crate::cursors::Cursors;
use crate::merge::{Interrupted, merge_journals};
use crate::server::failure::error_chain;

/// Merges the journals in timestamp order, and prefixes each line with its machine ID. After the
/// last line, adds a line for each machine with an interrupted journal.
///
/// All journals are opened at once. A journal that keeps the merge waiting for [`MACHINE_TIMEOUT`]
/// is cut off, as described at [`merge_journals`].
pub(crate) fn merged<O>(opening: Vec<(MachineId, O)>) -> JournalStream
where
    O: Future<Output = Result<JournalStream, JournalError>> + Send + 'static,
{
    merge_journals(opening, MACHINE_TIMEOUT)
        .map(|(machine, entry)| Ok(entry_of(&machine, entry)))
        .boxed()
}

fn entry_of(
    machine: &MachineId,
    entry: Result<JournalLine, Interrupted<JournalError>>,
) -> JournalLine {
    let error = match entry {
        Ok(mut line) => {
            line.text.insert_str(0, &format!("{machine}: "));
            return line;
        }
        Err(Interrupted::Failed(error)) => error,
        Err(Interrupted::TimedOut) => timed_out(machine),
    };
    format!("{machine}: [{}]", error_chain(&error)).into()
}

/// Follows a machine's journal until the unit is no longer wanted on that machine. Each line is
/// prefixed with the machine ID.
pub(crate) fn follow(source: JournalSource, machine: MachineId) -> JournalStream {
    let machine_lines = FollowedMachine {
        source,
        machine,
        lines: None,
        cursors: None,
        retry: None,
        error_reported: false,
    };
    let next = async |mut machine_lines: FollowedMachine| {
        Some((Ok(machine_lines.next().await?), machine_lines))
    };
    stream::unfold(machine_lines, next).boxed()
}

/// A followed journal of one machine.
struct FollowedMachine {
    source: JournalSource,
    machine: MachineId,
    /// The open line stream.
    lines: Option<JournalStream>,
    /// Cursors of received lines; `None` until the journal was first opened.
    cursors: Option<Cursors>,
    /// Retries since the last line; `None` before the first interruption.
    retry: Option<Retry>,
    /// Whether an error was reported since the last line.
    error_reported: bool,
}

impl FollowedMachine {
    async fn next(&mut self) -> Option<JournalLine> {
        loop {
            let error = match &mut self.lines {
                None => match self.open().await {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => Some(error),
                },
                Some(lines) => match lines.next().await {
                    Some(Ok(line)) => return Some(self.on_entry(line)),
                    Some(Err(error)) => Some(error),
                    // The stream also ends when the unit is replaced.
                    None => None,
                },
            };
            self.lines = None;
            self.retry.get_or_insert_with(Retry::new);
            let Some(error) = error else { continue };
            if !std::mem::replace(&mut self.error_reported, true) {
                tracing::debug!(error = error_chain(&error), "reopening a journal");
                return Some(format!("{}: [{}]", self.machine, error_chain(&error)).into());
            }
        }
    }

    /// Handles a received line: resets the retries, and prefixes the line with the machine ID.
    /// Opening the journal alone does not reset the retries, because a journal may open and end at
    /// once, again and again.
    fn on_entry(&mut self, mut line: JournalLine) -> JournalLine {
        (self.retry, self.error_reported) = (None, false);
        self.cursors.get_or_insert_with(Cursors::new).record(&line);
        line.text.insert_str(0, &format!("{}: ", self.machine));
        line
    }

    /// Opens the journal, or resumes it after the last line. Returns `false` if the unit is no
    /// longer wanted on the machine.
    async fn open(&mut self) -> Result<bool, JournalError> {
        let mut source = self.source.clone();
        if let Some(retry) = &mut self.retry {
            retry.wait().await;
            if !self.source.may_return(&self.machine) {
                return Ok(false);
            }
        }
        if let Some(cursors) = &self.cursors {
            source = source.resume_from(&self.machine, cursors);
        }
        let opening = Cursors::new();
        let opened = timeout(MACHINE_TIMEOUT, source.open(&self.machine)).await;
        self.lines = Some(opened.unwrap_or_else(|_| Err(timed_out(&self.machine)))?);
        self.cursors.get_or_insert(opening);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet_core::Timestamp;
    use futures_util::{FutureExt as _, stream};
    use tokio::time::interval;

    use super::*;

    fn line(at: u64, text: &str) -> Result<JournalLine, JournalError> {
        Ok(JournalLine::new(text).with_time(Some(Timestamp::from_millis(at))))
    }

    /// A journal that writes a line only occasionally is cut off. This is reported in a line, and
    /// so is a journal that cannot be opened.
    #[tokio::test]
    async fn slow_and_failed_machines_are_reported() {
        let quick = stream::iter([line(1, "one"), line(2, "two")]).boxed();
        let slow = stream::unfold(interval(Duration::from_secs(1)), async |mut pace| {
            pace.tick().await;
            Some((line(0, "slow"), pace))
        });
        let opening = vec![
            ("m1".parse().unwrap(), async { Ok(quick) }.boxed()),
            ("m2".parse().unwrap(), async { Ok(slow.boxed()) }.boxed()),
            ("m3".parse().unwrap(), std::future::pending().boxed()),
            ("m4".parse().unwrap(), async { Err(JournalError::Failed("no disk".into())) }.boxed()),
        ];
        let lines: Vec<String> = merged(opening).map(|line| line.unwrap().text).collect().await;
        let (slow, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|it| it == "m2: slow");
        assert!((1..10).contains(&slow.len()), "{slow:?}");
        let silent = "no data within 3 seconds]";
        let expected = [
            "m1: one".to_owned(),
            "m1: two".to_owned(),
            format!("m2: [cannot read from machine m2: {silent}"),
            format!("m3: [cannot read from machine m3: {silent}"),
            "m4: [cannot read the journal: no disk]".to_owned(),
        ];
        assert_eq!(others, expected);
    }
}
