//! Promises about reads and transactions.

use std::sync::Arc;

use fleet_core::Revision;

use super::{apply, entry, expect_invalid, put, read, value};
use crate::{Commit, Condition, LeaseId, Store, StoreError, Transaction};

/// A read that begins after a commit was acknowledged sees the commit, and returns its revision.
pub async fn read_sees_acknowledged_commits(store: Arc<dyn Store>) {
    for i in 0..20 {
        let text = i.to_string();
        let revision = put(&store, "a", &text).await;
        let listing = read(&store, "a").await;
        assert_eq!(listing.revision, revision);
        assert_eq!(listing.entries[0].value, text.as_bytes());
        assert_eq!(listing.entries[0].modified, revision);
        assert_eq!(listing.entries[0].lease, None);
    }
}

/// A read returns exactly the keys with its prefix, ordered by their bytes.
pub async fn read_returns_prefix_in_key_order(store: Arc<dyn Store>) {
    for key in ["b/2", "b/10", "b", "a/1", "b0", "b/\u{fc}", "c", "B/1"] {
        put(&store, key, "x").await;
    }
    let keys = async |prefix| {
        let entries = read(&store, prefix).await.entries;
        entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("b/").await, ["b/10", "b/2", "b/\u{fc}"]);
    assert_eq!(keys("b").await, ["b", "b/10", "b/2", "b/\u{fc}", "b0"]);
    assert_eq!(keys("d").await, [""; 0]);
    assert_eq!(keys("").await.len(), 8);
}

/// A read returns one consistent state despite concurrent writes. It never returns part of a
/// transaction, and the returned revision belongs to the returned state.
pub async fn read_is_one_consistent_state(store: Arc<dyn Store>) {
    const LAST: u32 = 200;
    let both =
        |i: u32| Transaction::new().put("both/1", i.to_string()).put("both/2", i.to_string());
    apply(&store, both(0)).await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for i in 1..=LAST {
                apply(&store, both(i)).await;
            }
        }
    });
    let mut last = Revision::ZERO;
    loop {
        let listing = read(&store, "both/").await;
        let [one, two] = &listing.entries[..] else { panic!("{:?}", listing.entries) };
        assert_eq!(
            (&one.value, one.modified),
            (&two.value, two.modified),
            "the read contains part of a transaction"
        );
        assert!(last <= listing.revision && one.modified <= listing.revision);
        last = listing.revision;
        if one.value == LAST.to_string().as_bytes() {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer does not panic");
}

/// Keys can have any characters, and values any bytes or none.
pub async fn keys_and_values_round_trip(store: Arc<dyn Store>) {
    let bytes: Vec<u8> = (0..=255).collect();
    let long = "k".repeat(1000);
    for key in ["/", " ", "a//b", "\n", "\u{10ffff}", "%2f", "..", &long] {
        for bytes in [&bytes[..], &[]] {
            apply(&store, Transaction::new().put(key, bytes)).await;
            assert_eq!(value(&store, key).await.as_deref(), Some(bytes), "{key:?}");
        }
    }
}

/// Each writing transaction creates one revision, higher than all before.
pub async fn every_write_makes_one_revision(store: Arc<dyn Store>) {
    let before = read(&store, "").await.revision;
    let first = apply(&store, Transaction::new().put("a", "1").put("b", "1")).await;
    let second = apply(&store, Transaction::new().put("a", "1")).await;
    let third = apply(&store, Transaction::new().delete("b").put("c", "1")).await;
    assert!(before < first && first < second && second < third);
    assert_eq!(entry(&store, "a").await.map(|entry| entry.modified), Some(second));
    assert_eq!(entry(&store, "b").await, None);
    assert_eq!(entry(&store, "c").await.map(|entry| entry.modified), Some(third));
}

/// A transaction without writes does not change the revision, and neither does one that only
/// deletes absent keys.
pub async fn commit_without_effect_makes_no_revision(store: Arc<dyn Store>) {
    let revision = put(&store, "a", "1").await;
    let looks = Transaction::new().when(Condition::present("a"));
    assert_eq!(apply(&store, looks).await, revision);
    assert_eq!(apply(&store, Transaction::new().delete("b")).await, revision);
    let refused = Transaction::new().when(Condition::absent("a")).put("a", "2");
    let commit = store.commit(refused).await.expect("the store takes a transaction");
    assert!(matches!(commit, Commit::Refused { .. }));
    assert_eq!(read(&store, "").await.revision, revision);
}

/// Checks each kind of condition against a present key, an absent key, and values and revisions
/// that do not match. A transaction with a failed condition writes nothing.
pub async fn failed_condition_prevents_all_writes(store: Arc<dyn Store>) {
    let old = put(&store, "there", "old").await;
    let new = put(&store, "there", "new").await;
    let cases = [
        (Condition::absent("there"), false),
        (Condition::absent("gone"), true),
        (Condition::present("there"), true),
        (Condition::present("gone"), false),
        (Condition::value("there", "new"), true),
        (Condition::value("there", "old"), false),
        (Condition::value("there", "ne"), false),
        (Condition::value("gone", ""), false),
        (Condition::modified_at("there", new), true),
        (Condition::modified_at("there", old), false),
        (Condition::modified_at("gone", Revision::ZERO), false),
    ];
    for (i, (condition, holds)) in cases.into_iter().enumerate() {
        let key = format!("written/{i}");
        let transaction = Transaction::new().when(condition.clone()).put(&key, "");
        let commit = store.commit(transaction).await.expect("the store takes a transaction");
        assert_eq!(matches!(commit, Commit::Applied(_)), holds, "{condition:?}: {commit:?}");
        assert_eq!(entry(&store, &key).await.is_some(), holds, "{condition:?}");
    }
}

/// A refused transaction returns the first condition that did not hold, and the entry under the key
/// of that condition.
pub async fn refusal_returns_condition_and_entry(store: Arc<dyn Store>) {
    let modified = put(&store, "b", "found").await;
    let refused = async |transaction| match store.commit(transaction).await {
        Ok(Commit::Refused { condition, found }) => (condition, found),
        other => panic!("{other:?} is not a refusal"),
    };
    let transaction = Transaction::new()
        .when(Condition::absent("a"))
        .when(Condition::value("b", "other"))
        .when(Condition::present("c"));
    let (condition, found) = refused(transaction).await;
    assert_eq!(condition, 1);
    let found = found.expect("the entry is there");
    assert_eq!(
        (found.key.as_str(), &found.value[..], found.modified),
        ("b", &b"found"[..], modified)
    );
    let (condition, found) = refused(Transaction::new().when(Condition::present("a"))).await;
    assert_eq!((condition, found), (0, None));
}

/// All writes of a transaction are applied, or none.
pub async fn transaction_is_atomic(store: Arc<dyn Store>) {
    put(&store, "a", "old").await;
    let writes = || Transaction::new().put("a", "new").put("b", "new").delete("c").put("d", "new");
    let lost = store.commit(writes().put_leased("e", "new", LeaseId(u64::MAX >> 1))).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost(_))), "{lost:?}");
    assert_eq!(read(&store, "").await.entries.len(), 1, "part of a transaction was applied");
    assert_eq!(value(&store, "a").await.as_deref(), Some(&b"old"[..]));
    let revision = apply(&store, writes()).await;
    let entries = read(&store, "").await.entries;
    assert!(entries.iter().all(|entry| entry.modified == revision && entry.value == b"new"));
    assert_eq!(entries.len(), 3);
}

/// The store refuses transactions that [`Transaction::check`] refuses, and changes nothing.
pub async fn invalid_transactions_are_refused(store: Arc<dyn Store>) {
    let many = (0..=Transaction::MAX_OPERATIONS)
        .fold(Transaction::new(), |transaction, i| transaction.put(format!("{i}"), ""));
    let invalid = [
        Transaction::new().put("a", "1").put("a", "2"),
        Transaction::new().put("a", "1").delete("a"),
        Transaction::new().put("", "1"),
        Transaction::new().when(Condition::absent("")).put("a", "1"),
        Transaction::new().put("a", vec![0; Transaction::MAX_BYTES]),
        many,
    ];
    for transaction in invalid {
        expect_invalid(store.commit(transaction).await);
    }
    assert_eq!(read(&store, "").await.entries, []);
}

/// The store accepts a transaction at the limits.
pub async fn transaction_at_the_limits_is_accepted(store: Arc<dyn Store>) {
    let count = Transaction::MAX_OPERATIONS;
    let value_bytes = Transaction::MAX_BYTES / count - 2 * "key/000".len();
    let many = (0..count).fold(Transaction::new(), |transaction, i| {
        let key = format!("key/{i:03}");
        transaction.when(Condition::absent(&key)).put(key, vec![7; value_bytes])
    });
    apply(&store, many).await;
    let entries = read(&store, "key/").await.entries;
    assert_eq!(entries.len(), count);
    assert!(entries.iter().all(|entry| entry.value.len() == value_bytes));
}

/// Of many writers that compete for a key, exactly one succeeds.
pub async fn exactly_one_of_many_writers_wins(store: Arc<dyn Store>) {
    const WRITERS: usize = 16;
    let tries = (0..WRITERS).map(|i| {
        let store = store.clone();
        tokio::spawn(async move {
            let claim = Transaction::new().when(Condition::absent("claim"));
            let commit = store.commit(claim.put("claim", i.to_string())).await;
            matches!(commit, Ok(Commit::Applied(_))).then_some(i)
        })
    });
    let mut winners = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        winners.extend(tried.await.expect("a writer does not panic"));
    }
    assert_eq!(winners.len(), 1, "{winners:?} have all won");
    let claim = value(&store, "claim").await;
    assert_eq!(claim, Some(winners[0].to_string().into_bytes()));
}

/// When several writers change a value on condition that it has not changed, no update is lost.
/// Writers that come too late are refused, and change nothing.
pub async fn conflicting_writers_lose_no_update(store: Arc<dyn Store>) {
    const WRITERS: usize = 4;
    const TIMES: usize = 10;
    put(&store, "count", "0").await;
    let writers = (0..WRITERS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..TIMES {
                while !try_to_count(&store).await {}
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer does not panic");
    }
    let count = value(&store, "count").await;
    assert_eq!(count, Some((WRITERS * TIMES).to_string().into_bytes()));
}

/// Increments the counter. Returns `false` if it changed concurrently.
async fn try_to_count(store: &Arc<dyn Store>) -> bool {
    let found = entry(store, "count").await.expect("the entry exists");
    let count: usize =
        String::from_utf8_lossy(&found.value).parse().expect("the value is a number");
    let same = Condition::modified_at("count", found.modified);
    let add = Transaction::new().when(same).put("count", (count + 1).to_string());
    match store.commit(add).await.expect("the store takes a transaction") {
        Commit::Applied(_) => true,
        Commit::Refused { condition, found: now } => {
            assert_eq!(condition, 0);
            assert!(now.is_some_and(|now| now.modified > found.modified), "nothing has changed");
            false
        }
    }
}
