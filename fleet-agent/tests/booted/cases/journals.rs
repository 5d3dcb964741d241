//! The output of units.

use fleet_agent::journal::Journal;
use fleet_agent::journal::JournalReader as _;
use fleet_core::journal::JournalQuery;

use crate::bench::{Bench, DEADLINE, name, shell, wait_until};

async fn next(journal: &mut Journal) -> Option<String> {
    tokio::time::timeout(DEADLINE, journal.next()).await.expect("a line comes in time")
}

fn readers() -> String {
    shell("ps -C journalctl -o pid= || true")
}

pub(crate) async fn journal_can_be_followed() {
    let bench = Bench::new().await;
    let script = r#"i=0; while :; do until [ -e /run/line$i ]; do sleep 0.02; done; \
                    cat /run/line$i; i=$((i+1)); done"#;
    let text = format!("[Service]\nExecStart=/bin/sh -c '{}'\n", script.replace('$', "$$"));
    bench.run("writer.service", &text).await;
    shell("printf 'zero\\n' >/run/l; mv /run/l /run/line0");
    let unit = name("writer.service");
    let query = JournalQuery::default().with_follow(true);
    let mut journal = bench.manager.journal(&unit, query).await.expect("it has one");
    assert_eq!(next(&mut journal).await.as_deref(), Some("zero"));
    shell("printf '\\377odd\\ntwo\\n' >/run/l; mv /run/l /run/line1");
    for line in ["\u{fffd}odd", "two"] {
        assert_eq!(next(&mut journal).await.as_deref(), Some(line));
    }
    shell("head -c 20000 /dev/zero | tr '\\0' x >/run/l; echo >>/run/l; mv /run/l /run/line2");
    assert_eq!(next(&mut journal).await.map(|line| line.len()), Some(20_000));
    assert_ne!(readers(), "", "it has a reader");
    drop(journal);
    wait_until("journalctl ends with the reader", async || readers().is_empty()).await;
    let query = JournalQuery::default().with_lines(2);
    let mut journal = bench.manager.journal(&unit, query).await.expect("it has one");
    assert_eq!(next(&mut journal).await.as_deref(), Some("two"));
    assert_eq!(next(&mut journal).await.map(|line| line.len()), Some(20_000));
    assert_eq!(next(&mut journal).await, None, "it ends by itself");
    bench.unload("writer.service").await;
}
