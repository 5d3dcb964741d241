//! What a runner is there for, and its record.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use fleet_core::graph::{Settings, Target};
use serde::{Deserialize, Serialize};

use crate::whole::write_whole;

/// What a runner is there for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The goal; nothing is needed without one.
    pub goal: Option<Target>,
    /// What is wanted beside it, for the time being.
    pub beside: BTreeSet<Target>,
    /// Targets whose units are not started, whoever needs them.
    pub mask: BTreeSet<Target>,
}

/// What is wanted, and what the settings said then: where both are the same, nobody chose.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) wanted: Wanted,
    pub(super) configured: Wanted,
}

/// The record, which is as people would write it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Written {
    #[serde(flatten)]
    wanted: Words,
    configured: Words,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Words {
    goal: Option<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    beside: BTreeSet<String>,
    mask: BTreeSet<String>,
}

impl Wanted {
    /// What the settings say.
    pub(super) fn of(settings: &Settings) -> Self {
        let (goal, mask) = (settings.goal.clone(), settings.mask.clone());
        Self { goal, beside: BTreeSet::new(), mask }
    }

    /// The settings with this goal and these masks.
    pub(super) fn within(&self, settings: &Settings) -> Settings {
        let (goal, mask) = (self.goal.clone(), self.mask.clone());
        Settings { goal, mask, ..settings.clone() }
    }

    fn words(&self) -> Words {
        let all = |targets: &BTreeSet<Target>| targets.iter().map(ToString::to_string).collect();
        Words {
            goal: self.goal.as_ref().map(ToString::to_string),
            beside: all(&self.beside),
            mask: all(&self.mask),
        }
    }
}

impl TryFrom<Words> for Wanted {
    type Error = io::Error;

    fn try_from(words: Words) -> io::Result<Self> {
        let target = |text: String| Target::new(&text).map_err(io::Error::other);
        let all = |texts: BTreeSet<String>| -> io::Result<BTreeSet<Target>> {
            texts.into_iter().map(target).collect()
        };
        Ok(Self {
            goal: words.goal.map(target).transpose()?,
            beside: all(words.beside)?,
            mask: all(words.mask)?,
        })
    }
}

impl Choice {
    /// That which the settings say.
    pub(super) fn of(settings: &Settings) -> Self {
        Self { wanted: Wanted::of(settings), configured: Wanted::of(settings) }
    }

    /// What it becomes by other settings: what was chosen otherwise than they said holds.
    pub(super) fn under(&self, settings: &Settings) -> Self {
        let (Self { wanted, configured: before }, configured) = (self, Wanted::of(settings));
        let goal = if wanted.goal == before.goal { &configured.goal } else { &wanted.goal };
        let mask = if wanted.mask == before.mask { &configured.mask } else { &wanted.mask };
        let (goal, beside, mask) = (goal.clone(), wanted.beside.clone(), mask.clone());
        Self { wanted: Wanted { goal, beside, mask }, configured }
    }

    /// Reads what was last written down; `None` when nothing was.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let written: Written = serde_json::from_slice(&text)?;
        let (wanted, configured) = (written.wanted.try_into()?, written.configured.try_into()?);
        Ok(Some(Self { wanted, configured }))
    }

    /// Writes it down for the next runner of the directory.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let written = Written { wanted: self.wanted.words(), configured: self.configured.words() };
        write_whole(path, &serde_json::to_vec(&written)?, false)
    }
}
