//! Filters of the control group of a unit: the devices and the network addresses that its processes
//! may use.

use std::net::IpAddr;

/// Filters for all processes of a unit. The default filters nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupFilters {
    /// `DevicePolicy=`.
    pub device_policy: DevicePolicy,
    /// `DeviceAllow=`.
    pub devices: Vec<DeviceRule>,
    /// `IPAddressAllow=`. These addresses stay allowed if they are denied too.
    pub allowed_addresses: Vec<AddressRange>,
    /// `IPAddressDeny=`. If it is empty, all addresses are allowed.
    pub denied_addresses: Vec<AddressRange>,
}

/// Values of `DevicePolicy=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DevicePolicy {
    /// Permits all devices, unless a `DeviceAllow=` is given. Then it is [`Closed`](Self::Closed).
    #[default]
    Auto,
    /// Permits the pseudo devices, such as `/dev/null`, and the devices of `DeviceAllow=`.
    Closed,
    /// Permits only the devices of `DeviceAllow=`.
    Strict,
}

/// Devices that processes may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRule {
    /// The devices.
    pub device: DevicePattern,
    /// Whether the devices may be read.
    pub read: bool,
    /// Whether the devices may be written.
    pub write: bool,
    /// Whether nodes of the devices may be created.
    pub create: bool,
}

/// Devices of a [`DeviceRule`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DevicePattern {
    /// The device at an absolute path.
    Path(String),
    /// Block devices whose driver, as `/proc/devices` lists it, matches the pattern.
    Block(String),
    /// Character devices, likewise.
    Char(String),
}

/// Addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// An address of the range.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}
