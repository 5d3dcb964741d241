//! The units and machines that simulated clusters consist of.

use std::time::Duration;

use fleet_unitfile::{UnitFile, UnitName};

use crate::rng::Rng;

/// All names that a unit of a campaign can have, and the requirements that it has most often.
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

/// The units that never run twice. Their requirements stay what they are.
pub(crate) const STOPPED: [&str; 2] = ["s.service", "t.service"];

/// How long the stop of such a unit can take.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(8);

/// A well-formed name.
pub(crate) fn name(text: &str) -> UnitName {
    text.parse().expect("the name is well formed")
}

/// All names that a unit of a campaign can have.
pub(crate) fn all() -> Vec<UnitName> {
    UNITS.iter().map(|(unit, _)| name(unit)).collect()
}

/// A unit file with that requirement; different variants have different contents.
pub(crate) fn file(requirement: &str, variant: usize) -> UnitFile {
    let limit = STOP_LIMIT.as_secs();
    let text = format!(
        "[Service]\nTimeoutStopSec={limit}\nExecStart=/bin/run {variant}\n\
         [X-Fleet]\n{requirement}\n"
    );
    UnitFile::parse(text).expect("the file is well formed")
}

/// The requirement that a unit of that name gets: most often its own, else that of another.
pub(crate) fn requirement(unit: &UnitName, rng: &mut Rng) -> &'static str {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str()).map(|(_, own)| *own);
    let (_, any) = rng.pick(&UNITS);
    // Those that never run twice are known by their names.
    let stops = any.contains("OnPartition") || STOPPED.contains(&unit.as_str());
    let stays = stops || any.ends_with(&format!("={unit}"));
    let own = own.filter(|_| stays || rng.below(4) > 0);
    own.unwrap_or(any)
}

/// The requirement that a unit of that name has most often.
pub(crate) fn own_requirement(unit: &UnitName) -> &'static str {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str());
    own.expect("it is one of the units").1
}
