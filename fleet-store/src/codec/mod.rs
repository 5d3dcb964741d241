//! Pure: the values of the store, as versioned JSON.
//!
//! The wire types here mirror the nouns of `fleet_core` and are free to change without them. Each
//! value says its format in the field `v`. A value of a newer format is an error, and so is a
//! damaged one: it is never guessed at, and it never keeps another value from being read. The
//! encoding of one format never changes: some values are compared byte for byte in conditions. The
//! content of a unit is its bytes as they are, after a first line that says the format.

mod content;
mod reason;
mod rebalancing;
mod record;
mod refusal;
mod state;

use fleet_core::{Epoch, Generation, MachineId, Metadata, TargetState};
use serde::{Deserialize, Serialize};

use crate::ContentId;
use crate::registry::{Lineage, MachineRecord};

/// The format of all values but those that say another one: the first.
const FORMAT: u32 = 1;

/// The format of the [layout](crate::Layout): that of the lineage, which every daemon reads before
/// all else. In format one, placements were kept by unit alone.
const LAYOUT_FORMAT: u32 = 2;

/// The format of placements: the machine is in the key. In format one it was in the value.
const PLACEMENT_FORMAT: u32 = 2;

/// Why a value cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// It was written by a newer version of fleet.
    #[error("format {found} is newer than format {known}: upgrade fleet on this machine")]
    Newer {
        /// The value's format.
        found: u32,
        /// The one that this version writes.
        known: u32,
    },
    /// It was written by a version of fleet before this one, and is not read any more.
    #[error(
        "format {found} is older than format {known}: export the cluster with the fleet that wrote \
         it, and import the file into a new store"
    )]
    Older {
        /// The value's format.
        found: u32,
        /// The one that this version writes.
        known: u32,
    },
    /// It is not what is kept under such a key.
    #[error("the value is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No format knows how to write it.
    #[error("the format cannot hold {0}")]
    Unsupported(&'static str),
}

impl CodecError {
    fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Damaged(error.into())
    }
}

/// What is kept of a unit beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitRecord {
    pub(crate) content: ContentId,
    pub(crate) desired: TargetState,
    pub(crate) generation: Generation,
}

/// A machine's word that it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) machine: MachineRecord,
    /// Tells one life of the machine from a copy of the machine.
    pub(crate) token: String,
    /// Tells one joining from the next.
    pub(crate) joined: u64,
}

/// A leader's word that it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaderClaim {
    pub(crate) machine: MachineId,
    pub(crate) term: u64,
}

pub(crate) use content::{decode_content, encode_content};
pub(crate) use reason::{decode_reason, encode_reason};
pub(crate) use rebalancing::{decode_rebalancing, encode_rebalancing};
pub(crate) use record::{
    decode_claim, decode_intent, decode_leader, decode_lineage, decode_placement, decode_term,
    decode_text, decode_unit, encode_claim, encode_intent, encode_leader, encode_lineage,
    encode_placement, encode_term, encode_text, encode_unit,
};
pub(crate) use state::{decode_state, encode_state};

/// A wire type with a field `v`. What is read a hundred thousand times borrows its texts from the
/// bytes.
trait Wire {
    /// The only format that is read and written.
    const FORMAT: u32;

    fn format(&self) -> u32;
}

macro_rules! wire {
    ($($name:ty),+ $(,)?) => {
        $(wire!($name = crate::codec::FORMAT);)+
    };
    ($($name:ty = $format:expr),+ $(,)?) => {
        $(impl crate::codec::Wire for $name {
            const FORMAT: u32 = $format;

            fn format(&self) -> u32 {
                self.v
            }
        })+
    };
}
use wire;

fn encode(value: &(impl Wire + Serialize)) -> Vec<u8> {
    serde_json::to_vec(value).expect("wire types have text keys and write to memory")
}

fn decode<'a, T: Wire + Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    match serde_json::from_slice::<T>(bytes) {
        Ok(value) if value.format() == T::FORMAT => Ok(value),
        Ok(value) => Err(format_error(value.format(), T::FORMAT)),
        Err(error) => Err(decode_error(bytes, T::FORMAT, error)),
    }
}

/// Another format may look different altogether, so its number is looked for alone.
fn decode_error(bytes: &[u8], known: u32, error: serde_json::Error) -> CodecError {
    #[derive(serde::Deserialize)]
    struct Probe {
        v: u32,
    }
    match serde_json::from_slice::<Probe>(bytes) {
        Ok(probe) if probe.v != known => format_error(probe.v, known),
        _ => CodecError::damaged(error),
    }
}

fn format_error(found: u32, known: u32) -> CodecError {
    match found {
        0 => CodecError::damaged("there is no format 0"),
        found if found > known => CodecError::Newer { found, known },
        found => CodecError::Older { found, known },
    }
}

/// Reads a noun out of its text.
fn parse<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, CodecError> {
    text.parse().map_err(|_| CodecError::damaged(format!("{text:?} is not {what}")))
}
