//! Process attributes and limits, and reasons that keep a unit from starting.

use std::num::NonZeroU32;

use fleet_agent::ServiceManager as _;
use fleet_agent::native::Tracking;
use fleet_core::ActiveState;
use futures_util::future::join_all;

use crate::support::{Bench, name};

#[tokio::test]
async fn max_starting_is_respected() {
    let bench = Bench::with(|config| config.max_starting = NonZeroU32::new(1)).await;
    let file = bench.path("turns").display().to_string();
    let script = format!("echo begin >>{file}; sleep 0.01; echo end >>{file}");
    let units: Vec<String> = (0..8).map(|number| format!("u{number}.service")).collect();
    for unit in &units {
        bench.load(unit, &format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n")).await;
    }
    let started = join_all(units.iter().map(|unit| bench.start(unit))).await;
    assert!(started.iter().all(Result::is_ok), "{started:?}");
    let turns = std::fs::read_to_string(bench.path("turns")).expect("they ran");
    assert_eq!(turns, "begin\nend\n".repeat(8));
    bench.clean_up().await;
}

#[tokio::test]
async fn process_attributes_follow_the_unit() {
    let bench = Bench::new().await;
    let out = bench.path("out");
    let script = format!(
        "{{ ulimit -n; ulimit -c; ulimit -Hs; nice; cat /proc/self/oom_score_adj; umask; pwd; }} \
         >{}",
        out.display()
    );
    let service = format!(
        "Type=oneshot\nExecStart=/bin/sh -c '{script}'\nLimitNOFILE=64:128\nLimitCORE=0\n\
         LimitSTACK=8M\nNice=7\nOOMScoreAdjust=300\nUMask=0027\nWorkingDirectory=/usr\n"
    );
    bench.run("a.service", &service).await;
    let lines = bench.wait_for_lines("out", 7).await;
    assert_eq!(lines, ["64", "0", "8192", "7", "300", "0027", "/usr"]);
    bench.clean_up().await;
}

#[tokio::test]
async fn process_has_groups_of_user_and_unit() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Bench::new().await;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(bench.path(""), open).expect("the directory belongs to this user");
    let out = bench.path("out");
    let service = format!(
        "Type=oneshot\nUser=nobody\nGroup=daemon\nSupplementaryGroups=2 3\n\
         WorkingDirectory=/usr\n\
         ExecStart=/bin/sh -c '{{ id -un; id -gn; id -G; pwd; }} >{}'\n",
        out.display()
    );
    bench.run("a.service", &service).await;
    let lines = bench.wait_for_lines("out", 4).await;
    assert_eq!([&lines[0], &lines[1], &lines[3]], ["nobody", "daemon", "/usr"]);
    for group in ["2", "3"] {
        assert!(lines[2].split(' ').any(|it| it == group), "{lines:?}");
    }
    assert!(!lines[2].split(' ').any(|it| it == "0"), "nothing of root is left: {lines:?}");
    bench.clean_up().await;
}

#[tokio::test]
async fn cgroup_limits_are_set_or_ignored_with_a_remark() {
    let bench = Bench::new().await;
    let text = "[Service]\nExecStart=/bin/sleep 1000\nTasksMax=17\n";
    bench.try_load("a.service", text).await.expect("it loads");
    bench.start("a.service").await.expect("it starts");
    let ignored = async |bench: &Bench| {
        let details = bench.manager.details(&name("a.service")).await;
        details.expect("it is loaded").ignored_options
    };
    if ignored(&bench).await.is_empty() {
        let pid = bench.pid("a.service").await;
        let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
        let group = group.lines().find_map(|it| it.strip_prefix("0::")).expect("it has one");
        let path = format!("/sys/fs/cgroup{group}/pids.max");
        assert_eq!(std::fs::read_to_string(path).expect("it is there"), "17\n");
    } else {
        assert_eq!(ignored(&bench).await, ["TasksMax= (line 3)"]);
    }
    bench.clean_up().await;

    let bench = Bench::with(|config| config.control_groups = false).await;
    assert!(matches!(bench.manager.tracking(), Tracking::Environment { .. }));
    bench.try_load("a.service", text).await.expect("it loads");
    assert_eq!(ignored(&bench).await, ["TasksMax= (line 3)"]);
    bench.clean_up().await;
}

#[tokio::test]
async fn unit_with_false_condition_is_skipped() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let unit = |option: &str| {
        format!("[Unit]\n{option}={}\n[Service]\nExecStart=/bin/sleep 1000\n", gate.display())
    };
    for (option, active) in
        [("ConditionPathExists", ActiveState::Inactive), ("AssertPathExists", ActiveState::Failed)]
    {
        bench.try_load("a.service", &unit(option)).await.expect("it can be loaded");
        let error = bench.start("a.service").await.expect_err("the limit is invalid").to_string();
        assert!(error.contains(&format!("its {option}=")), "{error}");
        assert_eq!(bench.state("a.service").await.active, active);
    }
    std::fs::write(&gate, "").expect("it can be created");
    bench.start("a.service").await.expect("the limit is valid");
    bench.clean_up().await;
}
