//! What units say of one another.

use fleet_unitfile::{OptionView, UnitName};

use super::refusal::OptionPosition;

/// One unit that another names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// In which option.
    pub kind: RelationKind,
    /// The other unit.
    pub unit: UnitName,
    /// Where.
    pub position: OptionPosition,
}

/// Options in which units name one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelationKind {
    /// `After=`.
    After,
    /// `Before=`.
    Before,
    /// `BindsTo=`.
    BindsTo,
    /// `PartOf=`.
    PartOf,
    /// `RequiredBy=`.
    RequiredBy,
    /// `Requires=`.
    Requires,
    /// `WantedBy=`, and `UpheldBy=`, whose upholding is left to the unit's own `Restart=`.
    WantedBy,
    /// `Wants=`.
    Wants,
}

/// Units that mean the end of the machine to systemd; a unit conflicts with some of them unless it
/// says otherwise, and none of them is ever started here.
const SHUTDOWN: [&str; 10] = [
    "emergency.target",
    "exit.target",
    "final.target",
    "halt.target",
    "kexec.target",
    "poweroff.target",
    "reboot.target",
    "rescue.target",
    "shutdown.target",
    "umount.target",
];

type Names = Vec<(RelationKind, UnitName)>;

/// What an option says of other units; nothing if it is no option of that kind. An empty value adds
/// nothing, and takes nothing back, as with systemd.
pub(super) fn relations(
    option: OptionView<'_>,
    expand: &impl Fn(&str) -> Result<String, String>,
) -> Option<Result<Names, String>> {
    let kind = match (option.section(), option.name()) {
        ("Unit", "After") => RelationKind::After,
        ("Unit", "Before") => RelationKind::Before,
        ("Unit", "BindsTo" | "BindTo") => RelationKind::BindsTo,
        ("Unit", "PartOf") => RelationKind::PartOf,
        ("Unit", "Requires" | "RequiresOverridable") => RelationKind::Requires,
        ("Unit", "Wants") => RelationKind::Wants,
        ("Unit", "Conflicts") => return Some(conflicts(option.value(), expand)),
        ("Install", "RequiredBy") => RelationKind::RequiredBy,
        ("Install", "WantedBy" | "UpheldBy") => RelationKind::WantedBy,
        _ => return None,
    };
    let named = |name: UnitName| {
        let is_template = name.is_template() && option.section() == "Unit";
        match is_template {
            true => Err(format!("names the template {name}: name an instance of it")),
            false => Ok((kind, name)),
        }
    };
    Some(names(option.value(), expand).and_then(|all| all.into_iter().map(named).collect()))
}

fn names(
    value: &str,
    expand: &impl Fn(&str) -> Result<String, String>,
) -> Result<Vec<UnitName>, String> {
    let name = |word: &str| {
        let text = expand(word)?;
        text.parse().map_err(|error| format!("cannot be read: {error}"))
    };
    value.split_whitespace().map(name).collect()
}

fn conflicts(
    value: &str,
    expand: &impl Fn(&str) -> Result<String, String>,
) -> Result<Names, String> {
    match names(value, expand)?.iter().find(|name| !SHUTDOWN.contains(&name.as_str())) {
        None => Ok(Names::new()),
        Some(name) => Err(format!(
            "names {name}: no unit is stopped here because another starts: take it out, and let \
             nothing need both"
        )),
    }
}
