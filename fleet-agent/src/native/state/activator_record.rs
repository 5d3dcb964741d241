//! Stored state of activators.

use fleet_core::graph::systemd::{ActivatorFailure, ActivatorPhase};
use serde::{Deserialize, Serialize};

/// Stored state of a socket or path, part of its run record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActivatorRecord {
    phase: StoredPhase,
    /// ID of the start of the unit that is in progress.
    pub(crate) starting: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredPhase {
    #[default]
    Dead,
    Waiting,
    Running,
    Failed,
    TriggerLimit,
    StartLimit,
}

impl ActivatorRecord {
    pub(crate) fn new(phase: ActivatorPhase, starting: Option<u64>) -> Self {
        let phase = match phase {
            ActivatorPhase::Dead => StoredPhase::Dead,
            ActivatorPhase::Waiting => StoredPhase::Waiting,
            ActivatorPhase::Running => StoredPhase::Running,
            ActivatorPhase::Failed(ActivatorFailure::Resources) => StoredPhase::Failed,
            ActivatorPhase::Failed(ActivatorFailure::TriggerLimit) => StoredPhase::TriggerLimit,
            ActivatorPhase::Failed(ActivatorFailure::StartLimit) => StoredPhase::StartLimit,
        };
        Self { phase, starting }
    }

    pub(crate) fn phase(self) -> ActivatorPhase {
        match self.phase {
            StoredPhase::Dead => ActivatorPhase::Dead,
            StoredPhase::Waiting => ActivatorPhase::Waiting,
            StoredPhase::Running => ActivatorPhase::Running,
            StoredPhase::Failed => ActivatorPhase::Failed(ActivatorFailure::Resources),
            StoredPhase::TriggerLimit => ActivatorPhase::Failed(ActivatorFailure::TriggerLimit),
            StoredPhase::StartLimit => ActivatorPhase::Failed(ActivatorFailure::StartLimit),
        }
    }
}
