//! What the cluster wanted of a machine when that was last known, as a note.
//!
//! It serves a daemon that begins without the store. After a boot it says what to run; while units
//! run it says which of them must not run where nobody hears of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use fleet_core::{
    DesiredUnit, Epoch, Generation, MachineId, OnPartition, Requirements, Strictness, TargetState,
    Unit,
};
use fleet_unitfile::{UnitFile, UnitName};
use serde::{Deserialize, Serialize};

use super::notes::{Note, Notes};

/// The only format so far. What another version wrote is passed over.
const FORMAT: u32 = 1;

/// What a machine had, and should have had.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assignment {
    /// What the cluster wanted of the machine.
    pub(crate) units: BTreeMap<UnitName, DesiredUnit>,
    /// The units with `OnPartition=stop` that the machine may have, wanted or not any more.
    pub(crate) fenced: BTreeSet<UnitName>,
}

/// Why a note is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoteError {
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    #[error("it is damaged")]
    Damaged(#[from] serde_json::Error),
    #[error("it is of format {0}, which this version does not know")]
    Format(u32),
    #[error("it is of the machine {0}")]
    Machine(String),
    #[error("{unit} in it is damaged: {problem}")]
    Unit { unit: String, problem: String },
}

#[derive(Serialize, Deserialize)]
struct Head {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct WireAssignment {
    v: u32,
    machine: String,
    units: Vec<WireUnit>,
    fenced: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct WireUnit {
    name: String,
    source: Source,
    desired: String,
    generation: u64,
    epoch: u64,
}

/// The bytes of a unit file, which nearly always are text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Text(String),
    Bytes(Vec<u8>),
}

/// Whether nobody may run the unit who has not heard of the cluster for long.
pub(crate) fn is_fenced(unit: &Unit) -> bool {
    unit.requirements.on_partition == OnPartition::Stop
}

impl Assignment {
    /// The note that was last written for the machine; nothing if there is none of any use. That is
    /// said, and harms nobody.
    pub(crate) async fn read(notes: &dyn Notes, machine: &MachineId) -> Self {
        let read = match notes.read(Note::Assignment).await {
            Ok(None) => return Self::default(),
            Ok(Some(content)) => Self::decode(&content, machine),
            Err(error) => Err(error.into()),
        };
        read.unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the note of what this machine should run is passed over");
            Self::default()
        })
    }

    /// Writes the note.
    pub(crate) async fn write(&self, notes: &dyn Notes, machine: &MachineId) -> io::Result<()> {
        notes.write(Note::Assignment, self.encode(machine)).await
    }

    /// Whether a note of the other one would say the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let said = |wanted: &DesiredUnit| {
            let unit = &wanted.unit;
            (unit.hash(), unit.desired, unit.generation, wanted.epoch)
        };
        self.fenced == other.fenced
            && self.units.len() == other.units.len()
            && self.units.iter().zip(&other.units).all(|((name, one), (other_name, other))| {
                name == other_name
                    && (Arc::ptr_eq(&one.unit, &other.unit) || said(one) == said(other))
                    && one.epoch == other.epoch
            })
    }

    fn encode(&self, machine: &MachineId) -> Vec<u8> {
        let unit = |(name, wanted): (&UnitName, &DesiredUnit)| {
            let (file, unit) = (&wanted.unit.file, &wanted.unit);
            WireUnit {
                name: name.to_string(),
                source: file.source_str().map_or_else(
                    || Source::Bytes(file.source().to_vec()),
                    |text| Source::Text(text.to_owned()),
                ),
                desired: unit.desired.to_string(),
                generation: unit.generation.0,
                epoch: wanted.epoch.0,
            }
        };
        let wire = WireAssignment {
            v: FORMAT,
            machine: machine.to_string(),
            units: self.units.iter().map(unit).collect(),
            fenced: self.fenced.iter().map(ToString::to_string).collect(),
        };
        serde_json::to_vec(&wire).expect("texts and numbers can always be written as JSON")
    }

    fn decode(content: &[u8], machine: &MachineId) -> Result<Self, NoteError> {
        let Head { v } = serde_json::from_slice(content)?;
        if v != FORMAT {
            return Err(NoteError::Format(v));
        }
        let wire: WireAssignment = serde_json::from_slice(content)?;
        if wire.machine != machine.as_str() {
            return Err(NoteError::Machine(wire.machine));
        }
        let mut read = Self::default();
        for unit in wire.units {
            let wanted = unit.decode()?;
            read.units.insert(wanted.unit.name.clone(), wanted);
        }
        for name in wire.fenced {
            read.fenced.insert(parsed(&name, name.parse())?);
        }
        Ok(read)
    }
}

impl WireUnit {
    fn decode(self) -> Result<DesiredUnit, NoteError> {
        let of = &self.name;
        let name: UnitName = parsed(of, of.parse())?;
        let file = parsed(
            of,
            match &self.source {
                Source::Text(text) => UnitFile::parse(text),
                Source::Bytes(bytes) => UnitFile::parse(bytes),
            },
        )?;
        let requirements = parsed(of, Requirements::parse(&name, &file, Strictness::Warn))?;
        let desired: TargetState = parsed(of, self.desired.parse())?;
        let mut unit = Unit::new(name, file, requirements.requirements, desired);
        unit.generation = Generation(self.generation);
        Ok(DesiredUnit { unit: Arc::new(unit), epoch: Epoch(self.epoch) })
    }
}

fn parsed<T, E: std::fmt::Display>(unit: &str, result: Result<T, E>) -> Result<T, NoteError> {
    result.map_err(|error| NoteError::Unit { unit: unit.to_owned(), problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::notes::NotesInMemory;

    fn machine() -> MachineId {
        "m1".parse().unwrap()
    }

    fn assignment() -> Assignment {
        let unit = |name: &str, source: &[u8], epoch| {
            let (name, file) = (name.parse().unwrap(), UnitFile::parse(source).unwrap());
            let wants = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
            let mut unit = Unit::new(name, file, wants.requirements, TargetState::Launched);
            unit.generation = Generation(3);
            let wanted = DesiredUnit { unit: Arc::new(unit), epoch: Epoch(epoch) };
            (wanted.unit.name.clone(), wanted)
        };
        let stop = b"[Service]\nExecStart=/bin/a\n[X-Fleet]\nOnPartition=stop\n";
        let units = [
            unit("a.service", stop, 7),
            unit("b.service", b"# caf\xe9\n[Service]\nExecStart=/bin/b\n", 8),
        ];
        let fenced = [units[0].0.clone(), "gone.service".parse().unwrap()];
        Assignment { units: units.into(), fenced: fenced.into() }
    }

    #[tokio::test]
    async fn what_is_noted_is_read() {
        let (notes, noted) = (NotesInMemory::default(), assignment());
        noted.write(&notes, &machine()).await.unwrap();
        let read = Assignment::read(&notes, &machine()).await;
        assert!(read.is_same(&noted), "{read:?}");
        let unit = &read.units["b.service"].unit;
        assert_eq!(unit.file.source(), assignment().units["b.service"].unit.file.source());
        assert!(is_fenced(&read.units["a.service"].unit) && !is_fenced(unit));
    }

    #[test]
    fn what_makes_a_note_another_one() {
        let noted = assignment();
        let changes: [fn(&mut Assignment); 4] = [
            |it| drop(it.units.remove("a.service")),
            |it| it.fenced.retain(|unit| *unit != *"gone.service"),
            |it| it.units.get_mut("a.service").unwrap().epoch = Epoch(9),
            |it| {
                let wanted = it.units.get_mut("a.service").unwrap();
                Arc::make_mut(&mut wanted.unit).desired = TargetState::Loaded;
            },
        ];
        assert!(noted.is_same(&assignment()));
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = assignment();
            change(&mut other);
            assert!(!noted.is_same(&other), "change {number}");
        }
    }

    #[tokio::test]
    async fn a_note_that_is_of_no_use_is_said_and_passed_over() {
        let good = String::from_utf8(assignment().encode(&machine())).unwrap();
        let cases = [
            (String::new(), "it is damaged"),
            (good[..good.len() / 2].to_owned(), "it is damaged"),
            (
                good.replace("\"v\":1", "\"v\":2"),
                "it is of format 2, which this version does not know",
            ),
            ("{\"v\":0}".to_owned(), "it is of format 0, which this version does not know"),
            (good.replace("\"m1\"", "\"m2\""), "it is of the machine m2"),
            (good.replace("launched", "lunched"), "a.service in it is damaged: "),
            (good.replace("=stop", "=halt"), "a.service in it is damaged: "),
        ];
        for (content, problem) in cases {
            let refused = Assignment::decode(content.as_bytes(), &machine()).unwrap_err();
            assert!(refused.to_string().starts_with(problem), "{refused}: {content}");
            let notes = NotesInMemory::default();
            notes.write(Note::Assignment, content.into()).await.unwrap();
            let read = Assignment::read(&notes, &machine()).await;
            assert!(read.is_same(&Assignment::default()));
        }
    }
}
