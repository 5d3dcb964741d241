//! Wire format of unit states.

use std::str::FromStr;

use fleet_core::unit_state::ExitStatus;
use fleet_core::{Epoch, Generation, KnownUnit, SystemdState};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use crate::ManagedUnit;

/// A unit as its service manager knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnitWire {
    unit: String,
    hash: String,
    asked: String,
    epoch: u64,
    generation: u64,
    load: String,
    active: String,
    sub: String,
    result: Option<String>,
    main_pid: Option<u32>,
    exit: Option<ExitWire>,
    restarts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ExitWire {
    Code(i32),
    Signal(i32),
    Unknown,
}

impl From<ManagedUnit> for UnitWire {
    fn from(managed: ManagedUnit) -> Self {
        let ManagedUnit { unit, known, state } = managed;
        let KnownUnit { hash, requested: asked, epoch, generation } = known;
        let SystemdState { load, active, sub, result, main_pid, exit, restarts } = state;
        let exit = exit.map(|exit| match exit {
            ExitStatus::Code(code) => ExitWire::Code(code),
            ExitStatus::Signal(signal) => ExitWire::Signal(signal),
            ExitStatus::Unknown => ExitWire::Unknown,
        });
        Self {
            unit: unit.to_string(),
            hash: hash.to_string(),
            asked: asked.as_str().to_owned(),
            epoch: epoch.0,
            generation: generation.0,
            load: load.as_str().to_owned(),
            active: active.as_str().to_owned(),
            sub,
            result,
            main_pid,
            exit,
            restarts,
        }
    }
}

impl UnitWire {
    /// Converts it back; the error is the value that is not understood.
    pub(crate) fn read(self) -> Result<ManagedUnit, String> {
        let exit = self.exit.map(|exit| match exit {
            ExitWire::Code(code) => ExitStatus::Code(code),
            ExitWire::Signal(signal) => ExitStatus::Signal(signal),
            ExitWire::Unknown => ExitStatus::Unknown,
        });
        Ok(ManagedUnit {
            unit: UnitName::parse(&self.unit).map_err(|_| self.unit)?,
            known: KnownUnit {
                hash: parse(self.hash)?,
                requested: parse(self.asked)?,
                epoch: Epoch(self.epoch),
                generation: Generation(self.generation),
            },
            state: SystemdState {
                load: parse(self.load)?,
                active: parse(self.active)?,
                sub: self.sub,
                result: self.result,
                main_pid: self.main_pid,
                exit,
                restarts: self.restarts,
            },
        })
    }
}

fn parse<T: FromStr>(text: String) -> Result<T, String> {
    text.parse().map_err(|_| text)
}

#[cfg(test)]
mod tests {
    use fleet_core::unit_state::LoadState;
    use fleet_core::{ActiveState, TargetState};
    use fleet_unitfile::UnitFile;

    use super::*;

    fn unit(state: SystemdState, asked: TargetState) -> ManagedUnit {
        let hash = UnitFile::parse("[Service]\n").unwrap().hash();
        let known =
            KnownUnit { hash, requested: asked, epoch: Epoch(7), generation: Generation(3) };
        ManagedUnit { unit: "a@\\x2d.service".parse().unwrap(), known, state }
    }

    #[test]
    fn unit_states_round_trip() {
        let exits = [ExitStatus::Code(3), ExitStatus::Signal(9), ExitStatus::Unknown];
        let exits: Vec<_> = exits.into_iter().map(Some).chain([None]).collect();
        for (index, &active) in ActiveState::ALL.iter().enumerate() {
            for &load in LoadState::ALL {
                let exit = exits[index % exits.len()];
                let state = SystemdState {
                    result: exit.map(|_| "exit-code".to_owned()),
                    main_pid: exit.is_none().then_some(42),
                    exit,
                    restarts: 5,
                    ..SystemdState::new(load, active, "running")
                };
                let asked = TargetState::ALL[index % TargetState::ALL.len()];
                let sent = unit(state, asked);
                let text = serde_json::to_string(&UnitWire::from(sent.clone())).unwrap();
                let read: UnitWire = serde_json::from_str(&text).unwrap();
                assert_eq!(read.read(), Ok(sent));
            }
        }
    }

    #[test]
    fn unknown_state_word_is_an_error() {
        let known = UnitWire::from(unit(SystemdState::loaded(), TargetState::Loaded));
        let newer = UnitWire { active: "dreaming".to_owned(), ..known };
        assert_eq!(newer.read(), Err("dreaming".to_owned()));
    }
}
