//! The units and machines that simulated clusters consist of.

use fleet_unitfile::{UnitFile, UnitName};

use crate::rng::Rng;

/// All names that a unit of a campaign can have, and the requirements that it has most often.
const UNITS: [(&str, &str); 13] = [
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
];

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
    let text = format!("[Service]\nExecStart=/bin/run {variant}\n[X-Fleet]\n{requirement}\n");
    UnitFile::parse(text).expect("the file is well formed")
}

/// The requirement that a unit of that name gets: most often its own, else that of another.
pub(crate) fn requirement(unit: &UnitName, rng: &mut Rng) -> &'static str {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str()).map(|(_, own)| *own);
    let (_, any) = rng.pick(&UNITS);
    let names_itself = any.ends_with(&format!("={unit}"));
    own.filter(|_| names_itself || rng.below(4) > 0).unwrap_or(any)
}
