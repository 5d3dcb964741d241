//! Which options cannot be used together.

use fleet_unitfile::Span;

use super::FleetOption::{
    self, Conflicts, Global, MachineId, MachineOf, MaxPerMachine, Prefer, Replaces, Reschedule,
    ReserveCpu, ReserveDisk, ReserveMemory, Spread,
};
use super::parse::{Placed, Reader};
use super::{RequirementErrorKind, RequirementWarningKind};
use crate::{Pattern, Peer};

/// Pairs of options of which a unit may have only one.
///
/// A unit that names its machine has no say in its neighbours and replaces nobody; a global unit is
/// on every machine that fits, whether there is room or a better one; a unit that replaces another
/// is meant to be where the other was.
/// `MachineID` with `Conflicts` is allowed, unlike in the old program: together they only leave
/// fewer machines to choose from, and the documents do not forbid it.
const NOT_TOGETHER: [(FleetOption, FleetOption); 13] = [
    (MachineId, MachineOf),
    (MachineId, Global),
    (MachineId, Replaces),
    (MachineOf, Global),
    (Global, Replaces),
    (Conflicts, Replaces),
    (Global, ReserveCpu),
    (Global, ReserveMemory),
    (Global, ReserveDisk),
    (Global, MaxPerMachine),
    (Global, Prefer),
    (Global, Spread),
    (Global, Reschedule),
];

/// Tests the options of a unit against each other.
pub(super) fn check(reader: &mut Reader<'_>) {
    check_pairs(reader);
    check_peers(reader);
    check_effects(reader);
}

fn check_pairs(reader: &mut Reader<'_>) {
    for (a, b) in NOT_TOGETHER {
        let (Some(at_a), Some(at_b)) = (reader.used(a), reader.used(b)) else {
            continue;
        };
        let mut in_order = [(at_a, a), (at_b, b)];
        in_order.sort_unstable();
        let [(span, one), (other_span, other)] = in_order;
        let line = reader.reports.line(other_span);
        reader.reports.refuse(span, RequirementErrorKind::MutuallyExclusive { one, other, line });
    }
}

/// A unit that is no instance shares no template with anybody.
fn check_effects(reader: &mut Reader<'_>) {
    if reader.name.is_instance() || reader.name.is_template() {
        return;
    }
    for option in FleetOption::ALL.into_iter().filter(|option| option.counts_instances()) {
        if let Some(span) = reader.used(option) {
            reader.reports.warn(span, RequirementWarningKind::NoEffect { option });
        }
    }
}

/// No unit may be wanted beside this one and kept away at once.
fn check_peers(reader: &mut Reader<'_>) {
    for (span, kind) in peers_kept_away(reader) {
        reader.reports.refuse(span, kind);
    }
}

fn peers_kept_away(reader: &Reader<'_>) -> Vec<(Span, RequirementErrorKind)> {
    let lists = [(Conflicts, &reader.conflicts), (Replaces, &reader.replaces)];
    let mut found = Vec::new();
    for peer in &reader.machine_of {
        for (option, patterns) in lists {
            let covering = patterns.iter().find(|pattern| keeps_away(&pattern.value, &peer.value));
            let Some(Placed { value: pattern, span }) = covering else {
                continue;
            };
            let kind = RequirementErrorKind::PeerKeptAway {
                peer: peer.value.clone(),
                option,
                pattern: pattern.clone(),
                line: reader.reports.line(*span),
            };
            found.push((peer.span, kind));
        }
    }
    found
}

/// Whether the pattern covers the unit, or all that another pattern covers as far as one can see.
fn keeps_away(pattern: &Pattern, peer: &Peer) -> bool {
    match peer {
        Peer::Named(name) => pattern.matches(name),
        Peer::Matching(other) => pattern == other,
    }
}
