//! Pure: the keys of a cluster.
//!
//! | key, after the prefix | value |
//! |---|---|
//! | `units/<unit>` | the unit's desired state, generation and content ID |
//! | `contents/<id>` | a format line and a unit file's bytes, shared by all units with this file |
//! | `placements/<machine>/<unit>` | the epoch of the unit's placement on the machine |
//! | `reasons/<unit>` | the reason why the unit has no machine |
//! | `states/<machine>/<unit>` | the unit's state on the machine; bound to the machine's presence |
//! | `machines/<machine>` | the claim of a present machine; its lease is the machine's presence |
//! | `metadata/<machine>/<key>` | a metadata value set at run time |
//! | `intents/<machine>` | the operator's intent for the machine; outlives the machine's presence |
//! | `rollouts/<number>` | a rollout, with the state of each member |
//! | `rollouts/<number>/files` | the unit files of the members before and after the rollout |
//! | `jobs/<unit>` | the job of a unit: its phase and its last attempts |
//! | `history/<unit>` | the last events of a unit, and the facts of the last observation |
//! | `failures/<unit>` | the counted failures of a unit with `MoveAfterFailures=` |
//! | `schedules/<unit>` | the schedule of a unit: its requests, unfinished runs and history |
//! | `orders/rebalancing` | the request to rebalance units, and the progress of the rebalancing |
//! | `engine/leader` | the leader and its term; bound to the leader's lease |
//! | `engine/term` | the last term; never deleted |
//! | `engine/placed` | the term of the last placement write; only this key's revision is used |
//! | `cluster/lineage` | the identity of this history of revisions, and the layout's format |
//!
//! Placement keys begin with the machine, so the key of a change shows the affected machine. The
//! keys alone would allow two placements of one unit;
//! [`Leadership`](crate::registry::Leadership) describes the rules that prevent it.

use std::fmt;
use std::str::FromStr;

use fleet_core::MachineId;
use fleet_core::rollout::RolloutId;
use fleet_unitfile::UnitName;
use sha1::{Digest as _, Sha1};

/// SHA-1 of a unit file's bytes, under which the file is stored.
///
/// Unlike a [`UnitHash`](fleet_unitfile::UnitHash), it also depends on comments and line endings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId([u8; 20]);

impl ContentId {
    /// Computes the identity of these bytes.
    #[must_use]
    pub fn of(source: &[u8]) -> Self {
        Self(Sha1::digest(source).into())
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}

/// Error for text that is not a content ID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the hash of a unit file: 40 lower-case hexadecimal digits are expected")]
pub struct ContentIdError(String);

impl FromStr for ContentId {
    type Err = ContentIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ContentIdError(text.to_owned());
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(error());
        }
        let mut id = [0; 20];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(error)?;
            *byte = high << 4 | low;
        }
        Ok(Self(id))
    }
}

/// Returns the value of a lower-case hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Meaning of a cluster key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Key {
    /// Record of a unit.
    Unit(UnitName),
    /// Bytes of a unit file.
    Content(ContentId),
    /// Revisions of a unit: its earlier files.
    Revisions(UnitName),
    /// Placement of a unit on a machine.
    Placement(MachineId, UnitName),
    /// Reason for a unit to have no machine.
    Reason(UnitName),
    /// State of a unit on a machine.
    State(MachineId, UnitName),
    /// Claim of a present machine.
    Machine(MachineId),
    /// One entry of a machine's run-time metadata.
    Metadata(MachineId, String),
    /// Operator's intent for a machine.
    Intent(MachineId),
    /// A rollout.
    Rollout(RolloutId),
    /// Unit files of the members of a rollout.
    RolloutFiles(RolloutId),
    /// Job of a unit.
    Job(UnitName),
    /// History of a unit: its last events.
    History(UnitName),
    /// Counted failures of a unit.
    Failures(UnitName),
    /// Schedule of a unit.
    Schedule(UnitName),
    /// Request to rebalance units.
    Rebalancing,
    /// Current leader.
    Leader,
    /// Last term.
    Term,
    /// Version of the placements: every leader updates it with each write of placements.
    PlacementVersion,
    /// Identity of this unbroken history of revisions.
    Lineage,
}

/// Keys of one cluster, all under one prefix.
///
/// ```
/// use fleet_store::Layout;
/// use fleet_store::registry::Key;
///
/// let layout = Layout::new("/fleet/");
/// let key = Key::Unit("web.service".parse()?);
/// assert_eq!(layout.key(&key), "/fleet/units/web.service");
/// assert_eq!(layout.parse("/fleet/units/web.service"), Some(key));
/// # Ok::<(), fleet_unitfile::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

impl Layout {
    /// Default prefix.
    pub const DEFAULT_PREFIX: &str = "/fleet/";

    /// Uses the keys under `prefix`; a missing trailing `/` is added.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let slash = if prefix.ends_with('/') { "" } else { "/" };
        Self { prefix: format!("{prefix}{slash}") }
    }

    /// Returns the prefix of every key.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the text of a key.
    #[must_use]
    pub fn key(&self, key: &Key) -> String {
        let prefix = &self.prefix;
        match key {
            Key::Unit(unit) => format!("{prefix}units/{unit}"),
            Key::Content(id) => format!("{prefix}contents/{id}"),
            Key::Revisions(unit) => format!("{prefix}revisions/{unit}"),
            Key::Placement(machine, unit) => format!("{prefix}placements/{machine}/{unit}"),
            Key::Reason(unit) => format!("{prefix}reasons/{unit}"),
            Key::State(machine, unit) => format!("{prefix}states/{machine}/{unit}"),
            Key::Machine(machine) => format!("{prefix}machines/{machine}"),
            Key::Metadata(machine, name) => format!("{prefix}metadata/{machine}/{name}"),
            Key::Intent(machine) => format!("{prefix}intents/{machine}"),
            Key::Rollout(id) => format!("{prefix}rollouts/{id}"),
            Key::RolloutFiles(id) => format!("{prefix}rollouts/{id}/files"),
            Key::Job(unit) => format!("{prefix}jobs/{unit}"),
            Key::History(unit) => format!("{prefix}history/{unit}"),
            Key::Failures(unit) => format!("{prefix}failures/{unit}"),
            Key::Schedule(unit) => format!("{prefix}schedules/{unit}"),
            Key::Rebalancing => format!("{prefix}orders/rebalancing"),
            Key::Leader => format!("{prefix}engine/leader"),
            Key::Term => format!("{prefix}engine/term"),
            Key::PlacementVersion => format!("{prefix}engine/placed"),
            Key::Lineage => format!("{prefix}cluster/lineage"),
        }
    }

    /// Returns the common prefix of the election keys.
    pub(crate) fn engine(&self) -> String {
        format!("{}engine/", self.prefix)
    }

    /// Returns the common prefix of the histories of all units.
    pub(crate) fn histories(&self) -> String {
        format!("{}history/", self.prefix)
    }

    /// Returns the common prefix of all placement keys.
    pub(crate) fn placements(&self) -> String {
        format!("{}placements/", self.prefix)
    }

    /// Parses a key. Returns `None` for keys of other clusters and for kinds of keys that this
    /// version does not know.
    #[must_use]
    pub fn parse(&self, key: &str) -> Option<Key> {
        let (kind, rest) = key.strip_prefix(&self.prefix)?.split_once('/')?;
        let below = || rest.split_once('/');
        Some(match kind {
            "units" => Key::Unit(rest.parse().ok()?),
            "contents" => Key::Content(rest.parse().ok()?),
            "revisions" => Key::Revisions(rest.parse().ok()?),
            "placements" => {
                let (machine, unit) = below()?;
                Key::Placement(machine.parse().ok()?, unit.parse().ok()?)
            }
            "reasons" => Key::Reason(rest.parse().ok()?),
            "states" => {
                let (machine, unit) = below()?;
                Key::State(machine.parse().ok()?, unit.parse().ok()?)
            }
            "machines" => Key::Machine(rest.parse().ok()?),
            "metadata" => {
                let (machine, name) = below()?;
                Key::Metadata(machine.parse().ok()?, name.to_owned())
            }
            "intents" => Key::Intent(rest.parse().ok()?),
            "rollouts" => match below() {
                None => Key::Rollout(rest.parse().ok()?),
                Some((id, "files")) => Key::RolloutFiles(id.parse().ok()?),
                Some(_) => return None,
            },
            "jobs" => Key::Job(rest.parse().ok()?),
            "history" => Key::History(rest.parse().ok()?),
            "failures" => Key::Failures(rest.parse().ok()?),
            "schedules" => Key::Schedule(rest.parse().ok()?),
            "orders" if rest == "rebalancing" => Key::Rebalancing,
            "engine" if rest == "leader" => Key::Leader,
            "engine" if rest == "term" => Key::Term,
            "engine" if rest == "placed" => Key::PlacementVersion,
            "cluster" if rest == "lineage" => Key::Lineage,
            _ => return None,
        })
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::new(Self::DEFAULT_PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_keys() -> Vec<Key> {
        let unit: UnitName = "web@1.service".parse().unwrap();
        let machine: MachineId = "m-1".parse().unwrap();
        vec![
            Key::Unit(unit.clone()),
            Key::Content(ContentId::of(b"[Unit]\n")),
            Key::Placement(machine.clone(), unit.clone()),
            Key::Reason(unit.clone()),
            Key::Revisions(unit.clone()),
            Key::State(machine.clone(), unit.clone()),
            Key::Machine(machine.clone()),
            Key::Metadata(machine.clone(), "a/b=\u{e9}".to_owned()),
            Key::Intent(machine.clone()),
            Key::Metadata(machine, String::new()),
            Key::Rollout(RolloutId(12)),
            Key::RolloutFiles(RolloutId(12)),
            Key::Job(unit.clone()),
            Key::Schedule(unit.clone()),
            Key::History(unit.clone()),
            Key::Failures(unit),
            Key::Rebalancing,
            Key::Leader,
            Key::Term,
            Key::PlacementVersion,
            Key::Lineage,
        ]
    }

    #[test]
    fn every_key_reads_back() {
        let layout = Layout::new("x");
        for key in all_keys() {
            let text = layout.key(&key);
            assert!(text.starts_with("x/"), "{text}");
            assert_eq!(layout.parse(&text), Some(key), "{text}");
            assert_eq!(Layout::new("y/").parse(&text), None, "{text}");
        }
    }

    #[test]
    fn other_keys_do_not_parse() {
        let layout = Layout::default();
        let texts = [
            "/fleet/units/none",
            "/fleet/contents/abc",
            "/fleet/contents/DA39A3EE5E6B4B0D3255BFEF95601890AFD80709",
            "/fleet/contents/+a39a3ee5e6b4b0d3255bfef95601890afd80709",
            "/fleet/states/m",
            "/fleet/placements/web.service",
            "/fleet/machines/a/b",
            "/fleet/engine/other",
            "/fleet/rollouts/01",
            "/fleet/rollouts/1/other",
            "/fleet/orders/other",
            "/fleet/future/a",
            "/fleet/units",
            "/fleet",
            "",
        ];
        for text in texts {
            assert_eq!(layout.parse(text), None, "{text}");
        }
    }

    #[test]
    fn content_ids_depend_on_every_byte() {
        assert_eq!(ContentId::of(b"").to_string(), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_ne!(ContentId::of(b"[Unit]\n"), ContentId::of(b"[Unit]\r\n"));
    }
}
