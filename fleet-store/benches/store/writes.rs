//! Durable writes: the registry on the embedded store beside redb alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fleet_store::{EmbeddedStore, ExpectUnit, Layout, Registry};
use redb::{Database, TableDefinition};

use crate::{report_beside, unit};

/// How many writes one writer makes.
const WRITES: usize = 400;
/// How many writers there are, where there are many.
const WRITERS: usize = 64;

const ROWS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("rows");

pub(crate) async fn measure() {
    let folder = tempfile::tempdir().expect("a folder");
    // Half of the floor before and half after: a disk has moods.
    let before = floor(&folder.path().join("before.redb"));
    let store = EmbeddedStore::open(folder.path().join("store.redb")).await.expect("a store");
    let registry = Registry::new(Arc::new(store), Layout::DEFAULT_PREFIX);
    let one = one_writer(&registry).await;
    let many = many_writers(&registry).await;
    let redb = f64::midpoint(before, floor(&folder.path().join("after.redb")));
    report_beside("embedded_units_per_s_1_writer", one, redb);
    report_beside("embedded_units_per_s_64_writers", many, redb);
}

/// How many transactions redb makes durable in a second, each with what a new unit writes.
fn floor(path: &Path) -> f64 {
    let database = Database::create(path).expect("a database");
    let begin = Instant::now();
    for number in 0..WRITES / 2 {
        let unit = unit(number);
        let transaction = database.begin_write().expect("a transaction");
        {
            let mut rows = transaction.open_table(ROWS).expect("a table");
            rows.insert(unit.name.as_str(), &[b'r'; 90][..]).expect("a row");
            rows.insert(format!("content {number}").as_str(), unit.file.source()).expect("a row");
        }
        transaction.commit().expect("a commit");
    }
    (WRITES / 2) as f64 / begin.elapsed().as_secs_f64()
}

async fn one_writer(registry: &Registry) -> f64 {
    let begin = Instant::now();
    for number in 0..WRITES {
        registry.put_unit(unit(number), ExpectUnit::Absent).await.expect("a write");
    }
    WRITES as f64 / begin.elapsed().as_secs_f64()
}

async fn many_writers(registry: &Registry) -> f64 {
    let begin = Instant::now();
    let writers = (1..=WRITERS).map(|writer| {
        let registry = registry.clone();
        tokio::spawn(async move {
            for number in 0..WRITES {
                let unit = unit(writer * WRITES + number);
                registry.put_unit(unit, ExpectUnit::Absent).await.expect("a write");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer");
    }
    (WRITERS * WRITES) as f64 / begin.elapsed().as_secs_f64()
}
