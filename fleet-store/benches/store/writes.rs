//! Durable writes: the registry on the embedded store compared with redb alone.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_core::Epoch;
use fleet_store::registry::{ExpectUnit, PlacementWrites, SetPlacement};
use fleet_store::{EmbeddedStore, Layout, Registry};
use redb::{Database, TableDefinition};

use crate::{report, report_beside, unit};

/// Number of writes of one writer.
const WRITES: usize = 400;
/// Number of concurrent writers.
const WRITERS: usize = 64;
/// Number of rounds in which one writer and redb alone alternate.
const TURNS: usize = 20;
/// Number of placements in a decision, of units that were written before.
const PLACEMENTS: usize = 10_000;

const ROWS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("rows");

pub(crate) async fn measure() {
    let folder = tempfile::tempdir().expect("a folder");
    let raw = Database::create(folder.path().join("raw.redb")).expect("a database");
    let store = EmbeddedStore::open(folder.path().join("store.redb")).await.expect("a store");
    let registry = Registry::new(Arc::new(store), Layout::DEFAULT_PREFIX);
    // Alternate, because the speed of a disk varies over time.
    let (mut floor, mut one) = (Duration::ZERO, Duration::ZERO);
    for turn in 0..TURNS {
        let numbers = turn * WRITES / TURNS..(turn + 1) * WRITES / TURNS;
        let begin = Instant::now();
        numbers.clone().for_each(|number| write_raw(&raw, number));
        floor += begin.elapsed();
        let begin = Instant::now();
        for number in numbers {
            registry.put_unit(unit(number), ExpectUnit::Absent).await.expect("a write");
        }
        one += begin.elapsed();
    }
    let rate = |time: Duration| WRITES as f64 / time.as_secs_f64();
    report_beside("embedded_units_per_s_1_writer", rate(one), rate(floor));
    let many = many_writers(&registry).await;
    report_beside("embedded_units_per_s_64_writers", many, rate(floor));
    placements(&registry, &raw).await;
}

/// Measures a decision on many units, in as few transactions as possible.
async fn placements(registry: &Registry, raw: &Database) {
    let machine = |number: usize| format!("m-{number}").parse().expect("a machine ID");
    let ttl = Duration::from_secs(3600);
    let leader = registry.campaign(&machine(0), ttl).await.expect("a store").expect("no leader");
    let place = |number: usize| SetPlacement {
        unit: unit(number).name,
        machine: machine(number % 100),
        epoch: Epoch(leader.elected().0),
        previous: None,
    };
    let place = (0..PLACEMENTS).map(place).collect();
    let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
    let begin = Instant::now();
    let last = leader.commit(&writes).await.expect("a write");
    let taken = begin.elapsed();
    // There is no other writer, so each revision is one of these transactions.
    let transactions = usize::try_from(last.0 - leader.elected().0).expect("a small number");
    report("placements_10000_transactions", transactions as f64);
    let begin = Instant::now();
    for first in (0..PLACEMENTS).step_by(PLACEMENTS.div_ceil(transactions)) {
        let last = PLACEMENTS.min(first + PLACEMENTS.div_ceil(transactions));
        write_raw_placements(raw, first..last);
    }
    let floor = begin.elapsed().as_secs_f64();
    report_beside("embedded_10000_placements_s", taken.as_secs_f64(), floor);
}

/// Writes the same placements with redb alone.
fn write_raw_placements(database: &Database, numbers: Range<usize>) {
    let transaction = database.begin_write().expect("a transaction");
    {
        let mut rows = transaction.open_table(ROWS).expect("a table");
        for number in numbers {
            let key = format!("placement {number}");
            rows.insert(key.as_str(), &[b'p'; 40][..]).expect("a row");
        }
    }
    transaction.commit().expect("a commit");
}

/// Writes the data of a new unit with redb alone.
fn write_raw(database: &Database, number: usize) {
    let unit = unit(number);
    let transaction = database.begin_write().expect("a transaction");
    {
        let mut rows = transaction.open_table(ROWS).expect("a table");
        rows.insert(unit.name.as_str(), &[b'r'; 90][..]).expect("a row");
        rows.insert(format!("content {number}").as_str(), unit.file.source()).expect("a row");
    }
    transaction.commit().expect("a commit");
}

async fn many_writers(registry: &Registry) -> f64 {
    let begin = Instant::now();
    let writers = (1..=WRITERS).map(|writer| {
        let registry = registry.clone();
        tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for number in 0..WRITES {
                let (unit, begin) = (unit(writer * WRITES + number), Instant::now());
                registry.put_unit(unit, ExpectUnit::Absent).await.expect("a write");
                longest = longest.max(begin.elapsed());
            }
            longest
        })
    });
    let mut longest = Duration::ZERO;
    for writer in writers.collect::<Vec<_>>() {
        longest = longest.max(writer.await.expect("a writer"));
    }
    report("embedded_64_writers_longest_wait_ms", longest.as_secs_f64() * 1e3);
    (WRITERS * WRITES) as f64 / begin.elapsed().as_secs_f64()
}
