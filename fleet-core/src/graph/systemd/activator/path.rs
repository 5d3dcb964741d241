//! Settings of a `.path` file.

use std::time::Duration;

use fleet_unitfile::{UnitName, UnitType};

use super::super::draft::UnitProblems;
use super::super::value::{ValueContext, flag};
use super::{Activator, ActivatorSource, LimitDraft, mode, refused, started_unit, take_unit};
use crate::graph::model::UnitCondition;

/// Settings of a `.path` unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// At least one trigger, in the order of the file.
    pub triggers: Vec<PathTrigger>,
    /// Whether missing directories are created before they are watched (`MakeDirectory=`).
    pub make_directory: bool,
    /// Permissions of created directories (`DirectoryMode=`).
    pub directory_mode: u32,
}

/// A path, and when it starts the unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTrigger {
    /// When the path starts the unit.
    pub kind: PathTriggerKind,
    /// An absolute path, or a pattern for [`PathTriggerKind::ExistsGlob`].
    pub path: String,
}

/// When a path starts the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathTriggerKind {
    /// The path exists (`PathExists=`).
    Exists,
    /// A path matches the pattern (`PathExistsGlob=`).
    ExistsGlob,
    /// The file was closed after a write, or the path appeared or disappeared (`PathChanged=`).
    Changed,
    /// Like [`Changed`](Self::Changed), and also each write (`PathModified=`).
    Modified,
    /// The directory has an entry (`DirectoryNotEmpty=`).
    DirectoryNotEmpty,
}

/// systemd's default burst of paths, per two seconds.
const DEFAULT_BURST: u32 = 200;

/// Settings collected so far.
#[derive(Debug, Default)]
pub(in crate::graph::systemd) struct PathDraft {
    unit: Option<UnitName>,
    triggers: Vec<PathTrigger>,
    make_directory: bool,
    directory_mode: Option<u32>,
    limit: LimitDraft,
}

impl PathDraft {
    /// Applies an honoured option of `[Path]`.
    pub(in crate::graph::systemd) fn take(
        &mut self,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        let kind = match name {
            "DirectoryMode" => {
                self.directory_mode = Some(mode(value)?);
                return Ok(());
            }
            "MakeDirectory" => {
                self.make_directory = flag(value)?;
                return Ok(());
            }
            "Unit" => {
                let types = [UnitType::Service, UnitType::Target];
                return take_unit(&mut self.unit, value, &types, unit);
            }
            "DirectoryNotEmpty" => PathTriggerKind::DirectoryNotEmpty,
            "PathChanged" => PathTriggerKind::Changed,
            "PathExists" => PathTriggerKind::Exists,
            "PathExistsGlob" => PathTriggerKind::ExistsGlob,
            "PathModified" => PathTriggerKind::Modified,
            _ => return self.limit.take(name, value),
        };
        if value.is_empty() {
            // An empty value of any trigger option resets all of them.
            self.triggers.clear();
        } else {
            self.triggers.push(PathTrigger { kind, path: unit.path(value)? });
        }
        Ok(())
    }

    /// Returns the problems of the unit as a whole.
    pub(in crate::graph::systemd) fn problems(&self) -> UnitProblems {
        match self.triggers.is_empty() {
            true => refused("it watches no path: write PathExists=, PathChanged= or the like"),
            false => UnitProblems::default(),
        }
    }

    /// Builds the path, with systemd's defaults for missing settings.
    pub(in crate::graph::systemd) fn activator(
        &self,
        conditions: Vec<UnitCondition>,
        unit: &ValueContext<'_>,
    ) -> Result<Activator, String> {
        Ok(Activator {
            unit: started_unit(self.unit.as_ref(), unit)?,
            limit: self.limit.limit(DEFAULT_BURST),
            conditions,
            source: ActivatorSource::Path(Path {
                triggers: self.triggers.clone(),
                make_directory: self.make_directory,
                directory_mode: self.directory_mode.unwrap_or(0o755),
            }),
        })
    }
}

impl Path {
    /// Returns a definition without triggers, which never starts the unit `unit`.
    #[must_use]
    pub fn without_triggers(unit: UnitName) -> Activator {
        Activator {
            unit,
            limit: super::TriggerLimit { interval: Duration::ZERO, burst: 0 },
            conditions: Vec::new(),
            source: ActivatorSource::Path(Self {
                triggers: Vec::new(),
                make_directory: false,
                directory_mode: 0o755,
            }),
        }
    }
}
