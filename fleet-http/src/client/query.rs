//! Queries of lists: filters and query strings.

use std::fmt;
use std::fmt::Write as _;

use fleet_core::{ActiveState, TargetState};
use fleet_unitfile::UnitName;

use crate::setters::setters;

/// Filter for units. A unit must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitFilter {
    /// Only units placed on this machine.
    pub machine: Option<String>,
    /// Only units with this desired state.
    pub desired: Option<TargetState>,
    /// Only units with this current state.
    pub current: Option<TargetState>,
    /// Only instances of this template.
    pub template: Option<UnitName>,
    /// Only units placed on machines that have all of this metadata. Each item is `KEY=VALUE`, or
    /// `KEY` for any value.
    pub metadata: Vec<String>,
}

impl UnitFilter {
    setters! {
        optional:
            with_desired = desired: TargetState,
            with_current = current: TargetState,
            with_template = template: UnitName;
        text:
            with_machine = machine;
        plain:
            with_metadata = metadata: Vec<String>;
    }
}

impl UnitFilter {
    pub(super) fn query(&self) -> Query {
        let text = |state: Option<TargetState>| state.map(|state| state.to_string());
        Query::new()
            .with("currentState", text(self.current).as_deref())
            .with("desiredState", text(self.desired).as_deref())
            .with("machineID", self.machine.as_deref())
            .with("template", self.template.as_ref().map(UnitName::as_str))
            .with_all("metadata", &self.metadata)
    }
}

/// Filter for unit states. A state must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateFilter {
    /// Only states reported by this machine.
    pub machine: Option<String>,
    /// Only states of this unit.
    pub unit: Option<String>,
    /// Only states of instances of this template.
    pub template: Option<UnitName>,
    /// Only states of units in this state.
    pub active: Option<ActiveState>,
    /// Only states reported by machines that have all of this metadata. Each item is `KEY=VALUE`,
    /// or `KEY` for any value.
    pub metadata: Vec<String>,
}

impl StateFilter {
    setters! {
        optional:
            with_template = template: UnitName,
            with_active = active: ActiveState;
        text:
            with_machine = machine,
            with_unit = unit;
        plain:
            with_metadata = metadata: Vec<String>;
    }
}

impl StateFilter {
    pub(super) fn query(&self) -> Query {
        let active = self.active.map(|active| active.to_string());
        Query::new()
            .with("machineID", self.machine.as_deref())
            .with("systemdActiveState", active.as_deref())
            .with("template", self.template.as_ref().map(UnitName::as_str))
            .with("unitName", self.unit.as_deref())
            .with_all("metadata", &self.metadata)
    }
}

/// The query string of a request. `Display` writes it with a leading `?`, or writes nothing if
/// there are no parameters.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter, if it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.extend([name, "=", &escape(value)]);
        }
        self
    }

    /// Adds a parameter once for each value.
    pub(super) fn with_all(self, name: &str, values: &[String]) -> Self {
        values.iter().fold(self, |query, value| query.with(name, Some(value)))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Percent-encodes all bytes with a special meaning in URLs.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'@' | b':' => {
                escaped.push(char::from(byte));
            }
            _ => write!(escaped, "%{byte:02X}").expect("a string takes all that is written"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_escaped() {
        let query = Query::new().with("a", Some("b c&d=e")).with("f", None).with("g", Some("é%/"));
        assert_eq!(query.to_string(), "?a=b%20c%26d%3De&g=%C3%A9%25%2F");
        assert_eq!(Query::new().to_string(), "");
        assert_eq!(escape(r"a\x2d@1:2_3.service"), "a%5Cx2d@1:2_3.service");
    }
}
