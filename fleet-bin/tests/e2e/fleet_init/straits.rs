//! A fleet-init that runs units of files, in straits: without memory, and at its end.

use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};

use super::Init;
use super::files::{start, wait_state};
use crate::daemon::{is_alive, wait_for};

#[test]
fn one_without_memory_refuses_or_ends_and_no_unit_ends_with_it() {
    let mut init = start();
    let units = ["db", "web"].map(|name| wait_state(&init, name, "running").unwrap());
    // From now on it gets no more than it has.
    for kind in [Resource::As, Resource::Data] {
        let none = Rlimit { current: Some(1), maximum: None };
        prlimit(Some(init.pid()), kind, none).unwrap();
    }
    let many = init.home.path().join("units/many.unit");
    let one = |number| format!("unit: u{number}\ntype: virtual\nprovides: u{number}\n");
    std::fs::write(&many, (0..20_000).map(one).collect::<String>()).unwrap();
    init.signal(Signal::HUP);
    let log = init.home.path().join("log");
    let refuses = || std::fs::read_to_string(&log).unwrap().contains("runs on with the units");
    wait_for("it refuses or has ended", || (refuses() || !is_alive(init.pid())).then_some(()));
    let (answers, told) = init.ask(&["status"]);
    assert!(!answers.success() || told.contains("  └─db (depends-on)\trunning"), "{told}");
    assert!(units.into_iter().all(is_alive), "a unit ended");
    // Without memory it may have ended by now.
    let _ended = kill_process(init.pid(), Signal::KILL);
    assert!(!init.wait().success());
    std::fs::remove_file(many).unwrap();
    init.start_again();
    let after = ["db", "web"].map(|name| wait_state(&init, name, "running").unwrap());
    assert_eq!(after, units);
}

#[test]
fn files_that_are_read_again_at_its_end_start_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (file, begun) = (path("all.unit"), path("begun"));
    let text = format!(
        "unit: all\ntype: virtual\nprovides: all\nwaits-for: quick, slow\n\
         unit: quick\ntype: foreground-supervised\nprovides: quick\n\
         exec-start: /bin/sh -c 'echo quick >>{begun}; exec sleep 100000'\n\
         unit: slow\ntype: foreground-supervised\nprovides: slow\nstop-timeout: none\n\
         exec-start: /bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'\n"
    );
    std::fs::write(&file, &text).unwrap();
    let mut init = Init::start_in(home, &[], &[&file, "--goal", "all"]);
    let [quick, slow] = ["quick", "slow"].map(|name| wait_state(&init, name, "running").unwrap());
    wait_for("it has begun", || {
        std::fs::metadata(&begun).is_ok_and(|it| it.len() > 0).then_some(())
    });
    init.signal(Signal::TERM);
    wait_for("one ends at once", || (!is_alive(quick)).then_some(()));
    std::fs::write(&file, text.replace("quick >>", "new >>")).unwrap();
    init.signal(Signal::HUP);
    assert_eq!(init.ask(&["reload"]).0.code(), Some(1), "nobody can ask it any more");
    assert!(is_alive(slow), "it takes its time");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "quick\n");
}
