//! Checks across options: exclusive pairs, peers and options without effect.

use fleet_unitfile::Span;

use super::FleetOption::{
    self, Conflicts, Global, MachineId, MachineOf, MaxPerMachine, Prefer, Replaces, Reschedule,
    ReserveCpu, ReserveDisk, ReserveMemory, Spread,
};
use super::parse::{SectionReader, Spanned};
use super::{RequirementErrorKind, RequirementWarningKind};
use crate::{Pattern, Peer};

/// Pairs of mutually exclusive options.
///
/// - `MachineID=` fixes the machine, so the unit cannot depend on peers, replace units, or be
///   global.
/// - A global unit runs on every eligible machine, so it has no reservations, limits, preferences
///   or peers, and replaces no unit.
/// - A unit that replaces another must be able to run on the other unit's machine, so it cannot
///   also have conflicts.
///
/// Unlike in fleet v1, `MachineID=` and `Conflicts=` are allowed together. The combination only
/// narrows the choice of machines, and the documentation of fleet v1 does not forbid it.
pub(super) const EXCLUSIVE_PAIRS: [(FleetOption, FleetOption); 13] = [
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

/// Checks the options of a unit against each other.
pub(super) fn check(reader: &mut SectionReader<'_>) {
    check_pairs(reader);
    check_peers(reader);
    check_instance_options(reader);
}

fn check_pairs(reader: &mut SectionReader<'_>) {
    for (a, b) in EXCLUSIVE_PAIRS {
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

/// Warns about options for instances, if the unit is not an instance.
fn check_instance_options(reader: &mut SectionReader<'_>) {
    if reader.name.is_instance() || reader.name.is_template() {
        return;
    }
    for option in FleetOption::ALL.into_iter().filter(|option| option.counts_instances()) {
        if let Some(span) = reader.used(option) {
            reader.reports.warn(span, RequirementWarningKind::NoEffect { option });
        }
    }
}

/// Refuses a peer that the unit also excludes.
fn check_peers(reader: &mut SectionReader<'_>) {
    for (span, kind) in excluded_peers(reader) {
        reader.reports.refuse(span, kind);
    }
}

fn excluded_peers(reader: &SectionReader<'_>) -> Vec<(Span, RequirementErrorKind)> {
    let lists = [(Conflicts, &reader.conflicts), (Replaces, &reader.replaces)];
    let mut found = Vec::new();
    for peer in &reader.machine_of {
        for (option, patterns) in lists {
            let covering = patterns.iter().find(|pattern| excludes(&pattern.value, &peer.value));
            let Some(Spanned { value: pattern, span }) = covering else {
                continue;
            };
            let kind = RequirementErrorKind::PeerExcluded {
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

/// Returns `true` if the pattern excludes the peer. A peer that is itself a pattern counts as
/// excluded only if the two patterns are equal, because other overlaps are not examined.
pub(super) fn excludes(pattern: &Pattern, peer: &Peer) -> bool {
    match peer {
        Peer::Named(name) => pattern.matches(name),
        Peer::Matching(other) => pattern == other,
    }
}
