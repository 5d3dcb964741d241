//! Reads sets of capabilities and secure bits.

use crate::graph::model::sandbox::CapabilitySet;

/// Reads a list of capabilities. It is added to the present set, or removed from it if it begins
/// with `~`. A first or an empty list replaces the present set.
pub(super) fn capabilities(
    present: CapabilitySet,
    initial: CapabilitySet,
    value: &str,
) -> Result<CapabilitySet, String> {
    let (inverted, names) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
    let mut listed = CapabilitySet(0);
    for name in names.split_whitespace() {
        let named = CapabilitySet::named(name).ok_or_else(|| {
            format!("has {name:?}: write names of capabilities, such as CAP_NET_BIND_SERVICE")
        })?;
        listed = listed.union(named);
    }
    let replaces = listed == CapabilitySet(0) || present == initial;
    Ok(match (inverted, replaces) {
        (false, true) => listed,
        (true, true) => CapabilitySet::ALL.without(listed),
        (false, false) => present.union(listed),
        (true, false) => present.without(listed),
    })
}

/// Words of `SecureBits=`, by the kernel's bits.
const SECURE_BITS: [&str; 6] = [
    "noroot",
    "noroot-locked",
    "no-setuid-fixup",
    "no-setuid-fixup-locked",
    "keep-caps",
    "keep-caps-locked",
];

pub(super) fn add_secure_bits(bits: &mut u32, value: &str) -> Result<(), String> {
    if value.is_empty() {
        *bits = 0;
    }
    for word in value.split_whitespace() {
        let bit = SECURE_BITS.iter().position(|known| *known == word);
        let all = SECURE_BITS.join(", ");
        *bits |= 1 << bit.ok_or_else(|| format!("has {word:?}: write some of {all}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_lists_merge_as_in_systemd() {
        let named = |name: &str| CapabilitySet::named(name).expect("it is known");
        let (chown, kill) = (named("CAP_CHOWN"), named("cap_kill"));
        let all = CapabilitySet::ALL;
        for (lines, expected) in [
            (&[""][..], CapabilitySet(0)),
            (&["~"], all),
            (&["CAP_CHOWN", "CAP_KILL"], chown.union(kill)),
            (&["~CAP_CHOWN", "~CAP_KILL"], all.without(chown.union(kill))),
            (&["CAP_CHOWN CAP_KILL", "~CAP_KILL"], chown),
        ] {
            let read = lines.iter().try_fold(all, |present, line| capabilities(present, all, line));
            assert_eq!(read, Ok(expected), "{lines:?}");
        }
    }
}
