//! Pure: how much is kept of what changed of late.

/// At most so many names of what changed: what a pass over a large cluster that lost a tenth of its
/// machines changes, in a few megabytes.
pub(super) const MAX_NAMES: usize = 1 << 16;

/// Even of the smallest cluster so many, so that who was away for a while can go on.
const MIN_NAMES: usize = 1 << 12;

/// How many names are kept where units run at so many places, global ones on each machine. Who has
/// missed more than twice what there is reads less when it looks at everything.
pub(super) fn names_for(runs: usize) -> usize {
    runs.saturating_mul(2).clamp(MIN_NAMES, MAX_NAMES)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_grows_with_the_cluster_between_two_bounds() {
        let room = [0, 2_048, 2_049, 10_000, 100_000, usize::MAX].map(super::names_for);
        assert_eq!(room, [4_096, 4_096, 4_098, 20_000, 65_536, 65_536]);
    }
}
