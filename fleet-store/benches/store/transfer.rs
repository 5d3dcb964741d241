//! Moving a large cluster to a file, and into a durable store.

use std::sync::Arc;
use std::time::Instant;

use fleet_store::transfer::{Import, ImportOptions, import};
use fleet_store::{EmbeddedStore, Layout, MemoryStore, Registry, Store};

use crate::mirror::{UNITS, fill};
use crate::{heap, report, unit};

pub(crate) async fn measure() {
    let source = over(Arc::new(MemoryStore::new()));
    fill(&source, unit).await;
    let export = source.export().await.expect("a store");
    let (begin, before) = (Instant::now(), heap::live());
    let mut lines = export.lines();
    let held = heap::live() - before;
    let file: Vec<u8> = lines.by_ref().flatten().collect();
    report("export_100000_units_s", begin.elapsed().as_secs_f64());
    report("export_holds_bytes_a_unit", held as f64 / UNITS as f64);
    report("export_mib", file.len() as f64 / f64::from(1 << 20));

    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(folder.path().join("store")).await.expect("a store");
    let target = over(Arc::new(store));
    target.lineage(&"bench".parse().expect("a lineage")).await.expect("a write");
    let (begin, before) = (Instant::now(), heap::live());
    let read = Import::read(file.as_slice()).expect("an export");
    report("import_reads_s", begin.elapsed().as_secs_f64());
    report("import_holds_bytes_a_unit", (heap::live() - before) as f64 / UNITS as f64);
    let begin = Instant::now();
    let imported = import(&target, read, &ImportOptions::default()).await.expect("an import");
    report("import_checked_written_and_read_back_s", begin.elapsed().as_secs_f64());
    assert_eq!((imported.placements_kept, imported.mismatches), (UNITS as u64, Some(Vec::new())));
}

fn over(store: Arc<dyn Store>) -> Registry {
    Registry::new(store, Layout::DEFAULT_PREFIX)
}
