//! Units of a graph with real processes: needed units run, in order, and stay up.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_agent::native::{
    InitSnapshot, InitSupervisor, SupervisorConfig, SupervisorError, UnitSnapshot,
};
use fleet_core::graph::format::read_stanzas;
use fleet_core::graph::{
    Activity, BlockedBy, DerivedState, FailureCause, Graph, Retry, Settings, Target, Timeouts,
    WaitReason,
};
use fleet_core::journal::JournalQuery;

use super::event_table::failed;
use crate::support::{Home, runs, signal, wait_until};

/// A supervisor over its own directory, which must be left as empty as it was found.
pub(super) struct Stand {
    pub(super) supervisor: InitSupervisor,
    pub(super) home: Home,
    pub(super) settings: Settings,
}

pub(super) const SLEEP: &str = "exec-start: /bin/sleep 1000\nrestart-delay: 10ms\n";

pub(super) fn graph(stanzas: &str, settings: &Settings) -> Graph {
    let read = read_stanzas(stanzas.as_bytes(), &Timeouts::default());
    assert_eq!(read.diagnostics, [], "{stanzas}");
    let units = read.stanzas.into_iter().filter_map(|stanza| stanza.unit);
    Graph::strict(units, settings).expect("the units form a graph")
}

pub(super) fn supervised(name: &str, more: &str) -> String {
    format!("unit: {name}\ntype: foreground-supervised\nprovides: {name}\n{more}\n")
}

pub(super) fn target(name: &str) -> Target {
    name.parse().expect("it is a name")
}

impl Stand {
    pub(super) async fn new(stanzas: &str, goal: &str) -> Self {
        let settings = Settings { goal: Some(target(goal)), ..Settings::default() };
        Self::with(stanzas, settings, |_| {}).await
    }

    pub(super) async fn with(
        stanzas: &str,
        settings: Settings,
        set_up: impl FnOnce(&mut SupervisorConfig),
    ) -> Self {
        let home = Home::new();
        let graph = graph(stanzas, &settings);
        let supervisor = Self::open_with(&home, graph, &settings, set_up).await;
        Self { supervisor, home, settings }
    }

    pub(super) async fn without_control_groups(stanzas: &str, goal: &str) -> Self {
        let settings = Settings { goal: Some(target(goal)), ..Settings::default() };
        let home = Home::new();
        let mut config = SupervisorConfig::new(home.path("native"));
        config.environment.push(("BENCH".to_owned(), home.mark()));
        config.control_groups = false;
        let started = InitSupervisor::start(config, graph(stanzas, &settings), &settings).await;
        Self { supervisor: started.expect("it starts"), home, settings }
    }

    pub(super) async fn open(home: &Home, graph: Graph, settings: &Settings) -> InitSupervisor {
        Self::open_with(home, graph, settings, |_| {}).await
    }

    pub(super) async fn open_with(
        home: &Home,
        graph: Graph,
        settings: &Settings,
        set_up: impl FnOnce(&mut SupervisorConfig),
    ) -> InitSupervisor {
        let mut config = SupervisorConfig::new(home.path("native"));
        config.environment.push(("BENCH".to_owned(), home.mark()));
        set_up(&mut config);
        InitSupervisor::start(config, graph, settings).await.expect("it starts")
    }

    /// Drops the supervisor, as a crash would, and starts the next one.
    pub(super) async fn again(self, stanzas: &str) -> Self {
        let Self { supervisor, home, settings } = self;
        drop(supervisor);
        let supervisor = Self::open(&home, graph(stanzas, &settings), &settings).await;
        Self { supervisor, home, settings }
    }

    pub(super) async fn unit(&self, name: &str) -> UnitSnapshot {
        let InitSnapshot { units, .. } =
            self.supervisor.snapshot().await.expect("the call succeeds");
        let found = units.into_iter().find(|unit| unit.unit.as_str() == name);
        found.unwrap_or_else(|| panic!("there is no {name}"))
    }

    pub(super) async fn wait_for(
        &self,
        name: &str,
        good: impl Fn(&UnitSnapshot) -> bool,
    ) -> UnitSnapshot {
        let mut found = self.unit(name).await;
        wait_until(&format!("{name} is as it should be"), async || {
            found = self.unit(name).await;
            good(&found)
        })
        .await;
        found
    }

    pub(super) async fn running(&self, name: &str) -> u32 {
        let is_up = |unit: &UnitSnapshot| {
            unit.report.state == DerivedState::Active(Activity::Running) && unit.main_pid.is_some()
        };
        self.wait_for(name, is_up).await.main_pid.expect("it has a main process")
    }

    pub(super) async fn clean_up(self) {
        self.supervisor.shutdown().await.expect("all units stop");
        assert_eq!(self.home.processes(), [0; 0], "processes were left behind");
    }
}

// Holds: G-20, T-18
#[tokio::test]
async fn needed_units_start_in_order_and_stop_in_reverse() {
    let tell = |name: &str, file: &str| {
        format!(
            "exec-start: /bin/sh -c 'echo +{name} >>{file}; exec sleep 1000'\n\
             exec-stop-post: /bin/sh -c 'echo -{name} >>{file}'\nready-wait: 50ms\n"
        )
    };
    let home = Home::new();
    let file = home.path("order").display().to_string();
    let stanzas = [
        supervised("a", &tell("a", &file)),
        supervised("b", &format!("depends-on: a\n{}", tell("b", &file))),
        supervised("c", &format!("waits-for: b\n{}", tell("c", &file))),
        supervised("idle", SLEEP),
    ];
    let stand = Stand::new(&stanzas.concat(), "c").await;
    stand.running("c").await;
    assert_eq!(stand.unit("idle").await.report.state, DerivedState::Disabled);
    stand.clean_up().await;
    let order = std::fs::read_to_string(file).expect("it was written");
    assert_eq!(order.split_whitespace().collect::<Vec<_>>(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
}

// Holds: T-18
#[tokio::test]
async fn lost_dependency_restarts_its_dependents() {
    let stanzas = supervised("db", SLEEP) + &supervised("app", &format!("depends-on: db\n{SLEEP}"));
    let stand = Stand::new(&stanzas, "app").await;
    let (app, db) = (stand.running("app").await, stand.running("db").await);
    signal(db, "KILL");
    let is_new = |unit: &UnitSnapshot| unit.main_pid.is_some_and(|pid| pid != app);
    let status = stand.wait_for("app", is_new).await;
    assert_eq!(status.report.attempts, 0, "that is no failure of its own");
    assert_ne!(stand.running("db").await, db);
    assert!(!runs(app) && !runs(db));
    assert_eq!(stand.unit("db").await.report.attempts, 1);
    stand.clean_up().await;
}

// Holds: G-25
#[tokio::test]
async fn supervisor_exit_changes_nothing() {
    let oneshot = "unit: once\ntype: oneshot\nprovides: once\nexec-start: /bin/true\n";
    let stanzas = supervised("a", &format!("depends-ms: once\n{SLEEP}")) + oneshot;
    let stand = Stand::new(&stanzas, "a").await;
    let pid = stand.running("a").await;
    let stand = stand.again(&stanzas).await;
    assert_eq!(stand.running("a").await, pid);
    assert_eq!(stand.unit("once").await.report.state, DerivedState::Active(Activity::Exited));
    signal(pid, "KILL");
    stand.wait_for("a", |unit| unit.main_pid.is_some_and(|new| new != pid)).await;
    stand.clean_up().await;
}

/// Regression: no state is stored for a unit without processes. It counted as inactive, so its
/// dependents were stopped before it was active again.
// Holds: I-9
#[tokio::test]
async fn dependents_of_virtual_units_survive_a_restart() {
    let none = |name: &str, on: &str| {
        format!("unit: {name}\ntype: virtual\nprovides: {name}\ndepends-on: {on}\n")
    };
    let stanzas = supervised("web", &format!("depends-on: online\n{SLEEP}"))
        + &none("online", "net")
        + &none("net", "link")
        + &supervised("link", SLEEP);
    let stand = Stand::new(&stanzas, "web").await;
    let pid = stand.running("web").await;
    let stand = stand.again(&stanzas).await;
    let up = |unit: &UnitSnapshot| unit.report.state == DerivedState::Active(Activity::Running);
    stand.wait_for("online", up).await;
    assert_eq!(stand.running("web").await, pid);
    // The loss of a dependency still counts.
    let link = stand.running("link").await;
    signal(link, "KILL");
    stand.wait_for("web", |unit| unit.main_pid.is_some_and(|new| new != pid)).await;
    stand.clean_up().await;
}

// Holds: R-12
#[tokio::test]
async fn desired_targets_hold_for_the_next_supervisor() {
    let stanzas = supervised("a", SLEEP) + &supervised("b", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    let pid = stand.running("a").await;
    let extra = BTreeSet::from([target("b")]);
    stand.supervisor.set_goal(None, extra.clone()).await.expect("it is provided");
    let other = stand.running("b").await;
    wait_until("a has ended", async || !runs(pid)).await;
    let stand = stand.again(&stanzas).await;
    assert_eq!(
        stand.supervisor.snapshot().await.expect("the call succeeds").desired.extra_targets,
        extra
    );
    assert_eq!(stand.running("b").await, other);
    let masked = stand.supervisor.mask(&target("b")).await;
    assert!(masked.expect("a unit that is no goal can be masked"));
    stand.wait_for("b", |unit| unit.report.state == DerivedState::Masked).await;
    assert!(!runs(other));
    let stand = stand.again(&stanzas).await;
    assert_eq!(stand.unit("b").await.report.state, DerivedState::Masked);
    stand.clean_up().await;
}

#[tokio::test]
async fn run_journal_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let stand = Stand::new(&supervised("a", &format!("env: SECRET=x\n{SLEEP}")), "a").await;
    let mode = std::fs::metadata(stand.home.path("native")).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    stand.clean_up().await;
}

#[tokio::test]
async fn targets_without_override_follow_new_settings() {
    let units = ["a", "b", "c"].map(|name| supervised(name, SLEEP)).concat();
    let settings = |goal: &str, mask: &[&str]| Settings {
        goal: Some(target(goal)),
        mask: mask.iter().map(|name| target(name)).collect(),
        ..Settings::default()
    };
    let mut stand = Stand::new(&units, "a").await;
    let read = settings("b", &["a"]);
    stand.supervisor.reload(graph(&units, &read), &read).await.expect("it has the goal");
    stand.running("b").await;
    stand.wait_for("a", |unit| unit.report.state == DerivedState::Masked).await;
    // Other settings, and another time after another goal was set.
    for (goal, mask, runs) in [("a", "c", "a"), ("c", "a", "b")] {
        stand.settings = settings(goal, &[mask]);
        stand = stand.again(&units).await;
        stand.running(runs).await;
        stand.wait_for(mask, |unit| unit.report.state == DerivedState::Masked).await;
        let chosen = stand.supervisor.set_goal(Some(target("b")), BTreeSet::new()).await;
        chosen.expect("it is provided");
    }
    stand.clean_up().await;
}

#[tokio::test]
async fn graph_and_goal_change_atomically() {
    let stanzas = supervised("a", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    let pid = stand.running("a").await;
    // The previous goal is removed from the files, and the new one never existed.
    let settings = Settings { goal: Some(target("b")), ..Settings::default() };
    let other = graph(&supervised("b", SLEEP), &settings);
    stand.supervisor.set_goal(None, BTreeSet::from([target("a")])).await.expect("it is provided");
    stand.supervisor.set_goal(Some(target("a")), BTreeSet::new()).await.expect("it is provided");
    stand.supervisor.reload(other, &settings).await.expect("it has its own goal");
    stand.running("b").await;
    wait_until("a has ended", async || !runs(pid)).await;
    // An override holds, so its target must exist and must not be masked.
    let both = stanzas + &supervised("b", SLEEP);
    let settings = Settings { max_starting: std::num::NonZeroU32::new(3), ..settings };
    stand.supervisor.reload(graph(&both, &settings), &settings).await.expect("it has the goal");
    stand.supervisor.set_goal(Some(target("a")), BTreeSet::new()).await.expect("it is provided");
    stand.running("a").await;
    let mask = BTreeSet::from([target("a")]);
    let masked = Settings { mask, ..settings };
    let refused = stand.supervisor.reload(graph(&both, &masked), &masked).await;
    refused.expect_err("the goal is masked");
    let wanted = stand.supervisor.snapshot().await.expect("the call succeeds").desired;
    assert_eq!((wanted.goal, wanted.mask), (Some(target("a")), BTreeSet::new()));
    stand.clean_up().await;
}

// Holds: T-18
#[tokio::test]
async fn reload_affects_changed_units_only() {
    let stanzas = |program: &str| {
        supervised("stays", SLEEP)
            + &supervised("changes", &format!("exec-start: {program}\n"))
            + "unit: all\ntype: virtual\nprovides: all\nwaits-for: stays, changes\n"
    };
    let with_more = stanzas("/bin/sleep 1001").replace("stays, changes", "stays, changes, goes")
        + &supervised("goes", SLEEP);
    let stand = Stand::new(&with_more, "all").await;
    let before = [stand.running("stays").await, stand.running("changes").await];
    let goes = stand.running("goes").await;
    // The next supervisor knows the definition that each unit was started from, and which units are
    // gone.
    let stand = stand.again(&stanzas("/bin/sleep 1002")).await;
    stand.wait_for("changes", |unit| unit.main_pid.is_some_and(|pid| pid != before[1])).await;
    assert_eq!(stand.running("stays").await, before[0]);
    wait_until("removed units have stopped", async || !runs(goes)).await;
    let other = graph(&stanzas("/bin/sleep 1003"), &stand.settings);
    let pid = stand.running("changes").await;
    stand.supervisor.reload(other, &stand.settings).await.expect("it has the goal");
    stand.wait_for("changes", |unit| unit.main_pid.is_some_and(|new| new != pid)).await;
    assert_eq!(stand.running("stays").await, before[0]);
    stand.clean_up().await;
}

/// Regression: a run that could not start, retried without delay, kept the supervisor busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unstartable_unit_does_not_block_the_supervisor() {
    // Such a failure does not count, and is retried whatever the policy.
    let no_delay = "exec-start: /bin/sleep 1000\nrestart: on-abnormal\nrestart-delay: 0\n\
                    restart-factor: 1\n";
    let stanzas = supervised("bad", no_delay)
        + &supervised("good", SLEEP)
        + "unit: all\ntype: virtual\nprovides: all\nwaits-for: bad, good\n";
    let settings = Settings { goal: Some(target("all")), ..Settings::default() };
    let home = Home::new();
    // Blocks the path of its log.
    std::fs::create_dir_all(home.path("native/logs/bad")).expect("it can be created");
    let supervisor = Stand::open(&home, graph(&stanzas, &settings), &settings).await;
    let stand = Stand { supervisor, home, settings };
    stand.running("good").await;
    stand.wait_for("bad", |unit| unit.report.incarnation.is_some_and(|it| it.0 > 5)).await;
    std::fs::remove_dir(stand.home.path("native/logs/bad")).expect("it is there");
    stand.running("bad").await;
    stand.clean_up().await;
}

// Holds: T-3, T-23
#[tokio::test]
async fn failure_has_a_reason_and_can_be_reset() {
    let stanzas = supervised("bad", "exec-start: /no/such/program\nrestart-delay: 1h\n")
        + &supervised("needs", &format!("depends-ms: bad\n{SLEEP}"));
    let stand = Stand::new(&stanzas, "needs").await;
    for run in 1..=2 {
        let is_it = |unit: &UnitSnapshot| unit.report.incarnation.is_some_and(|it| it.0 == run);
        let bad = stand.wait_for("bad", |unit| failed(unit) && is_it(unit)).await;
        let retry = Retry::At(bad.report.since.after(Duration::from_secs(3600)));
        let expected = DerivedState::Failed { cause: FailureCause::Spawn, retry, stuck: false };
        assert_eq!((bad.report.state, bad.report.attempts), (expected, 1));
        let problem = bad.problem.expect("the problem is reported");
        assert!(problem.contains("cannot run /no/such/program"), "{problem}");
        let doomed = WaitReason::Blocked(vec![(target("bad"), BlockedBy::Failed)]);
        assert_eq!(stand.unit("needs").await.report.state, DerivedState::Waiting(doomed));
        let mut journal =
            stand.supervisor.journal(&bad.unit, &JournalQuery::default()).expect("it ran");
        for _ in 0..run {
            assert!(journal.next().await.is_some_and(|line| line.contains("/no/such/program")));
        }
        assert_eq!(journal.next().await, None, "it was started once each time");
        assert!(stand.supervisor.reset_failed(&target("bad")).await.expect("the call succeeds"));
    }
    stand.clean_up().await;
}

/// Regression: the supervisor ignored the cursor, and returned all lines again.
#[tokio::test]
async fn journal_of_files_resumes_after_a_cursor() {
    let script = "echo one; echo two; echo three; exec sleep 1000";
    let stanzas = supervised("main", &format!("exec-start: /bin/sh -c '{script}'\n"));
    let stand = Stand::new(&stanzas, "main").await;
    let is_active = |unit: &UnitSnapshot| matches!(unit.report.state, DerivedState::Active(_));
    let unit = stand.wait_for("main", is_active).await.unit;
    let query = JournalQuery::default().with_follow(true);
    let journal = |query| stand.supervisor.journal(&unit, &query).expect("it can be read");
    let first = journal(query.clone()).next_line().await.expect("it is followed");
    assert_eq!(first.text, "one");
    let mut rest = journal(query.with_after(first.cursor));
    for line in ["two", "three"] {
        assert_eq!(rest.next().await.as_deref(), Some(line));
    }
    drop(rest);
    stand.clean_up().await;
}

/// Regression: of several commands, the reason did not name the one that had failed.
#[tokio::test]
async fn failing_command_is_named_with_its_key() {
    let oneshot = |name: &str, lines: &str| {
        format!("unit: {name}\ntype: oneshot\nprovides: {name}\nrestart: never\n{lines}\n")
    };
    let stanzas = [
        oneshot("main", "exec-start: /bin/true\nexec-start: /bin/false 2"),
        oneshot(
            "pre",
            "exec-start-pre: /bin/true\nexec-start-pre: /bin/false x\nexec-start: /bin/a",
        ),
        oneshot("alone", "exec-start: /bin/false"),
        oneshot("there", "directory: /no/such\nexec-start: /bin/true"),
        "unit: all\ntype: virtual\nprovides: all\nwaits-for: main, pre, alone, there\n".to_owned(),
    ];
    let stand = Stand::new(&stanzas.concat(), "all").await;
    for (name, expected) in [
        ("main", Some("exec-start failed: /bin/false 2")),
        ("pre", Some("exec-start-pre failed: /bin/false x")),
        ("alone", None),
    ] {
        let is_over = |unit: &UnitSnapshot| {
            matches!(unit.report.state, DerivedState::Failed { retry: Retry::Never, .. })
        };
        assert_eq!(stand.wait_for(name, is_over).await.problem.as_deref(), expected, "{name}");
    }
    let there = stand.wait_for("there", |unit| unit.problem.is_some()).await.problem;
    let problem = there.expect("it was awaited");
    assert!(problem.contains("cannot enter its working directory /no/such: "), "{problem}");
    stand.clean_up().await;
}

// Holds: R-12
#[tokio::test]
async fn masks_of_operators_add_to_those_of_the_settings() {
    let units = ["a", "b", "c"].map(|name| supervised(name, SLEEP)).concat()
        + "unit: all\ntype: virtual\nprovides: all\nwaits-for: a, b, c\n";
    let settings = |mask: &str| Settings {
        goal: Some(target("all")),
        mask: BTreeSet::from([target(mask)]),
        ..Settings::default()
    };
    let stand = Stand::with(&units, settings("a"), |_| {}).await;
    let pid = stand.running("b").await;
    let is_masked = |unit: &UnitSnapshot| unit.report.state == DerivedState::Masked;
    let of = |name: &str| target(name);
    assert!(stand.supervisor.mask(&of("b")).await.expect("b is no goal"));
    stand.wait_for("b", is_masked).await;
    assert!(!runs(pid));
    assert!(!stand.supervisor.mask(&of("b")).await.expect("b is no goal"), "it was masked");
    let goal = stand.supervisor.mask(&of("all")).await;
    assert!(matches!(goal, Err(SupervisorError::InvalidTargets(_))), "{goal:?}");
    let configured = stand.supervisor.unmask(&of("a")).await;
    assert!(matches!(configured, Err(SupervisorError::MaskedBySettings { .. })), "{configured:?}");
    // The mask of the settings moves, that of the operator stays.
    let read = settings("c");
    stand.supervisor.reload(graph(&units, &read), &read).await.expect("it has the goal");
    stand.running("a").await;
    stand.wait_for("b", is_masked).await;
    stand.wait_for("c", is_masked).await;
    assert!(stand.supervisor.unmask(&of("b")).await.expect("the settings do not mask it"));
    stand.running("b").await;
    assert!(!stand.supervisor.unmask(&of("b")).await.expect("the settings do not mask it"));
    stand.clean_up().await;
}
