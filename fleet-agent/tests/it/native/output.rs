//! Output of units.

use std::os::unix::fs::MetadataExt as _;

use fleet_agent::ServiceManager;
use fleet_core::journal::JournalQuery;

use crate::support::{Bench, DEADLINE, hasty, name, runs, signal, signal_group, wait_until};

#[tokio::test]
async fn stdout_and_stderr_are_kept_in_order() {
    let bench = Bench::new().await;
    bench
        .run("a.service", "Type=oneshot\nExecStart=/bin/sh -c 'echo 1; echo 2 >&2; echo 3'\n")
        .await;
    assert_eq!(bench.log("a.service").await, ["1", "2", "3"]);
    let query = JournalQuery::default().with_lines(2);
    let mut journal = bench.journal("a.service", query).await;
    assert_eq!(journal.next().await.as_deref(), Some("2"));
    bench.start("a.service").await.expect("it runs again");
    assert_eq!(bench.log("a.service").await.len(), 6);
    bench.clean_up().await;
}

/// Regression: nothing showed that a unit had removed its earlier output with `> /dev/stderr`.
#[tokio::test]
async fn truncated_log_says_so() {
    let bench = Bench::new().await;
    bench.run("a.service", "Type=oneshot\nExecStart=/bin/echo a long line\n").await;
    assert_eq!(bench.log("a.service").await, ["a long line"]);
    let log = bench.path("native/units/a.service/log");
    std::fs::write(&log, "new\n").expect("it can be written");
    let notice = "[earlier lines are lost: another program has truncated this log]";
    assert_eq!(bench.log("a.service").await, [notice, "new"]);
    let query = JournalQuery::default().with_lines(1);
    bench.start("a.service").await.expect("it runs again");
    let mut journal = bench.journal("a.service", query).await;
    assert_eq!(journal.next().await.as_deref(), Some("a long line"), "the last lines are there");
    bench.clean_up().await;
}

/// Regression: the next output continued the last line of a process that had no newline.
#[tokio::test]
async fn last_line_without_newline_is_ended_before_the_next_output() {
    let bench = Bench::new().await;
    let print = |word: &str| format!("/bin/sh -c 'printf {word}'\n");
    let (first, second) = (print("first"), print("second"));
    bench.run("a.service", &format!("Type=oneshot\nExecStartPre={first}ExecStart={second}")).await;
    bench.start("a.service").await.expect("it runs again");
    assert_eq!(bench.log("a.service").await, ["first", "second", "first", "second"]);
    bench.clean_up().await;
}

#[tokio::test]
async fn output_may_be_discarded() {
    let bench = Bench::new().await;
    let service = "Type=oneshot\nExecStart=/bin/sh -c 'echo 1; echo 2 >&2'\nStandardOutput=";
    for (unit, setting, expected) in [
        ("null.service", "null\n", &[][..]),
        ("error.service", "null\nStandardError=journal\n", &["2"]),
        ("journal.service", "journal\nStandardError=null\n", &["1"]),
        ("inherit.service", "inherit\n", &[]),
        ("both.service", "journal\nStandardError=inherit\n", &["1", "2"]),
    ] {
        bench.run(unit, &format!("{service}{setting}")).await;
        assert_eq!(bench.log(unit).await, expected, "{unit}");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn output_may_go_to_files() {
    let bench = Bench::new().await;
    let file = |name: &str| bench.path(name).display().to_string();
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).expect("it is there");
    let script = "Type=oneshot\nExecStart=/bin/sh -c 'echo 1; echo 2 >&2; echo 3'\n";
    for (kind, expected) in
        [("append", "0123456\n1\n2\n3\n"), ("file", "1\n2\n3\n6\n"), ("truncate", "1\n2\n3\n")]
    {
        std::fs::write(bench.path(kind), "0123456\n").expect("it can be written");
        let unit = format!("{kind}.service");
        bench.run(&unit, &format!("{script}StandardOutput={kind}:{}\n", file(kind))).await;
        assert_eq!(read(kind), expected, "{kind}");
    }
    let apart =
        format!("StandardOutput=append:{}\nStandardError=append:{}\n", file("o"), file("e"));
    bench.run("apart.service", &format!("{script}{apart}")).await;
    assert_eq!((read("o").as_str(), read("e").as_str()), ("1\n3\n", "2\n"));
    assert_eq!(bench.log("apart.service").await, [""; 0]);
    bench.load("lost.service", &format!("{script}StandardOutput=append:/no/such/file\n")).await;
    let error = bench.start("lost.service").await.expect_err("its output cannot be opened");
    assert!(error.to_string().contains("cannot open /no/such/file for writing"), "{error}");
    bench.clean_up().await;
}

#[tokio::test]
async fn followed_journal_gets_new_lines_and_ends_with_the_unit() {
    let bench = Bench::new().await;
    let script = "trap \"echo new\" HUP; echo old; while :; do sleep 0.01; done";
    bench.run("a.service", &format!("ExecStart=/bin/sh -c '{script}'\n")).await;
    let query = JournalQuery::default().with_follow(true);
    let mut journal = bench.journal("a.service", query).await;
    for expected in ["old", "new", "new"] {
        let next = tokio::time::timeout(DEADLINE, journal.next()).await.expect("a line comes");
        assert_eq!(next.as_deref(), Some(expected));
        signal(bench.pid("a.service").await, "HUP");
    }
    bench.manager.unload(&name("a.service")).await.expect("it is unloaded");
    let end = async { while journal.next().await.is_some() {} };
    tokio::time::timeout(DEADLINE, end).await.expect("the journal ends");
    bench.clean_up().await;
}

#[tokio::test]
async fn log_stays_within_its_limit() {
    let bench = Bench::with(|config| {
        config.log_limit = 10_000;
        config.clock = hasty();
    })
    .await;
    let service = "ExecStart=/bin/sh -c 'i=0; while [ $$i -lt 5000 ]; do echo line $$i; \
                   i=$$((i+1)); done; exec sleep 1000'\n";
    bench.run("a.service", service).await;
    let log = bench.path("native/units/a.service/log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the log has rotated", async || {
        let text = read();
        text.trim_start_matches('\0').len() <= 10_000 && text.ends_with("line 4999\n")
    })
    .await;
    // The older half is a hole, unless the file system has no support for holes.
    let (lines, text) = (bench.log("a.service").await, read());
    assert_eq!(lines.join("\n") + "\n", text.trim_start_matches('\0'));
    assert!(lines[0].starts_with("line "), "{}", lines[0]);
    bench.clean_up().await;
}

#[tokio::test]
async fn rotating_log_loses_no_line() {
    let bench = Bench::with(|config| config.log_limit = 10_000).await;
    let service = format!(
        "ExecStart=/bin/sh -c 'i=0; while [ $$i -lt 50000 ]; do echo line $$i; i=$$((i+1)); done; \
         echo >{}; exec sleep 1000'\n",
        bench.path("done").display()
    );
    bench.run("a.service", &service).await;
    let dead = bench.kill().await;
    wait_until("all is written", async || dead.path("done").exists()).await;
    let bench = dead.revive().await;
    let log = bench.path("native/units/a.service/log");
    wait_until("the log has rotated", async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.trim_start_matches('\0').len() <= 10_000
    })
    .await;
    let lines = bench.log("a.service").await;
    let expected: Vec<String> =
        (50_000 - lines.len()..50_000).map(|number| format!("line {number}")).collect();
    assert!(lines.len() > 200, "{} lines", lines.len());
    assert_eq!(lines, expected);
    bench.clean_up().await;
}

/// Regression: the log of such a unit was not limited, since the unit is not loaded.
#[tokio::test]
async fn log_of_an_unrecoverable_unit_is_limited() {
    const LIMIT: u64 = 1 << 20;
    let bench = Bench::new().await;
    let (gate, over) = (bench.path("gate"), bench.path("over"));
    let script = format!(
        "while ! test -e {}; do sleep 0.01; done; yes | head -c 20000000; echo >{}; \
         exec sleep 1000",
        gate.display(),
        over.display()
    );
    bench.run("a.service", &format!("ExecStart=/bin/sh -c '{script}'\n")).await;
    let pid = bench.pid("a.service").await;
    let log = bench.path("native/units/a.service/log");
    let dead = bench.kill().await;
    let record = dead.path("native/units/a.service/run.json");
    let text = std::fs::read_to_string(&record).expect("there is a record");
    std::fs::write(&record, text.replace("running", "resting")).expect("it can be written");
    let bench = dead.with(|config| config.log_limit = LIMIT).revive().await;
    assert_eq!(bench.manager.get(&name("a.service")).await.expect("the call succeeds"), None);
    std::fs::write(gate, "").expect("it can be written");
    let taken = || std::fs::metadata(&log).expect("it is there").blocks() * 512;
    wait_until("its log is short", async || over.exists() && taken() < 2 * LIMIT).await;
    signal_group(pid, "KILL");
    wait_until("it has exited", async || !runs(pid)).await;
    bench.clean_up().await;
}
