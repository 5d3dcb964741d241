//! Reads the options that filter the devices and the network addresses of a service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::value::{ValueContext, choice, read_resettable};
use crate::graph::model::cgroup_filters::{
    AddressRange, CgroupFilters, DevicePattern, DevicePolicy, DeviceRule,
};

/// Applies one of the options [`CGROUP_FILTERS`](super::service_options::CGROUP_FILTERS).
pub(super) fn apply(
    filters: &mut CgroupFilters,
    name: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    match name {
        "DevicePolicy" => {
            let policy = read_resettable(value, |value| choice(value, &POLICIES))?;
            filters.device_policy = policy.unwrap_or_default();
        }
        "DeviceAllow" if value.is_empty() => filters.devices.clear(),
        "DeviceAllow" => filters.devices.push(device_rule(value, unit)?),
        "IPAddressAllow" => add_addresses(&mut filters.allowed_addresses, value)?,
        _ => add_addresses(&mut filters.denied_addresses, value)?,
    }
    Ok(())
}

const POLICIES: [(&str, DevicePolicy); 3] = [
    ("auto", DevicePolicy::Auto),
    ("closed", DevicePolicy::Closed),
    ("strict", DevicePolicy::Strict),
];

/// Reads a rule such as `/dev/fuse rw` or `char-pts r`.
fn device_rule(value: &str, unit: &ValueContext<'_>) -> Result<DeviceRule, String> {
    let value = unit.expand(value)?;
    let (device, access) = value.split_once(char::is_whitespace).unwrap_or((&value, "rwm"));
    let access = access.trim();
    if access.is_empty() || !access.chars().all(|letter| "rwm".contains(letter)) {
        return Err(format!("has the access {access:?}: write some of r, w and m"));
    }
    let device = if device.starts_with("/dev/") {
        DevicePattern::Path(device.to_owned())
    } else if let Some(driver) = device.strip_prefix("block-") {
        DevicePattern::Block(driver.to_owned())
    } else if let Some(driver) = device.strip_prefix("char-") {
        DevicePattern::Char(driver.to_owned())
    } else {
        return Err(format!(
            "has the device {device:?}: write a path below /dev, or block- or char- and a driver"
        ));
    };
    let has = |letter| access.contains(letter);
    Ok(DeviceRule { device, read: has('r'), write: has('w'), create: has('m') })
}

/// Words for address ranges, with prefix lengths.
const RANGES: [(&str, Ipv4Addr, u8, Ipv6Addr, u8); 4] = [
    ("any", Ipv4Addr::UNSPECIFIED, 0, Ipv6Addr::UNSPECIFIED, 0),
    ("localhost", Ipv4Addr::new(127, 0, 0, 0), 8, Ipv6Addr::LOCALHOST, 128),
    (
        "link-local",
        Ipv4Addr::new(169, 254, 0, 0),
        16,
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        64,
    ),
    ("multicast", Ipv4Addr::new(224, 0, 0, 0), 4, Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

fn add_addresses(list: &mut Vec<AddressRange>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for word in value.split_whitespace() {
        if let Some(&(_, four, prefix, six, length)) = RANGES.iter().find(|it| it.0 == word) {
            list.push(AddressRange { address: four.into(), prefix });
            list.push(AddressRange { address: six.into(), prefix: length });
        } else {
            list.push(address_range(word).ok_or_else(|| {
                format!(
                    "has {word:?}: write any, localhost, link-local, multicast, or an address \
                     with a prefix length, such as 10.0.0.0/8"
                )
            })?);
        }
    }
    Ok(())
}

fn address_range(word: &str) -> Option<AddressRange> {
    let (address, prefix) = match word.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (word, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(longest), |prefix| prefix.parse().ok())?;
    (prefix <= longest).then_some(AddressRange { address, prefix })
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::SpecifierContext;

    use super::*;

    fn read(lines: &str) -> Result<CgroupFilters, String> {
        let name = "a.service".parse().expect("it is a name");
        let specifiers = SpecifierContext::new();
        let unit = ValueContext::new(&name, &specifiers);
        let mut filters = CgroupFilters::default();
        for line in lines.split('\n') {
            let (name, value) = line.split_once('=').expect("it is an assignment");
            apply(&mut filters, name, value, &unit)?;
        }
        Ok(filters)
    }

    #[test]
    fn devices_and_addresses_are_read_as_in_systemd() {
        let filters = read(
            "DevicePolicy=closed\nDeviceAllow=/dev/a\nDeviceAllow=\nDeviceAllow=/dev/fuse  rw\n\
             DeviceAllow=char-pts r\nDeviceAllow=block-*\nIPAddressAllow=localhost 10.1.2.3\n\
             IPAddressDeny=any\nIPAddressDeny=\nIPAddressDeny=10.0.0.0/8 fd00::/8",
        )
        .expect("it is valid");
        assert_eq!(filters.device_policy, DevicePolicy::Closed);
        let rules: Vec<String> = filters
            .devices
            .iter()
            .map(|rule| format!("{:?} {} {} {}", rule.device, rule.read, rule.write, rule.create))
            .collect();
        insta::assert_snapshot!(rules.join("\n"), @r#"
        Path("/dev/fuse") true true false
        Char("pts") true false false
        Block("*") true true true
        "#);
        let ranges = |list: &[AddressRange]| {
            let all = list.iter().map(|range| format!("{}/{}", range.address, range.prefix));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ranges(&filters.allowed_addresses), "127.0.0.0/8 ::1/128 10.1.2.3/32");
        assert_eq!(ranges(&filters.denied_addresses), "10.0.0.0/8 fd00::/8");
        assert_eq!(read("DevicePolicy=closed\nDevicePolicy="), Ok(CgroupFilters::default()));
    }

    #[test]
    fn wrong_values_are_refused_with_a_remedy() {
        for line in [
            "DevicePolicy=open",
            "DeviceAllow=/dev/null rx",
            "DeviceAllow=fuse",
            "IPAddressDeny=10.0.0.0/33",
            "IPAddressAllow=example.com",
        ] {
            let problem = read(line).expect_err(line);
            assert!(problem.contains(": write "), "{line}: {problem}");
        }
    }
}
