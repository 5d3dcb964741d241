//! File descriptors that a service gets.

use std::collections::BTreeSet;

use fleet_unitfile::{UnitName, UnitType};

use super::relation::{Names, RelationKind};

/// Settings of a service for the file descriptors that it gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceDescriptors {
    /// Sockets that the service gets besides those that start it (`Sockets=`).
    pub sockets: BTreeSet<UnitName>,
    /// Maximum number of descriptors that the service may store (`FileDescriptorStoreMax=`).
    pub store_max: u32,
    /// Whether sockets are passed in non-blocking mode (`NonBlocking=`).
    pub non_blocking: bool,
}

/// Returns the relations of `Sockets=`: the service wants each socket, and starts after it.
pub(super) fn socket_relations(sockets: Vec<UnitName>) -> Result<Names, String> {
    let mut found = Vec::new();
    for name in sockets {
        if name.unit_type() != UnitType::Socket || name.is_template() {
            return Err(format!("names {name}: write the name of a .socket unit"));
        }
        found.extend([(RelationKind::Wants, name.clone()), (RelationKind::After, name)]);
    }
    Ok(found)
}
