//! Cost of running units through the manager, compared with `systemctl`. Nothing is asserted.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::bench::{Bench, SLEEP, print_line, shell};

const ROUNDS: usize = 21;
const MANY: usize = 200;

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

fn figure(text: &str) {
    print_line(&format!("figure: {text}"));
}

pub(crate) async fn cost_compared_with_systemctl() {
    let bench = Bench::new().await;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (one, other) = (format!("theirs{round}.service"), format!("ours{round}.service"));
        let begin = Instant::now();
        shell(&format!(
            "printf '{}' >/run/systemd/system/{one}; systemctl start {one}",
            SLEEP.escape_default()
        ));
        theirs.push(begin.elapsed());
        let begin = Instant::now();
        bench.run(&other, SLEEP).await;
        ours.push(begin.elapsed());
        bench.unload(&other).await;
        shell(&format!("systemctl stop {one}; rm /run/systemd/system/{one}"));
    }
    figure(&format!("one unit, systemctl start, median of {ROUNDS}: {:?}", median(theirs)));
    figure(&format!("one unit, load to started, median of {ROUNDS}: {:?}", median(ours)));

    let begin = Instant::now();
    shell(&format!(
        "cd /run/systemd/system; for i in $(seq {MANY}); do \
         printf '{}' >theirs-$i.service; done; \
         systemctl start $(for i in $(seq {MANY}); do echo theirs-$i.service; done)",
        SLEEP.escape_default()
    ));
    figure(&format!("{MANY} units, one systemctl start: {:?}", begin.elapsed()));
    shell(&format!(
        "cd /run/systemd/system; \
         systemctl stop $(for i in $(seq {MANY}); do echo theirs-$i.service; done); rm theirs-*"
    ));
    let names: Vec<String> = (0..MANY).map(|number| format!("ours-{number}.service")).collect();
    let begin = Instant::now();
    let loads = names.iter().map(async |unit| bench.try_load(unit, SLEEP).await.expect("loads"));
    join_all(loads).await;
    let loaded = begin.elapsed();
    fleet_agent::ServiceManager::reload(&*bench.manager).await.expect("reads");
    let read = begin.elapsed();
    join_all(names.iter().map(async |unit| bench.start(unit).await.expect("starts"))).await;
    let started = begin.elapsed();
    figure(&format!("{MANY} units, loaded after {loaded:?}, read {read:?}, started {started:?}"));
    let begin = Instant::now();
    join_all(names.iter().map(async |unit| bench.unload(unit).await)).await;
    figure(&format!("{MANY} units, unloaded in {:?}", begin.elapsed()));
}
