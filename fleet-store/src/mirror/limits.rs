//! Pure: limits for recorded changes.

/// Maximum number of names that a log of changes records: the names of changed units, machines and
/// placements. It is enough for an engine pass that moves all units of a tenth of a large cluster's
/// machines. That many names need a few megabytes.
pub(super) const MAX_NAMES: usize = 1 << 16;

/// Minimum number of names that a log of changes records. So even in a small cluster, readers may
/// lag behind for a while.
const MIN_NAMES: usize = 1 << 12;

/// Returns the number of names that a log of changes records. `runs` is the number of units in the
/// cluster, where a global unit counts once per machine. The result is about twice `runs`: a reader
/// that has missed more changes can examine the whole snapshot at less cost.
pub(super) fn names_for(runs: usize) -> usize {
    runs.saturating_mul(2).clamp(MIN_NAMES, MAX_NAMES)
}

#[cfg(test)]
mod tests {
    #[test]
    fn name_limit_grows_with_the_cluster() {
        let room = [0, 2_048, 2_049, 10_000, 100_000, usize::MAX].map(super::names_for);
        assert_eq!(room, [4_096, 4_096, 4_098, 20_000, 65_536, 65_536]);
    }
}
