//! Names of unit types, and sets of types.

use crate::graph::{InitUnit, ServiceType};

/// A unit type as written in a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeWord {
    Notified,
    Supervised,
    Pidfile,
    Scripted,
    Oneshot,
    Virtual,
}

impl TypeWord {
    /// All types.
    pub(super) const ALL: [Self; 6] = [
        Self::Notified,
        Self::Supervised,
        Self::Pidfile,
        Self::Scripted,
        Self::Oneshot,
        Self::Virtual,
    ];

    /// Returns the type of a unit.
    pub(super) fn of(unit: &InitUnit) -> Self {
        Self::of_kind(&unit.kind)
    }

    fn of_kind(kind: &ServiceType) -> Self {
        match kind {
            ServiceType::ForegroundNotified => Self::Notified,
            ServiceType::ForegroundSupervised(_) => Self::Supervised,
            ServiceType::BackgroundPidfile { .. } => Self::Pidfile,
            ServiceType::BackgroundScripted => Self::Scripted,
            ServiceType::Oneshot { .. } => Self::Oneshot,
            ServiceType::Virtual => Self::Virtual,
        }
    }

    /// Returns the type as written.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Notified => "foreground-notified",
            Self::Supervised => "foreground-supervised",
            Self::Pidfile => "background-pidfile",
            Self::Scripted => "background-scripted",
            Self::Oneshot => "oneshot",
            Self::Virtual => "virtual",
        }
    }

    /// Returns the set that contains only this type.
    pub(super) const fn alone(self) -> Types {
        Types(1 << self as u8)
    }
}

impl ServiceType {
    /// Returns the type's name in a stanza, such as `oneshot`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        TypeWord::of_kind(self).as_str()
    }
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    /// All types.
    pub(super) const ALL: Self = Self(0b11_1111);
    /// All types that execute something.
    pub(super) const RUNNING: Self = Self::ALL.without(TypeWord::Virtual);

    /// Returns the set without one type.
    pub(super) const fn without(self, word: TypeWord) -> Self {
        Self(self.0 & !word.alone().0)
    }

    /// Returns whether the set contains a type.
    pub(super) fn contains(self, word: TypeWord) -> bool {
        self.0 & word.alone().0 != 0
    }

    /// Formats the set as in `oneshot, virtual`.
    pub(super) fn names(self) -> String {
        let words = TypeWord::ALL.into_iter().filter(|word| self.contains(*word));
        words.map(TypeWord::as_str).collect::<Vec<_>>().join(", ")
    }
}
