//! Relations between units, and the edges that they become.

use fleet_unitfile::{OptionView, UnitName, UnitType};

use super::support::OptionPosition;
use crate::graph::model::EdgeKind;

/// A relation of a unit to another unit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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
    /// `Conflicts=`.
    Conflicts,
    /// `OnFailure=`.
    OnFailure,
    /// `OnSuccess=`.
    OnSuccess,
    /// `PartOf=`.
    PartOf,
    /// `PropagatesReloadTo=`.
    PropagatesReloadTo,
    /// `PropagatesStopTo=`.
    PropagatesStopTo,
    /// `ReloadPropagatedFrom=`.
    ReloadPropagatedFrom,
    /// `RequiredBy=`.
    RequiredBy,
    /// `Requires=`.
    Requires,
    /// `Requisite=`.
    Requisite,
    /// `StopPropagatedFrom=`.
    StopPropagatedFrom,
    /// `UpheldBy=`.
    UpheldBy,
    /// `Upholds=`.
    Upholds,
    /// `WantedBy=`.
    WantedBy,
    /// `Wants=`.
    Wants,
}

pub(super) type Names = Vec<(RelationKind, UnitName)>;

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
        ("Unit", "OnFailure") => RelationKind::OnFailure,
        ("Unit", "OnSuccess") => RelationKind::OnSuccess,
        ("Unit", "PartOf") => RelationKind::PartOf,
        ("Unit", "PropagatesReloadTo" | "PropagateReloadTo") => RelationKind::PropagatesReloadTo,
        ("Unit", "PropagatesStopTo") => RelationKind::PropagatesStopTo,
        ("Unit", "ReloadPropagatedFrom" | "PropagateReloadFrom") => {
            RelationKind::ReloadPropagatedFrom
        }
        ("Unit", "StopPropagatedFrom") => RelationKind::StopPropagatedFrom,
        ("Unit", "Requires" | "RequiresOverridable") => RelationKind::Requires,
        ("Unit", "Requisite" | "RequisiteOverridable") => RelationKind::Requisite,
        ("Unit", "Upholds") => RelationKind::Upholds,
        ("Unit", "Wants") => RelationKind::Wants,
        ("Unit", "Conflicts") => RelationKind::Conflicts,
        ("Service", "Sockets") => {
            return Some(names(option.value(), expand).and_then(socket_relations));
        }
        ("Install", "RequiredBy") => RelationKind::RequiredBy,
        ("Install", "UpheldBy") => RelationKind::UpheldBy,
        ("Install", "WantedBy") => RelationKind::WantedBy,
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

/// All relations between a unit and one dependency, declared on either side.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Relations {
    pub(super) binds: bool,
    pub(super) requires: bool,
    pub(super) requisite: bool,
    pub(super) wants: bool,
    pub(super) after: bool,
}

impl RelationKind {
    /// Returns whether a unit with this option starts or stops the other unit, or stops with it.
    pub(super) fn pulls_or_stops(self) -> bool {
        use RelationKind::{BindsTo, Conflicts, PartOf, Requires, Wants};
        matches!(self, BindsTo | Conflicts | PartOf | Requires | Wants)
    }
}

impl Relations {
    pub(super) fn add(&mut self, kind: RelationKind) {
        match kind {
            RelationKind::After | RelationKind::Before => self.after = true,
            RelationKind::BindsTo => self.binds = true,
            RelationKind::Requires | RelationKind::RequiredBy => self.requires = true,
            RelationKind::Requisite => self.requisite = true,
            RelationKind::Upholds
            | RelationKind::UpheldBy
            | RelationKind::Wants
            | RelationKind::WantedBy => self.wants = true,
            // Effects are no edges.
            _ => {}
        }
    }

    /// Returns whether the unit needs the dependency while it is active.
    pub(super) fn needs(self) -> bool {
        self.binds || self.requires || self.requisite || self.wants
    }

    pub(super) fn edge(self) -> Option<EdgeKind> {
        match self {
            Self { binds: true, .. } => Some(EdgeKind::DependsOn),
            Self { requires: true, after: true, .. } => Some(EdgeKind::DependsMs),
            Self { requisite: true, requires, wants, .. } if requires || wants => {
                Some(EdgeKind::DependsMs)
            }
            Self { requisite: true, .. } => Some(EdgeKind::Requisite),
            Self { wants: true, after: true, .. } => Some(EdgeKind::WaitsFor),
            Self { requires: true, .. } | Self { wants: true, .. } => Some(EdgeKind::Pulls),
            Self { after: true, .. } => Some(EdgeKind::After),
            _ => None,
        }
    }

    /// Returns the edge to a refused unit, or `None` if the refused unit is not required. No unit
    /// provides the target of this edge, so the graph blocks the dependent. The dependent is
    /// blocked even without `After=`, because systemd could not start it either.
    pub(super) fn edge_to_refused(self) -> Option<EdgeKind> {
        let requires = self.binds || self.requires || self.requisite;
        requires.then_some(if self.binds { EdgeKind::DependsOn } else { EdgeKind::DependsMs })
    }
}

/// Returns the relations of `Sockets=`: the service wants each socket, and starts after it.
fn socket_relations(sockets: Vec<UnitName>) -> Result<Names, String> {
    let mut found = Vec::new();
    for name in sockets {
        if name.unit_type() != UnitType::Socket || name.is_template() {
            return Err(format!("names {name}: write the name of a .socket unit"));
        }
        found.extend([(RelationKind::Wants, name.clone()), (RelationKind::After, name)]);
    }
    Ok(found)
}
