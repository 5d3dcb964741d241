//! Pure: assembling whole revisions from the responses of a watch, each exactly once.

use std::sync::Arc;

use etcd_client::EventType;
use etcd_client::proto::{PbEvent, PbWatchResponse};
use fleet_core::Revision;

use super::key_prefix::{KeyPrefix, lease_id, unsigned};
use crate::{Changes, KeyChange, StoreError};

/// Progress of a watch, and its incomplete revision.
#[derive(Debug)]
pub(super) struct Assembler {
    /// Last complete revision, or the revision that the watch started after.
    done: Revision,
    open: Option<Changes>,
}

impl Assembler {
    pub(super) fn after(done: Revision) -> Self {
        Self { done, open: None }
    }

    /// Returns the revision after which a new stream must start.
    pub(super) fn done(&self) -> Revision {
        self.done
    }

    /// Drops an incomplete revision, because the next stream delivers it again.
    pub(super) fn restart(&mut self) {
        self.open = None;
    }

    /// Adds the changes in a response, and returns the revisions that are now complete, in order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when a key in the response is not UTF-8.
    pub(super) fn take(
        &mut self,
        key_prefix: &KeyPrefix,
        response: PbWatchResponse,
    ) -> Result<Vec<Changes>, StoreError> {
        let mut complete = Vec::new();
        for event in response.events {
            self.take_event(key_prefix, event, &mut complete)?;
        }
        if !response.fragment {
            complete.extend(self.close());
        }
        Ok(complete)
    }

    fn take_event(
        &mut self,
        key_prefix: &KeyPrefix,
        event: PbEvent,
        complete: &mut Vec<Changes>,
    ) -> Result<(), StoreError> {
        let is_put = event.r#type == i32::from(EventType::Put);
        let Some(kv) = event.kv else { return Ok(()) };
        let revision = unsigned(kv.mod_revision);
        if revision <= self.done {
            return Ok(());
        }
        if self.open.as_ref().is_some_and(|open| open.revision != revision) {
            complete.extend(self.close());
        }
        let key: Arc<str> = key_prefix.store_key(&kv.key)?.into();
        let change = match is_put {
            true => KeyChange { key, value: Some(kv.value.into()), lease: lease_id(kv.lease) },
            false => KeyChange { key, value: None, lease: None },
        };
        let open = self.open.get_or_insert_with(|| Changes { revision, changes: Vec::new() });
        open.changes.push(change);
        Ok(())
    }

    fn close(&mut self) -> Option<Changes> {
        let mut changes = self.open.take()?;
        changes.changes.sort_by(|a, b| a.key.cmp(&b.key));
        self.done = changes.revision;
        Some(changes)
    }

    /// Records that all changes up to `revision` have arrived, unless a revision is still
    /// incomplete. Returns whether the last complete revision has advanced.
    pub(super) fn reach(&mut self, revision: Revision) -> bool {
        let news = self.open.is_none() && revision > self.done;
        if news {
            self.done = revision;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;

    use super::*;

    fn response(fragment: bool, events: &[(i64, &str)]) -> PbWatchResponse {
        let event = |&(revision, key): &(i64, &str)| PbEvent {
            r#type: EventType::Put.into(),
            kv: Some(PbKeyValue {
                key: key.as_bytes().to_vec(),
                mod_revision: revision,
                ..PbKeyValue::default()
            }),
            prev_kv: None,
        };
        let events = events.iter().map(event).collect();
        PbWatchResponse { fragment, events, ..PbWatchResponse::default() }
    }

    fn take(assembler: &mut Assembler, response: PbWatchResponse) -> Vec<String> {
        let complete = assembler.take(&KeyPrefix::new(""), response).unwrap();
        let keys = |changes: &Changes| {
            let keys: Vec<_> = changes.changes.iter().map(|change| &*change.key).collect();
            format!("{}: {}", changes.revision, keys.join(" "))
        };
        complete.iter().map(keys).collect()
    }

    #[test]
    fn revision_is_delivered_whole_in_key_order() {
        let mut assembler = Assembler::after(Revision(1));
        let complete = take(&mut assembler, response(false, &[(2, "b"), (2, "a"), (4, "c")]));
        assert_eq!(complete, ["2: a b", "4: c"]);
        assert_eq!(assembler.done(), Revision(4));
    }

    #[test]
    fn fragmented_revision_waits_for_its_last_fragment() {
        let mut assembler = Assembler::after(Revision(1));
        assert_eq!(take(&mut assembler, response(true, &[(2, "a"), (3, "b")])), ["2: a"]);
        assert_eq!(take(&mut assembler, response(true, &[(3, "a")])), [""; 0]);
        assert!(!assembler.reach(Revision(9)), "a piece is missing");
        assert_eq!(take(&mut assembler, response(false, &[(3, "c")])), ["3: a b c"]);
    }

    #[test]
    fn new_stream_repeats_nothing_and_completes_fragments() {
        let mut assembler = Assembler::after(Revision(1));
        assert_eq!(take(&mut assembler, response(true, &[(2, "a"), (3, "b")])), ["2: a"]);
        assembler.restart();
        assert_eq!(assembler.done(), Revision(2));
        let complete = take(&mut assembler, response(false, &[(2, "a"), (3, "a"), (3, "b")]));
        assert_eq!(complete, ["3: a b"]);
    }

    #[test]
    fn progress_is_reported_once() {
        let mut assembler = Assembler::after(Revision(1));
        assert!(assembler.reach(Revision(5)));
        assert!(!assembler.reach(Revision(5)));
        assert_eq!(take(&mut assembler, response(false, &[(5, "a"), (6, "b")])), ["6: b"]);
    }
}
