//! Merges the journals of several machines in timestamp order.

use fleet_core::MachineId;
use futures_util::StreamExt as _;

use super::journal_source::{MACHINE_TIMEOUT, timed_out};
use super::journals::{JournalEntry, JournalError, JournalStream};
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
    entry: Result<JournalEntry, Interrupted<JournalError>>,
) -> JournalEntry {
    let error = match entry {
        Ok(line) => return JournalEntry { text: format!("{machine}: {}", line.text), ..line },
        Err(Interrupted::Failed(error)) => error,
        Err(Interrupted::TimedOut) => timed_out(machine),
    };
    format!("{machine}: [{}]", error_chain(&error)).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet_core::Timestamp;
    use futures_util::{FutureExt as _, stream};
    use tokio::time::interval;

    use super::*;

    fn line(at: u64, text: &str) -> Result<JournalEntry, JournalError> {
        Ok(JournalEntry { timestamp: Some(Timestamp::from_millis(at)), ..text.to_owned().into() })
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
