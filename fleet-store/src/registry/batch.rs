//! Pure: packing many small writes into few transactions within the limits.

use crate::Transaction;

/// Packs groups of conditions and writes into as few transactions as possible, in order. A group is
/// never split, so all its writes are applied together. Every transaction begins with the
/// conditions and writes of `fence`.
pub(super) fn pack(
    fence: &Transaction,
    groups: impl IntoIterator<Item = Transaction>,
) -> Vec<Transaction> {
    let mut packed = Vec::new();
    let mut open = fence.clone();
    let mut size = fence.size();
    for group in groups {
        let group_size = group.size();
        if open.writes.len() > fence.writes.len() && !fits(&open, &group, size + group_size) {
            packed.push(std::mem::replace(&mut open, fence.clone()));
            size = fence.size();
        }
        open.conditions.extend(group.conditions);
        open.writes.extend(group.writes);
        size += group_size;
    }
    if open.writes.len() > fence.writes.len() {
        packed.push(open);
    }
    packed
}

fn fits(open: &Transaction, group: &Transaction, size: usize) -> bool {
    open.writes.len() + group.writes.len() <= Transaction::MAX_OPERATIONS
        && open.conditions.len() + group.conditions.len() <= Transaction::MAX_OPERATIONS
        && size <= Transaction::MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;

    fn group(i: usize, bytes: usize) -> Transaction {
        let fresh = Condition::absent(format!("a{i}"));
        Transaction::new().when(fresh).put(format!("a{i}"), vec![0; bytes]).delete(format!("b{i}"))
    }

    #[test]
    fn groups_stay_whole_and_in_order_within_the_bounds() {
        for (count, bytes) in [(0, 0), (1, 0), (50, 1), (51, 1), (500, 10), (10, 400_000)] {
            let fence = Transaction::new().when(Condition::present("leader"));
            let packed = pack(&fence, (0..count).map(|i| group(i, bytes)));
            assert!(packed.iter().all(|transaction| transaction.check().is_ok()));
            assert!(packed.iter().all(|t| t.conditions[0] == fence.conditions[0]));
            assert!(packed.iter().all(|t| t.writes.len() == 2 * (t.conditions.len() - 1)));
            let writes: Vec<_> = packed.into_iter().flat_map(|t| t.writes).collect();
            let expected: Vec<_> = (0..count).flat_map(|i| group(i, bytes).writes).collect();
            assert_eq!(writes, expected);
        }
    }

    #[test]
    fn transaction_is_filled_before_the_next_starts() {
        let packed = pack(&Transaction::new(), (0..120).map(|i| group(i, 1)));
        let writes: Vec<usize> =
            packed.iter().map(|transaction| transaction.writes.len()).collect();
        assert_eq!(writes, [128, 112]);
    }
}
