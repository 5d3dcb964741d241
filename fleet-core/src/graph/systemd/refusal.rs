//! What keeps a unit from being run, and what a person should know of one that is.

use std::fmt;

use fleet_unitfile::{Location, UnitName};

/// Where an option stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OptionPosition {
    /// The line, from one.
    pub line: usize,
    /// The column in it, from one.
    pub column: usize,
    /// The option with its section, such as `Service.Type`.
    pub option: String,
}

/// One reason not to run a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRefusal {
    /// Where it is; nothing if it is about the whole file.
    pub position: Option<OptionPosition>,
    /// What kind of reason.
    pub cause: RefusalCause,
    /// What is wrong, and what would do instead.
    pub problem: String,
}

/// Why a unit is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// It asks for something that cannot be done.
    Setting,
    /// It cannot be without a unit that there is not.
    NotFound,
}

/// All reasons not to run a unit, as far as they were found at once; a hundred at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRefusals {
    /// The unit.
    pub unit: UnitName,
    /// At least one, in the order of their lines; those about the whole file come last.
    pub all: Vec<UnitRefusal>,
}

/// Something that a person should know of a unit which is run all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Which option it is about.
    pub position: OptionPosition,
    /// What to know, as what follows the option in a sentence.
    pub text: String,
}

impl OptionPosition {
    pub(super) fn new(location: Location, section: &str, name: &str) -> Self {
        let Location { line, column, .. } = location;
        Self { line, column, option: format!("{section}.{name}") }
    }

    /// Whether it is that of an option.
    pub(super) fn is_of(&self, section: &str, name: &str) -> bool {
        self.option.split_once('.') == Some((section, name))
    }

    /// The name of the option, without its section.
    #[must_use]
    pub fn name(&self) -> &str {
        self.option.split_once('.').map_or(&self.option, |(_, name)| name)
    }
}

impl fmt::Display for OptionPosition {
    /// `3:1: Service.Type`.
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
    /// A line for each, which begins with the name of the unit.
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
