//! Pure: how machines and hashes are written for people.

use std::collections::BTreeMap;

use fleet_http::wire;

use super::table::NOTHING;

/// How much of an ID tables show.
const SHORT_ID: usize = 8;

/// How much of a hash tables show.
const SHORT_HASH: usize = 7;

/// The addresses of the machines that are present, by ID.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machines(BTreeMap<String, String>);

impl Machines {
    /// Of these machines.
    pub(crate) fn new(machines: &[wire::Machine]) -> Self {
        Self(machines.iter().map(|it| (it.id.clone(), it.primary_ip.clone())).collect())
    }

    /// A machine's address; empty where none is known.
    pub(crate) fn address(&self, id: &str) -> &str {
        self.0.get(id).map_or("", String::as_str)
    }

    /// A machine as tables show it: its ID, short or in full, and its address.
    pub(crate) fn legend(&self, id: &str, full: bool) -> String {
        legend(id, self.address(id), full)
    }
}

/// A machine as tables show it; a dash where there is none.
pub(crate) fn legend(id: &str, address: &str, full: bool) -> String {
    if id.is_empty() {
        return NOTHING.to_owned();
    }
    let shown = if full { id.to_owned() } else { short_machine(id) };
    if address.is_empty() { shown } else { format!("{shown}/{address}") }
}

/// For how long nothing has been known of a unit.
pub(crate) fn unknown_for(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match (hours, minutes) {
        (0, 0) => format!("for {seconds}s"),
        (0, _) => format!("for {minutes}min"),
        _ => format!("for {hours}h"),
    }
}

/// The start of a machine's ID, with dots for the rest if there is one.
pub(crate) fn short_machine(id: &str) -> String {
    let shown = start(id, SHORT_ID);
    if shown.len() < id.len() { format!("{shown}...") } else { id.to_owned() }
}

/// The start of a hash.
pub(crate) fn short_hash(hash: &str) -> String {
    start(hash, SHORT_HASH).to_owned()
}

fn start(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_shown_with_their_address_if_they_have_one() {
        let machine = |id: &str, ip: &str| wire::Machine {
            id: id.into(),
            primary_ip: ip.into(),
            ..wire::Machine::default()
        };
        let machines = Machines::new(&[machine("282f949fc0de", "10.0.0.1"), machine("m2", "")]);
        for (id, full, expected) in [
            ("282f949fc0de", false, "282f949f.../10.0.0.1"),
            ("282f949fc0de", true, "282f949fc0de/10.0.0.1"),
            ("m2", false, "m2"),
            ("away", true, "away"),
            ("", false, "-"),
        ] {
            assert_eq!(machines.legend(id, full), expected);
        }
        let spans = [0, 59, 60, 3599, 3600, 200_000].map(unknown_for);
        assert_eq!(spans, ["for 0s", "for 59s", "for 1min", "for 59min", "for 1h", "for 55h"]);
        assert_eq!((short_hash("0123456789"), short_hash("ab")), ("0123456".into(), "ab".into()));
    }
}
