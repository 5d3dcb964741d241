//! Units and machines of simulated clusters.

use std::time::Duration;

use fleet_unitfile::{UnitFile, UnitName};

use crate::rng::Rng;

/// All unit names of a campaign, with their usual requirements.
const UNITS: [(&str, &str); 15] = [
    ("a.service", ""),
    ("b.service", "Conflicts=c.service"),
    ("c.service", ""),
    ("d@1.service", "Conflicts=d@*.service"),
    ("d@2.service", "Conflicts=d@*.service"),
    ("e.service", "MachineMetadata=region=north"),
    ("f.service", "MachineMetadata=region=nowhere"),
    ("g.service", "MachineOf=a.service"),
    ("h.service", "Global=true"),
    ("i.service", "Global=true\nMachineMetadata=region=south"),
    ("j.timer", "MachineID=m1"),
    ("k.service", "Replaces=a.service"),
    ("l.socket", ""),
    ("s.service", "OnPartition=stop"),
    ("t.service", "OnPartition=stop\nConflicts=s.service"),
];

/// Units that never run twice. Their requirements do not change.
pub(crate) const STOPPED: [&str; 2] = ["s.service", "t.service"];

/// Stop limit of these units.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(8);

/// Parses a unit name.
pub(crate) fn name(text: &str) -> UnitName {
    text.parse().expect("the name is well formed")
}

/// Returns all unit names of a campaign.
pub(crate) fn all() -> Vec<UnitName> {
    UNITS.iter().map(|(unit, _)| name(unit)).collect()
}

/// Creates a unit file with this requirement; variants differ in content.
pub(crate) fn file(requirement: &str, variant: usize) -> UnitFile {
    let limit = STOP_LIMIT.as_secs();
    let text = format!(
        "[Service]\nTimeoutStopSec={limit}\nExecStart=/bin/run {variant}\n\
         [X-Fleet]\n{requirement}\n"
    );
    UnitFile::parse(text).expect("the file is well formed")
}

/// Returns a requirement for this unit: usually its own, else that of another unit.
pub(crate) fn requirement(unit: &UnitName, rng: &mut Rng) -> &'static str {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str()).map(|(_, own)| *own);
    let (_, any) = rng.pick(&UNITS);
    // The protected units are recognised by name.
    let stops = any.contains("OnPartition") || STOPPED.contains(&unit.as_str());
    let stays = stops || any.ends_with(&format!("={unit}"));
    let own = own.filter(|_| stays || rng.below(4) > 0);
    own.unwrap_or(any)
}

/// Returns the usual requirement of this unit.
pub(crate) fn own_requirement(unit: &UnitName) -> &'static str {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str());
    own.expect("it is one of the units").1
}
