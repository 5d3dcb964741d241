//! Lines of several machines in the order in which they were written.

use fleet_core::MachineId;
use futures_util::StreamExt as _;

use super::failure::chain;
use super::journals::{JournalError, JournalLine, JournalStream};
use super::lines::{PATIENCE, late};
use crate::merge::{CutOff, merge_journals};

/// The lines that machines have, each with the machine's ID before it, and at the end why there are
/// no more of those of which that is so.
///
/// All are opened at once, and none is waited for longer than [`PATIENCE`].
pub(super) fn merged<O>(opening: Vec<(MachineId, O)>) -> JournalStream
where
    O: Future<Output = Result<JournalStream, JournalError>> + Send + 'static,
{
    merge_journals(opening, PATIENCE).map(|(machine, told)| Ok(told_by(&machine, told))).boxed()
}

fn told_by(machine: &MachineId, told: Result<JournalLine, CutOff<JournalError>>) -> JournalLine {
    let missing = match told {
        Ok(line) => return JournalLine { text: format!("{machine}: {}", line.text), ..line },
        Err(CutOff::Failed(error)) => error,
        Err(CutOff::Late) => late(machine),
    };
    format!("{machine}: [{}]", chain(&missing)).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet_core::Timestamp;
    use futures_util::{FutureExt as _, stream};
    use tokio::time::interval;

    use super::*;

    fn line(at: u64, text: &str) -> Result<JournalLine, JournalError> {
        Ok(JournalLine { at: Some(Timestamp::from_millis(at)), ..text.to_owned().into() })
    }

    /// One that tells a line now and then is cut off, and one that does not open is named.
    #[tokio::test]
    async fn who_is_slow_or_away_is_named_and_not_waited_for() {
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
        let told: Vec<String> = merged(opening).map(|line| line.unwrap().text).collect().await;
        let (slow, others): (Vec<_>, Vec<_>) = told.into_iter().partition(|it| it == "m2: slow");
        assert!((1..10).contains(&slow.len()), "{slow:?}");
        let silent = "does not answer: nothing came within 3 seconds]";
        let expected = [
            "m1: one".to_owned(),
            "m1: two".to_owned(),
            format!("m2: [machine m2 {silent}"),
            format!("m3: [machine m3 {silent}"),
            "m4: [the journal cannot be read: no disk]".to_owned(),
        ];
        assert_eq!(others, expected);
    }
}
