//! Units and machines of simulated clusters.

use std::time::Duration;

use fleet_agent::testing::Behaviour;
use fleet_core::{Requirements, Strictness};
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

/// Variant of a unit file whose process exits at once.
pub(crate) const EXITS: usize = 1001;

/// Variant of a unit file that never becomes active.
pub(crate) const HANGS: usize = 1002;

/// Variant of a unit file whose start is over when its process succeeds.
pub(crate) const SUCCEEDS: usize = 1003;

/// Variant of a unit file whose start is over when its process fails.
pub(crate) const FAILS: usize = 1004;

/// Creates a unit file with this requirement; variants differ in content.
pub(crate) fn file(requirement: &str, variant: usize) -> UnitFile {
    let limit = STOP_LIMIT.as_secs();
    let text = format!(
        "[Service]\nTimeoutStopSec={limit}\n{EXEC}{variant}\n\
         [X-Fleet]\n{requirement}\n"
    );
    UnitFile::parse(text).expect("the file is well formed")
}

/// Start of the line that contains the variant.
const EXEC: &str = "ExecStart=/bin/run ";

/// Returns another variant of a unit file, with the same requirement.
pub(crate) fn with_variant(file: &UnitFile, variant: usize) -> UnitFile {
    let text = file.source_str().expect("the files of a simulation are texts");
    let line = |line: &str| match line.strip_prefix(EXEC) {
        Some(_) => format!("{EXEC}{variant}\n"),
        None => format!("{line}\n"),
    };
    UnitFile::parse(text.lines().map(line).collect::<String>()).expect("the file is well formed")
}

/// Returns the behaviour of a variant; `None` if the variant leaves it to the machine.
pub(crate) fn behaviour(file: &UnitFile) -> Option<Behaviour> {
    let mut lines = file.source_str()?.lines();
    let variant = lines.find_map(|line| line.strip_prefix(EXEC)?.parse::<usize>().ok())?;
    match variant {
        EXITS => Some(Behaviour::Exits(1)),
        HANGS => Some(Behaviour::NeverReady),
        SUCCEEDS => Some(Behaviour::Task(0)),
        FAILS => Some(Behaviour::Task(1)),
        _ => None,
    }
}

/// Options from which random requirements are built. `U` stands for the name of a random unit.
const OPTIONS: [&str; 14] = [
    "Global=true",
    "MachineID=m0",
    "MachineID=m1",
    "MachineMetadata=region=north",
    "MachineMetadataExpr=region = south",
    "MachineOf=U",
    "MachineOf=?.service",
    "Conflicts=U",
    "Conflicts=d@*.service",
    "Replaces=U",
    "MaxPerMachine=1",
    "Reschedule=never",
    "Spread=1:region",
    "Prefer=3:region = south",
];

/// Draws the requirements of a submitted unit.
pub(crate) type Workload = fn(&UnitName, &mut Rng) -> String;

/// Returns a random combination of options.
pub(crate) fn random_requirement(unit: &UnitName, rng: &mut Rng) -> String {
    if STOPPED.contains(&unit.as_str()) {
        return own_requirement(unit).to_owned();
    }
    loop {
        let option = |_| rng.pick(&OPTIONS).replace('U', rng.pick(&UNITS).0);
        let lines: Vec<String> = (0..3).map(option).collect();
        let text = lines[..rng.below(4)].join("\n");
        // Some options cannot be used together.
        if Requirements::parse(unit, &file(&text, 0), Strictness::Refuse).is_ok() {
            return text;
        }
    }
}

/// Returns a requirement for this unit: usually its own, else that of another unit.
pub(crate) fn requirement(unit: &UnitName, rng: &mut Rng) -> String {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str()).map(|(_, own)| *own);
    let (_, any) = rng.pick(&UNITS);
    // The protected units are recognised by name.
    let stops = any.contains("OnPartition") || STOPPED.contains(&unit.as_str());
    let stays = stops || any.ends_with(&format!("={unit}"));
    let own = own.filter(|_| stays || rng.below(4) > 0);
    own.unwrap_or(any).to_owned()
}

/// Returns the usual requirement of this unit.
pub(crate) fn own_requirement(unit: &UnitName) -> &'static str {
    let own = UNITS.iter().find(|(name, _)| *name == unit.as_str());
    own.expect("it is one of the units").1
}
