//! Values that grant or restrict access: network addresses, devices and architectures.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::code::FindingCode;
use super::specifiers::expanded;
use super::value_error::{ValueError, pieces, quoted};
use super::{choices, values};
use crate::name::UnitName;
use crate::quoting::Splitter;
use crate::size::integer;

/// Checks a list of network address ranges. A range is an address with an optional prefix length
/// (`10.0.0.0/8`), or a word for a common range (`localhost`).
///
/// systemd removes no quotes from this value, so quotes make an address invalid.
pub(super) fn address_ranges(value: &str) -> Vec<ValueError> {
    let errors = pieces(value).filter(|(_, word)| !is_address_range(word)).map(|word| {
        let message = format!("{} is not a range of addresses", quoted(word.1));
        let help = match word.1.starts_with(['"', '\'']) {
            true => "write the range without quotes",
            false => "write a range such as 10.0.0.0/8, or any, localhost, link-local or multicast",
        };
        ValueError::new(FindingCode::Address, message, help).at_word(word)
    });
    errors.collect()
}

fn is_address_range(word: &str) -> bool {
    if word.eq_ignore_ascii_case("localhost") {
        return true;
    }
    if ["any", "link-local", "multicast"].contains(&word) {
        return true;
    }
    let (address, length) = match word.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (word, None),
    };
    let most = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    length.is_none_or(|length| integer(length).is_some_and(|it| (0..=most).contains(&it)))
}

/// Checks a device rule such as `/dev/sda rw`: the path of a device, or a device group, and the
/// access rights.
pub(super) fn device(value: &str, unit: &UnitName) -> Option<ValueError> {
    let mut words = Splitter::new(value, true);
    let Some(Ok(path)) = words.next() else {
        let error = ValueError::new(FindingCode::Quotes, "a quote is not closed", "close it");
        return Some(error);
    };
    let (written, rights) = (&value[..words.at()], words.rest());
    if let Some(error) = expanded(&path, unit).and_then(|path| device_path(&path)) {
        return Some(error.at_word((0, written)));
    }
    let bare = rights.trim_start_matches([' ', '\t']);
    bare.contains(|c| !"rwm".contains(c)).then(|| {
        let message = format!("{} is not an access mode of a device", quoted(bare));
        let help = "write one or more of the letters r, w and m, such as rw";
        ValueError::new(FindingCode::Choice, message, help)
            .at_word((value.len() - bare.len(), bare))
    })
}

fn device_path(path: &str) -> Option<ValueError> {
    let is_group = ["char-", "block-"].iter().any(|start| path.starts_with(start));
    if is_group {
        return None;
    }
    values::path(path).or_else(|| {
        let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        let is_fine = match parts.next() {
            Some("dev") => true,
            Some("run") => parts.next() == Some("systemd") && parts.next() == Some("inaccessible"),
            _ => false,
        };
        (!is_fine).then(|| {
            let message = format!("{} is not the path of a device", quoted(path));
            let help = "write a path below /dev/, or a device group such as char-pts";
            ValueError::new(FindingCode::Path, message, help)
        })
    })
}

/// Checks that a value is the name of an architecture. The check does not test whether the machine
/// can run programs for it.
pub(super) fn personality(value: &str) -> Option<ValueError> {
    (!choices::ALL_ARCHITECTURES.contains(&value)).then(|| {
        let message = format!("{} is not an architecture", quoted(value));
        // The nearest word may be that of another machine.
        let help = "write an architecture that the machine can run, such as x86-64";
        ValueError::new(FindingCode::Choice, message, help)
    })
}
