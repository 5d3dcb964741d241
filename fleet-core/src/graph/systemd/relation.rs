//! Relations between units.

use fleet_unitfile::{OptionView, UnitName};

use super::refusal::OptionPosition;

/// A relation of a unit to another unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// The option that declares it.
    pub kind: RelationKind,
    /// The other unit.
    pub unit: UnitName,
    /// Position of the option.
    pub position: OptionPosition,
}

/// Options that declare relations.
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
    /// `WantedBy=` or `UpheldBy=`. In systemd `UpheldBy=` also causes restarts, but here only the
    /// unit's own `Restart=` does.
    WantedBy,
    /// `Wants=`.
    Wants,
}

/// Units that systemd uses to shut down the machine. Most units conflict with some of these by
/// default. Such a conflict has no effect, because this supervisor never starts these units.
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

/// Returns the relations that an option declares, or `None` if the option declares no relations. As
/// in systemd, an empty value adds no relation and removes none.
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
            "names {name}: starting a unit never stops another: remove it, and make sure that no \
             unit needs both"
        )),
    }
}
