//! Values that tell what a unit may reach: addresses on a network, devices, and the
//! programs of an architecture.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::code::FindingCode;
use super::flaw::{Flaw, pieces, quoted};
use super::{choices, values};
use crate::size::integer;

/// Addresses, each with the length of a prefix if need be, and words for some ranges.
///
/// Quotes have no meaning here, and are part of what is no address.
pub(super) fn address_ranges(value: &str) -> Vec<Flaw> {
    let flaws = pieces(value).filter(|(_, word)| !is_address_range(word)).map(|word| {
        let message = format!("{} is not a range of addresses", quoted(word.1));
        let help = "write ADDRESS/LENGTH, or any, localhost, link-local or multicast";
        Flaw::whole(FindingCode::Address, message, help).of_word(word)
    });
    flaws.collect()
}

fn is_address_range(word: &str) -> bool {
    // What a backslash leaves is not told.
    if ["any", "localhost", "link-local", "multicast"].contains(&word) || word.contains('\\') {
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

/// The path of a device or a group of devices, and what may be done with it.
pub(super) fn device(value: &str) -> Option<Flaw> {
    // Quotes and escapes may make up any path.
    if value.contains(['"', '\'', '\\']) {
        return None;
    }
    let (path, rights) = value.split_once([' ', '\t']).unwrap_or((value, ""));
    if let Some(flaw) = device_path(path) {
        return Some(flaw.of_word((0, path)));
    }
    let bare = rights.trim_start_matches([' ', '\t']);
    bare.contains(|c| !"rwm".contains(c)).then(|| {
        let message = format!("{} are not rights to a device", quoted(bare));
        let help = "write letters out of r, w and m, such as rw";
        Flaw::whole(FindingCode::Choice, message, help).of_word((value.len() - bare.len(), bare))
    })
}

fn device_path(path: &str) -> Option<Flaw> {
    let is_group = ["char-", "block-"].iter().any(|start| path.starts_with(start));
    if is_group || path.contains('%') {
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
            let help = "write a path below /dev/, or a group such as char-pts";
            Flaw::whole(FindingCode::Path, message, help)
        })
    })
}

/// An architecture: which of them the machine can run is not told.
pub(super) fn personality(value: &str) -> Option<Flaw> {
    (!choices::ALL_ARCHITECTURES.contains(&value)).then(|| {
        let message = format!("{} is not an architecture", quoted(value));
        // The nearest word may well be that of another machine.
        let help = "write one that the machine can run, such as x86-64 or arm64";
        Flaw::whole(FindingCode::Choice, message, help)
    })
}
