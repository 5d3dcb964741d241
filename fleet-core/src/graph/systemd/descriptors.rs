//! File descriptors that a service gets.

use std::collections::BTreeSet;

use fleet_unitfile::UnitName;

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
