//! Endless responses: events and journals.

pub(super) mod events;
pub(super) mod journal;
pub(super) mod journal_source;
pub(super) mod merge;
