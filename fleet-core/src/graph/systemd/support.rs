//! What becomes of each option of systemd.
//!
//! An option is *inert* when leaving it out changes neither what the unit may do nor how long it
//! runs nor what it waits for: words for people, and tuning of systemd's own work. Everything else
//! that is not honoured is refused: a unit that asks to be confined must not run unconfined.

use fleet_unitfile::parse_bool;

use super::option_tables::{INSTALL, TIMER, UNIT};
use super::service_options::SERVICE;

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It is done as it says, or refused if its value cannot be.
    Honoured,
    /// It speaks to people, and means nothing to any service manager.
    Informational,
    /// Leaving it out changes nothing that matters, for this reason.
    Ignored(&'static str),
    /// It is refused for this reason, which says what to write instead, unless it has one of these
    /// values, which ask for nothing. `no` stands for each way of saying so.
    RefusedUnless(&'static [&'static str], &'static str),
    /// It is refused for this reason, which says what to write instead.
    Refused(&'static str),
}

/// Options, with what becomes of all of them.
pub(super) type Group = (Support, &'static [&'static str]);

impl Support {
    /// Whether a value asks for nothing, so that the option can be passed over.
    pub(super) fn is_neutral(self, value: &str) -> bool {
        let Self::RefusedUnless(neutral, _) = self else { return false };
        let is_no = neutral.contains(&"no") && parse_bool(value) == Some(false);
        is_no || neutral.contains(&value)
    }
}

/// What becomes of an option of systemd; nothing if systemd has none of that name in that section,
/// or if the section belongs to no type of unit that is run here.
///
/// ```
/// use fleet_core::graph::systemd::{Support, support};
///
/// assert_eq!(support("Service", "ExecStart"), Some(Support::Honoured));
/// assert!(matches!(support("Service", "ProtectHome"), Some(Support::RefusedUnless(..))));
/// assert_eq!(support("Service", "ExecStrat"), None);
/// ```
#[must_use]
pub fn support(section: &str, name: &str) -> Option<Support> {
    let find = |(support, names): &Group| names.contains(&name).then_some(*support);
    groups(section).iter().find_map(find)
}

pub(super) fn groups(section: &str) -> &'static [Group] {
    match section {
        "Install" => INSTALL,
        "Service" => SERVICE,
        "Timer" => TIMER,
        "Unit" => UNIT,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fleet_unitfile::directives;

    use super::*;

    #[test]
    fn the_tables_hold_each_option_of_systemd_once_and_no_other() {
        for section in ["Install", "Service", "Timer", "Unit"] {
            let listed: Vec<&str> =
                groups(section).iter().flat_map(|(_, names)| names.iter().copied()).collect();
            let once: BTreeSet<&str> = listed.iter().copied().collect();
            assert_eq!(listed.len(), once.len(), "{section} holds an option twice");
            let known = directives().filter(|it| it.section == section).map(|it| it.name);
            assert_eq!(once, known.collect(), "{section}");
        }
    }
}
