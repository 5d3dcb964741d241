//! Refusals of units, and remarks on accepted units.

use std::fmt;

use fleet_unitfile::{Location, UnitName};

/// Position of an option in a unit file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OptionPosition {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The option with its section, such as `Service.Type`.
    pub option: String,
}

/// One reason to refuse a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRefusal {
    /// Position of the option. `None` if the refusal concerns the whole file.
    pub position: Option<OptionPosition>,
    /// Kind of the reason.
    pub cause: RefusalCause,
    /// Problem and remedy.
    pub problem: String,
}

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// The unit has a setting that cannot be honoured.
    Setting,
    /// The unit requires a unit that does not exist.
    NotFound,
}

/// All reasons to refuse a unit that were found, at most a hundred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRefusals {
    /// The unit.
    pub unit: UnitName,
    /// At least one refusal, ordered by line. Refusals that concern the whole file come last.
    pub all: Vec<UnitRefusal>,
}

/// A remark on a unit that is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remark {
    /// The option concerned.
    pub position: OptionPosition,
    /// Text of the remark. It continues a sentence that begins with the option, such as
    /// `Service.Type is treated as simple`.
    pub text: String,
}

impl OptionPosition {
    pub(super) fn new(location: Location, section: &str, name: &str) -> Self {
        let Location { line, column, .. } = location;
        Self { line, column, option: format!("{section}.{name}") }
    }

    /// Returns whether this is the position of that option.
    pub(super) fn is_of(&self, section: &str, name: &str) -> bool {
        self.option.split_once('.') == Some((section, name))
    }

    /// Returns the option's name without its section.
    #[must_use]
    pub fn name(&self) -> &str {
        self.option.split_once('.').map_or(&self.option, |(_, name)| name)
    }
}

impl fmt::Display for OptionPosition {
    /// Formats the position as `3:1: Service.Type`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.option)
    }
}

impl fmt::Display for UnitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Some(position) => write!(f, "{position} {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.position, self.text)
    }
}

impl fmt::Display for UnitRefusals {
    /// Formats one refusal per line, each with the name of the unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.all.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            let mark = if refusal.position.is_some() { ":" } else { ": " };
            write!(f, "{end}{}{mark}{refusal}", self.unit)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnitRefusals {}
