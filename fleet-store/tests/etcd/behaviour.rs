//! Behaviour of etcd that clients must handle beyond the contract.

use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{
    Commit, Condition, EtcdConfig, EtcdStore, EtcdTls, EtcdUser, Expect, Store as _, StoreError,
    Transaction,
};

use crate::cluster::{Cluster, Kind};
use crate::support::{chain, next, put, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn large_range_is_read_at_one_revision() {
    let cluster = Cluster::one().await;
    let store = cluster.store("test/");
    for block in 0..24 {
        let small = (0..100).map(|i| (format!("m/{block:02}/{i:02}"), Vec::new()));
        let small = small.fold(Transaction::new(), |t, (key, value)| t.put(key, value));
        store.commit(small).await.unwrap();
        let large = vec![7; Transaction::MAX_BYTES - 100];
        store.commit(Transaction::new().put(format!("n/{block:02}"), large)).await.unwrap();
    }
    let count = async |i: u32| {
        let both = Transaction::new().put("a", i.to_string()).put("z", i.to_string());
        store.commit(both).await.unwrap();
    };
    count(0).await;
    let reading = async {
        for _ in 0..5 {
            let listing = store.read("").await.unwrap();
            assert_eq!(listing.entries.len(), 24 * 101 + 2);
            assert!(listing.entries.is_sorted_by(|a, b| a.key < b.key));
            let (first, last) = (&listing.entries[0], &listing.entries[24 * 101 + 1]);
            assert_eq!((&first.value, first.modified), (&last.value, last.modified));
        }
    };
    let mut reading = std::pin::pin!(reading);
    for i in 1.. {
        tokio::select! {
            biased;
            () = &mut reading => return,
            () = count(i) => {}
        }
    }
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn watch_catches_up_over_several_responses() {
    let cluster = Cluster::one().await;
    let store = cluster.store("test/");
    let before = put(&store, "a", "").await;
    let value = vec![7; Transaction::MAX_BYTES / 4];
    let mut made = Vec::new();
    for _ in 0..40 {
        let keys = ["a", "b", "c"].into_iter();
        let large = keys.fold(Transaction::new(), |t, key| t.put(key, value.clone()));
        let Commit::Applied(revision) = store.commit(large).await.unwrap() else {
            panic!("refused")
        };
        made.push(revision);
    }
    let mut watch = store.watch("", before).await.unwrap();
    for revision in made {
        let seen = next(&mut watch).await;
        let keys: Vec<_> = seen.changes.iter().map(|change| &*change.key).collect();
        assert_eq!((seen.revision, keys), (revision, vec!["a", "b", "c"]));
    }
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn compacted_revision_cannot_be_watched() {
    let cluster = Cluster::one().await;
    let store = cluster.store("test/");
    let mut made = Vec::new();
    for i in 0..5 {
        made.push(put(&store, "a", &i.to_string()).await);
    }
    cluster.etcdctl(&["compact", &made[3].to_string()]);
    for after in [Revision(1), made[0], made[1]] {
        let compacted = store.watch("", after).await;
        assert!(
            matches!(compacted, Err(StoreError::Compacted { oldest }) if oldest == made[2]),
            "{compacted:?}"
        );
    }
    let mut watch = store.watch("", made[2]).await.unwrap();
    assert_eq!(next(&mut watch).await.revision, made[3]);
    assert_eq!(next(&mut watch).await.revision, made[4]);
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn stores_with_different_prefixes_are_separate() {
    let cluster = Cluster::one().await;
    let (one, other) = (cluster.store("test/1/"), cluster.store("test/2/"));
    let revision = put(&one, "a", "1").await;
    let mut watch = one.watch("", revision).await.unwrap();
    put(&other, "a", "2").await;
    let absent = Transaction::new().when(Condition::absent("b")).put("b", "");
    assert!(matches!(other.commit(absent).await.unwrap(), Commit::Applied(_)));
    let seen = put(&one, "c", "1").await;
    assert_eq!(next(&mut watch).await.revision, seen);
    assert_eq!(one.read("").await.unwrap().entries.len(), 2);
    assert_eq!(cluster.store("").read("test/").await.unwrap().entries.len(), 4);
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn ended_lease_is_named() {
    let cluster = Cluster::one().await;
    let store = cluster.store("test/");
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(store.grant(Duration::from_secs(3600)).await.unwrap());
    }
    for ended in leases.clone() {
        store.revoke(ended).await.unwrap();
        let bind = leases.iter().fold(Transaction::new(), |transaction, lease| {
            transaction.put_leased(lease.to_string(), "", *lease)
        });
        let lost = store.commit(bind).await;
        assert!(matches!(lost, Err(StoreError::LeaseLost(lease)) if lease == ended), "{lost:?}");
        leases.retain(|lease| *lease != ended);
    }
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn transaction_with_long_keys_works() {
    let cluster = Cluster::one().await;
    let store = cluster.store("test/");
    let long = |i: usize| format!("{i:0>4000}");
    let writes = (0..100).fold(Transaction::new(), |transaction, i| {
        transaction.when(Condition::absent(long(i))).put(long(i), "")
    });
    assert!(matches!(store.commit(writes.clone()).await.unwrap(), Commit::Applied(_)));
    let refused = store.commit(writes).await.unwrap();
    assert!(
        matches!(&refused, Commit::Refused { condition: 0, found: Some(entry) }
            if entry.key == long(0)),
        "{refused:?}"
    );
    let written_by_none = Condition { key: long(200), expect: Expect::ModifiedAt(Revision::ZERO) };
    let refused = store.commit(Transaction::new().when(written_by_none)).await.unwrap();
    assert_eq!(refused, Commit::Refused { condition: 0, found: None });
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn rejected_user_gets_the_cause_and_no_effect() {
    let cluster = Cluster::three_secure().await;
    let good = cluster.config("test/");
    let stranger = EtcdUser { name: "fleet".to_owned(), password: "wrong".to_owned() };
    let no_certificate = EtcdTls { identity: None, ..good.tls.clone() };
    let other_authority = EtcdTls { ca: None, ..good.tls.clone() };
    let cases = [
        (EtcdConfig { user: Some(stranger), ..good.clone() }, "invalid user ID or password"),
        (EtcdConfig { user: None, ..good.clone() }, "permission denied"),
        (EtcdConfig { key_prefix: "else/".to_owned(), ..good.clone() }, "permission denied"),
        (EtcdConfig { tls: no_certificate, ..good.clone() }, ""),
        (EtcdConfig { tls: other_authority, ..good.clone() }, "UnknownIssuer"),
    ];
    for (config, why) in cases {
        let store = EtcdStore::new(&config).unwrap();
        let outcomes = [
            store.commit(Transaction::new().put("a", "")).await.map(|_| ()),
            store.read("").await.map(|_| ()),
            store.watch("", Revision(1)).await.map(|_| ()),
        ];
        for outcome in outcomes {
            let error = outcome.expect_err("it is not let in");
            assert!(chain(&error).contains(why), "{why:?}: {}", chain(&error));
            let doubted = why.is_empty(); // the server closes the connection during the request
            let undone = matches!(error, StoreError::Unavailable(_));
            assert!(undone || doubted, "{}", chain(&error));
        }
    }
    let store = EtcdStore::new(&good).unwrap();
    put(&store, "a", "").await;
    assert_eq!(store.read("").await.unwrap().entries.len(), 1);
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn configured_user_works_without_authentication() {
    let cluster = Cluster::one().await;
    let user = EtcdUser { name: "fleet".to_owned(), password: "secret".to_owned() };
    let config = EtcdConfig { user: Some(user), ..cluster.config("test/") };
    put(&EtcdStore::new(&config).unwrap(), "a", "").await;
}

/// A watch also reports revisions that changed only keys under other prefixes. A reader that waits
/// for such a revision must not wait until the next write under its own prefix.
#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn watch_learns_of_foreign_revisions() {
    let arguments = &["--experimental-watch-progress-notify-interval=1s"];
    let cluster = Cluster::start(Kind { members: 1, secure: false, arguments }).await;
    let (own, foreign) = (cluster.store("test/"), cluster.store("else/"));
    let mut watch = own.watch("", put(&own, "a", "").await).await.unwrap();
    let other = put(&foreign, "a", "").await;
    while soon(watch.next()).await.unwrap().revision < other {}
    let own = put(&own, "a", "").await;
    assert_eq!(next(&mut watch).await.revision, own);
}
