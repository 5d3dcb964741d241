//! Follows one machine's journal of a unit that is on several machines. After an interruption,
//! reports the error in a line, reconnects, and resumes after the last line.

use fleet_core::MachineId;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::journal_source::{JournalSource, MACHINE_TIMEOUT, timed_out};
use super::journals::{JournalEntry, JournalError, JournalStream};
use crate::client::Retry;
use crate::cursors::Cursors;
use crate::server::failure::error_chain;

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
    async fn next(&mut self) -> Option<JournalEntry> {
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
    fn on_entry(&mut self, line: JournalEntry) -> JournalEntry {
        (self.retry, self.error_reported) = (None, false);
        self.cursors.get_or_insert_with(Cursors::new).record(&line);
        JournalEntry { text: format!("{}: {}", self.machine, line.text), ..line }
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
