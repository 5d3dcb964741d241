//! What a runner is there for, and its record.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use fleet_core::graph::Target;
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

/// The record, which is as people would write it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Written {
    goal: Option<String>,
    beside: BTreeSet<String>,
    mask: BTreeSet<String>,
}

impl Wanted {
    /// Reads what was last written down; `None` when nothing was.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let written: Written = serde_json::from_slice(&text)?;
        let target = |text: String| Target::new(&text).map_err(io::Error::other);
        let all = |texts: BTreeSet<String>| -> io::Result<BTreeSet<Target>> {
            texts.into_iter().map(target).collect()
        };
        Ok(Some(Self {
            goal: written.goal.map(target).transpose()?,
            beside: all(written.beside)?,
            mask: all(written.mask)?,
        }))
    }

    /// Writes it down for the next runner of the directory.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let all = |targets: &BTreeSet<Target>| targets.iter().map(ToString::to_string).collect();
        let written = Written {
            goal: self.goal.as_ref().map(ToString::to_string),
            beside: all(&self.beside),
            mask: all(&self.mask),
        };
        write_whole(path, &serde_json::to_vec(&written)?, false)
    }
}
