//! Support for each systemd option.
//!
//! An option is *ignored* if dropping it does not change the unit's permissions, runtime or
//! dependencies. Examples are texts for people and options that tune systemd itself. Every other
//! option that is not honoured is refused, because a unit that asks for confinement must not run
//! unconfined.

use fleet_unitfile::parse_bool;

use super::option_tables::{INSTALL, TIMER, UNIT};
use super::service_options::SERVICE;

/// The handling of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Honoured, or refused if its value cannot be honoured.
    Honoured,
    /// Ignored silently: it informs people only.
    Informational,
    /// Ignored with a remark, for this reason.
    Ignored(&'static str),
    /// Refused unless the value is one of the first texts, which are neutral: dropping the option
    /// then changes nothing. The second text is the reason for the refusal and includes a remedy.
    /// The neutral value `no` stands for every spelling of false.
    RefusedUnless(&'static [&'static str], &'static str),
    /// Refused for this reason, which includes a remedy.
    Refused(&'static str),
}

/// Options that share one kind of support.
pub(super) type Group = (Support, &'static [&'static str]);

impl Support {
    /// Returns whether the value is neutral, so that the option can be ignored.
    pub(super) fn is_neutral(self, value: &str) -> bool {
        let Self::RefusedUnless(neutral, _) = self else { return false };
        let is_no = neutral.contains(&"no") && parse_bool(value) == Some(false);
        is_no || neutral.contains(&value)
    }
}

/// Returns the handling of an option. Returns `None` if systemd has no such option in the section,
/// or if no supported unit type has the section.
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
    fn tables_list_every_systemd_option_once() {
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
