//! What is asked of a fleet-init that runs the units of files, and what is answered, as it is sent.

use fleet_core::graph::text::{InitFile, FileRole};
use serde::{Deserialize, Serialize};

use crate::fleetctl::output::Record;

/// What tells an ask of such a fleet-init from others on the same socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OfInit {
    pub(super) init: Ask,
}

/// One ask.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    /// Answered with a [`Head`], then with lists of [`Unit`]s.
    Status,
    /// Answered with [`Goals`]; of an earlier version, with nothing.
    SetTarget { goal: String, beside: Vec<String> },
    /// Answered in the same way.
    Reload,
    /// What would follow if these files were run instead, for that goal: without a goal and with
    /// its own, if these were read again. Answered with [`Goals`], then with lists of [`Planned`].
    Plan { files: Given, goal: Option<String>, beside: Vec<String> },
    /// Has a unit read its own configuration again. Answered with nothing.
    ReloadUnit { unit: String },
    /// Has a unit started anew. Answered with whether it was starting or up.
    Restart { unit: String },
    /// Answered with whether there was something to forget.
    ResetFailed { unit: String },
    /// Answered with lists of lines.
    Logs {
        unit: String,
        lines: Option<usize>,
        /// In milliseconds since 1970; nothing, as of an earlier version, is all that is kept.
        since: Option<u64>,
        follow: bool,
    },
}

/// The files that a plan is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Given {
    /// Those of the one that is asked.
    Own,
    /// These: what the asker can read need not be what the asked can.
    These(Vec<Source>),
}

/// A file, with what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    pub(super) name: String,
    /// Whether it has the central settings.
    pub(super) is_central: bool,
    pub(super) text: String,
}

/// Why an ask is not carried out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Refusal {
    /// This fleet-init runs the units of fleetd, and has no goal.
    RunsForFleet,
    /// For this reason, with what could help.
    Because { problem: String, help: Vec<String> },
}

/// What a fleet-init is there for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) goal: Option<String>,
    pub(super) beside: Vec<String>,
    /// Why processes are found in a weaker way than they could be.
    pub(super) weak: Option<String>,
    /// Whether it is fleetd that says what is wanted, so that there is no goal.
    #[serde(default)]
    pub(super) fleet: bool,
}

/// A unit, also as JSON for people's programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unit {
    pub(super) unit: String,
    pub(super) description: String,
    pub(super) provides: Vec<String>,
    /// One word: `running`, `waiting`, `failed`…
    pub(super) state: String,
    /// Why it is so, and what follows.
    pub(super) reason: Option<String>,
    pub(super) needed: bool,
    pub(super) degraded_by: Vec<String>,
    /// Targets that are up only because another of its targets is needed.
    pub(super) coincidental: Vec<String>,
    #[serde(rename = "mainPID")]
    pub(super) main_pid: Option<u32>,
    /// For how long it has been so; nothing if nothing was seen of it yet.
    pub(super) milliseconds: Option<u64>,
    /// After how long it is tried again.
    pub(super) retry_in_milliseconds: Option<u64>,
    /// How often in a row it has ended by itself.
    pub(super) attempts: u32,
    /// What it says of itself.
    pub(super) status: Option<String>,
    pub(super) depends: Vec<Edge>,
}

/// A dependency of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edge {
    pub(super) kind: String,
    pub(super) unit: String,
}

/// What is wanted, or planned for; also as JSON for people's programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Goals {
    pub(super) goal: Option<String>,
    pub(super) beside: Vec<String>,
}

/// What would be done to a unit, also as JSON for people's programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Planned {
    pub(super) unit: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// One word: `start`, `stop`, `restart`, `stay`, or `wait` of one that is needed and down.
    pub(super) action: String,
    /// The wave in which it is stopped.
    pub(super) stop_wave: Option<usize>,
    /// The wave in which it is started.
    pub(super) wave: Option<usize>,
    pub(super) why: String,
    /// The keys of its stanza that are not as in what runs.
    pub(super) changed: Vec<String>,
    /// What it comes after.
    pub(super) after: Vec<Edge>,
    pub(super) needed_by: Vec<Edge>,
    /// What it would have to do without.
    pub(super) degraded_by: Vec<String>,
}

impl Source {
    pub(super) fn of(file: &InitFile) -> Self {
        Self {
            name: file.name.clone(),
            is_central: file.role == FileRole::Central,
            text: String::from_utf8_lossy(&file.source).into_owned(),
        }
    }

    pub(super) fn into_file(self) -> InitFile {
        let role = if self.is_central { FileRole::Central } else { FileRole::Units };
        InitFile { name: self.name, role, source: self.text.into_bytes() }
    }
}

impl Record for Goals {
    fn name(&self) -> &str {
        self.goal.as_deref().unwrap_or_default()
    }
}

impl Record for Planned {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Record for Unit {
    fn name(&self) -> &str {
        &self.unit
    }
}
