//! The last known desired state of a machine, persisted for its next daemon.
//!
//! A daemon that starts without contact to the store reads this state instead, for two purposes:
//!
//! - to start the units that the machine should run, for example after a boot;
//! - to stop the units that must not run while the cluster is out of reach (`fenced`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use fleet_core::requirements::OnPartition;
use fleet_core::{
    DesiredUnit, Epoch, Generation, MachineId, Requirements, Strictness, TargetState, Unit,
};
use fleet_store::registry::{Lineage, LineageError};
use fleet_unitfile::{UnitFile, UnitName};
use serde::{Deserialize, Serialize};

use super::state::{AgentState, StateKey};

/// Format version. Other versions are ignored.
const FORMAT: u32 = 1;

/// Desired state of a machine, and its fenced units.
#[derive(Debug, Clone, Default)]
pub(crate) struct DesiredState {
    /// Lineage of the store that this state is from, if the store had one.
    pub(crate) lineage: Option<Lineage>,
    /// Desired units of the machine.
    pub(crate) units: BTreeMap<UnitName, DesiredUnit>,
    /// Units with `OnPartition=stop` that may run on the machine, whether or not they are still
    /// wanted.
    pub(crate) fenced: BTreeSet<UnitName>,
}

/// Reason why a stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredStateError {
    #[error("the saved state cannot be read")]
    Io(#[from] io::Error),
    #[error("the saved state is damaged")]
    Damaged(#[from] serde_json::Error),
    #[error("the saved state has format {0}, which this version of fleet does not support")]
    Format(u32),
    #[error("the saved state belongs to machine {0}")]
    Machine(String),
    #[error("the saved state contains an invalid unit, {unit}: {problem}")]
    Unit { unit: String, problem: String },
    #[error("the saved state is of an invalid lineage")]
    Lineage(#[from] LineageError),
}

#[derive(Serialize, Deserialize)]
struct Head {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredDesiredState {
    v: u32,
    machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lineage: Option<String>,
    units: Vec<StoredUnit>,
    fenced: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredUnit {
    name: String,
    source: Source,
    desired: String,
    generation: u64,
    epoch: u64,
}

/// Content of a unit file, which is nearly always text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Text(String),
    Bytes(Vec<u8>),
}

/// Returns whether the unit must stop once its machine has been out of touch with the cluster for
/// too long (`OnPartition=stop`).
pub(crate) fn is_fenced(unit: &Unit) -> bool {
    unit.requirements.on_partition == OnPartition::Stop
}

impl DesiredState {
    /// Reads the stored state of the machine. Returns an empty state if nothing is stored, or if
    /// the stored content is unusable. In the second case, logs the reason.
    pub(crate) async fn read(state: &dyn AgentState, machine: &MachineId) -> Self {
        Self::try_read(state, machine).await.unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "cannot use the saved desired state of this machine: no unit is started until \
                 fleetd reaches the cluster"
            );
            Self::default()
        })
    }

    /// Reads the stored state of the machine. Returns an empty state if nothing is stored.
    pub(crate) async fn try_read(
        state: &dyn AgentState,
        machine: &MachineId,
    ) -> Result<Self, StoredStateError> {
        match state.read(StateKey::DesiredState).await? {
            Some(content) => Self::decode(&content, machine),
            None => Ok(Self::default()),
        }
    }

    /// Stores this state.
    pub(crate) async fn write(
        &self,
        state: &dyn AgentState,
        machine: &MachineId,
    ) -> io::Result<()> {
        state.write(StateKey::DesiredState, self.encode(machine)).await
    }

    /// Returns the lineage that a store must continue to change this machine's units; `None` if any
    /// store may, because the machine has no units.
    pub(crate) fn protected_lineage(self) -> Option<Lineage> {
        let has_units = !self.units.is_empty() || !self.fenced.is_empty();
        self.lineage.filter(|_| has_units)
    }

    /// Whether both would be stored as the same content.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let key = |wanted: &DesiredUnit| {
            let unit = &wanted.unit;
            (unit.hash(), unit.desired, unit.generation, wanted.epoch)
        };
        let id = |state: &Self| state.lineage.as_ref().map(ToString::to_string);
        self.fenced == other.fenced
            && id(self) == id(other)
            && self.units.len() == other.units.len()
            && self.units.iter().zip(&other.units).all(|((name, one), (other_name, other))| {
                name == other_name
                    && (Arc::ptr_eq(&one.unit, &other.unit) || key(one) == key(other))
                    && one.epoch == other.epoch
            })
    }

    fn encode(&self, machine: &MachineId) -> Vec<u8> {
        let unit = |(name, wanted): (&UnitName, &DesiredUnit)| {
            let (file, unit) = (&wanted.unit.file, &wanted.unit);
            StoredUnit {
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
        let wire = StoredDesiredState {
            v: FORMAT,
            machine: machine.to_string(),
            lineage: self.lineage.as_ref().map(ToString::to_string),
            units: self.units.iter().map(unit).collect(),
            fenced: self.fenced.iter().map(ToString::to_string).collect(),
        };
        serde_json::to_vec(&wire).expect("texts and numbers can always be written as JSON")
    }

    fn decode(content: &[u8], machine: &MachineId) -> Result<Self, StoredStateError> {
        let Head { v } = serde_json::from_slice(content)?;
        if v != FORMAT {
            return Err(StoredStateError::Format(v));
        }
        let wire: StoredDesiredState = serde_json::from_slice(content)?;
        if wire.machine != machine.as_str() {
            return Err(StoredStateError::Machine(wire.machine));
        }
        let lineage = wire.lineage.map(|id| id.parse()).transpose()?;
        let mut read = Self { lineage, ..Self::default() };
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

impl StoredUnit {
    fn decode(self) -> Result<DesiredUnit, StoredStateError> {
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

fn parsed<T, E: std::fmt::Display>(
    unit: &str,
    result: Result<T, E>,
) -> Result<T, StoredStateError> {
    result.map_err(|error| StoredStateError::Unit {
        unit: unit.to_owned(),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::state::MemoryState;

    fn machine() -> MachineId {
        "m1".parse().unwrap()
    }

    fn assignment() -> DesiredState {
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
        let lineage = Some("first".parse().unwrap());
        DesiredState { lineage, units: units.into(), fenced: fenced.into() }
    }

    #[tokio::test]
    async fn desired_state_round_trips() {
        let (state, stored) = (MemoryState::default(), assignment());
        stored.write(&state, &machine()).await.unwrap();
        let read = DesiredState::read(&state, &machine()).await;
        assert!(read.is_equivalent(&stored), "{read:?}");
        assert_eq!(read.lineage, stored.lineage);
        let unit = &read.units["b.service"].unit;
        assert_eq!(unit.file.source(), assignment().units["b.service"].unit.file.source());
        assert!(is_fenced(&read.units["a.service"].unit) && !is_fenced(unit));
    }

    #[test]
    fn equivalence_compares_units_and_fences() {
        let stored = assignment();
        let changes: [fn(&mut DesiredState); 5] = [
            |it| it.lineage = None,
            |it| drop(it.units.remove("a.service")),
            |it| it.fenced.retain(|unit| *unit != *"gone.service"),
            |it| it.units.get_mut("a.service").unwrap().epoch = Epoch(9),
            |it| {
                let wanted = it.units.get_mut("a.service").unwrap();
                Arc::make_mut(&mut wanted.unit).desired = TargetState::Loaded;
            },
        ];
        assert!(stored.is_equivalent(&assignment()));
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = assignment();
            change(&mut other);
            assert!(!stored.is_equivalent(&other), "change {number}");
        }
    }

    #[tokio::test]
    async fn invalid_stored_state_is_ignored() {
        let good = String::from_utf8(assignment().encode(&machine())).unwrap();
        let invalid = "the saved state contains an invalid unit, a.service: ";
        let cases = [
            (String::new(), "the saved state is damaged"),
            (good[..good.len() / 2].to_owned(), "the saved state is damaged"),
            (good.replace("\"v\":1", "\"v\":2"), "the saved state has format 2"),
            ("{\"v\":0}".to_owned(), "the saved state has format 0"),
            (good.replace("\"m1\"", "\"m2\""), "the saved state belongs to machine m2"),
            (good.replace("launched", "lunched"), invalid),
            (good.replace("=stop", "=halt"), invalid),
            (good.replace("\"first\"", "\"\""), "the saved state is of an invalid lineage"),
        ];
        for (content, problem) in cases {
            let refused = DesiredState::decode(content.as_bytes(), &machine()).unwrap_err();
            assert!(refused.to_string().starts_with(problem), "{refused}: {content}");
            let state = MemoryState::default();
            state.write(StateKey::DesiredState, content.into()).await.unwrap();
            let read = DesiredState::read(&state, &machine()).await;
            assert!(read.is_equivalent(&DesiredState::default()));
        }
    }
}
