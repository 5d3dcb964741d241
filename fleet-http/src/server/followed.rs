//! The lines of one of several machines that are followed: who drops out is named, and taken up
//! again where it left off.

use fleet_core::MachineId;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::failure::chain;
use super::journals::{JournalError, JournalLine, JournalStream};
use super::lines::{PATIENCE, Source, late};
use crate::client::Again;
use crate::told::Told;

/// The lines of a machine as they come, with its ID before each, until nothing more is to come.
pub(super) fn followed(source: Source, machine: MachineId) -> JournalStream {
    let voice = Voice { source, machine, lines: None, told: None, again: None, is_named: false };
    let next = async |mut voice: Voice| Some((Ok(voice.next().await?), voice));
    stream::unfold(voice, next).boxed()
}

/// What comes of one machine.
struct Voice {
    source: Source,
    machine: MachineId,
    /// What comes, while it is open.
    lines: Option<JournalStream>,
    /// What has come; nothing before it was open once.
    told: Option<Told>,
    /// The tries since the last line; nothing before it ended.
    again: Option<Again>,
    /// Whether it was said since the last line why nothing comes.
    is_named: bool,
}

impl Voice {
    async fn next(&mut self) -> Option<JournalLine> {
        loop {
            let error = match &mut self.lines {
                None => match self.open().await {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => Some(error),
                },
                Some(lines) => match lines.next().await {
                    Some(Ok(line)) => return Some(self.tell(line)),
                    Some(Err(error)) => Some(error),
                    // So it ends also where the unit is only replaced.
                    None => None,
                },
            };
            self.lines = None;
            self.again.get_or_insert_with(Again::new);
            let Some(error) = error else { continue };
            if !std::mem::replace(&mut self.is_named, true) {
                tracing::debug!(error = chain(&error), "a journal is taken up again");
                return Some(format!("{}: [{}]", self.machine, chain(&error)).into());
            }
        }
    }

    /// Only a line shows that all is well: who opens may end at once, time and again.
    fn tell(&mut self, line: JournalLine) -> JournalLine {
        (self.again, self.is_named) = (None, false);
        self.told.get_or_insert_with(Told::new).on_line(&line);
        JournalLine { text: format!("{}: {}", self.machine, line.text), ..line }
    }

    /// Opens it, or what came since. Returns whether anything may come.
    async fn open(&mut self) -> Result<bool, JournalError> {
        let mut source = self.source.clone();
        if let Some(again) = &mut self.again {
            again.pause().await;
            if !self.source.is_awaited(&self.machine) {
                return Ok(false);
            }
        }
        if let Some(told) = &self.told {
            source = source.going_on(&self.machine, told);
        }
        let opening = Told::new();
        let opened = timeout(PATIENCE, source.open(&self.machine)).await;
        self.lines = Some(opened.unwrap_or_else(|_| Err(late(&self.machine)))?);
        self.told.get_or_insert(opening);
        Ok(true)
    }
}
