//! Runs the `fleet-init` program on files.

mod check;
mod convert;
mod refusals;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates a folder with a valid system (`home`) and an invalid one (`bad`).
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/home");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    for file in ["home.unit", "init.conf"] {
        std::fs::copy(example.join(file), home.join(file)).unwrap();
    }
    std::fs::write(home.join("README"), "not a unit\n").unwrap();
    std::fs::write(home.join(".hidden.unit"), "not read\n").unwrap();
    let bad = folder.path().join("bad");
    std::fs::create_dir(&bad).unwrap();
    std::fs::write(bad.join("init.conf"), "goal: wbe\n").unwrap();
    let web = "unit: web\ntype: oneshot\nprovides: web\nwaits-for: db\nexec-start: /bin/sh -c $A\n";
    std::fs::write(bad.join("web.unit"), web).unwrap();
    let db = "name: db\ntype: virtual\nprovides: db\nwaits-for: cache\ndescription\n\
              unit: cache\ntype: virtual\nprovides: cache, db\n";
    std::fs::write(bad.join("db.unit"), db).unwrap();
    folder
}

/// Runs a command line. Returns the exit code, standard output, and standard error after `---`.
fn run(folder: &Path, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
    command.args(line.split(' ').filter(|arg| !arg.is_empty()));
    // Keeps a fleet-init of this computer out of the test.
    command.env_clear().env("FLEET_INIT_SOCKET", "no-socket");
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let mut printed = format!("exit {}\n", output.status.code().unwrap_or(-1));
    printed += &String::from_utf8(output.stdout).unwrap().replace('\t', "→");
    if !output.stderr.is_empty() {
        write!(printed, "---\n{}", String::from_utf8(output.stderr).unwrap()).unwrap();
    }
    printed
}

#[test]
fn check_accepts_valid_units() {
    let folder = folder();
    std::fs::write(folder.path().join("a.unit"), "unit: a\ntype: virtual\nprovides: a\n").unwrap();
    insta::assert_snapshot!(run(folder.path(), "check a.unit"), @"
    exit 0
    ---
    ok: 1 unit
    ");
    insta::assert_snapshot!(run(folder.path(), "check a.unit -o json"), @"
    exit 0
    []
    ---
    ok: 1 unit
    ");
    // A missing program is only a warning.
    let printed = run(folder.path(), "check home");
    assert!(printed.starts_with("exit 0\nhome/home.unit:3:7: warning: "), "{printed}");
    assert!(printed.contains("`/usr/bin/maddy` is not an executable file here [W05]"), "{printed}");
    assert!(printed.ends_with("ok: 7 units\n"), "{printed}");
    assert!(printed.contains("home/README: skipped"), "{printed}");
    assert!(!printed.contains(".hidden"), "{printed}");
}

#[test]
fn check_refuses_systemd_unit_file() {
    let folder = folder();
    std::fs::write(folder.path().join("web.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    insta::assert_snapshot!(run(folder.path(), "check web.service"), @"
    exit 2
    ---
    fleet-init: web.service is a unit file of systemd, not of fleet-init
    help: convert it with `fleet-init convert --from systemd web.service`
    help: a fleet cluster runs the unit as it is; check it with `fleetctl verify web.service`
    ");
    let printed = run(folder.path(), "check .");
    assert!(printed.contains("web.service: skipped: a systemd unit file"), "{printed}");
}

#[test]
fn invalid_commands_fail_before_starting_anything() {
    let folder = folder();
    for wrong in [
        "run",
        "run --fleet home",
        "run --fleet --goal a",
        "reset-failed",
        "logs -n x a",
        "logs --since x a",
    ] {
        let printed = run(folder.path(), wrong);
        assert!(printed.starts_with("exit 2\n"), "{wrong}: {printed}");
    }
    let printed = run(folder.path(), "status --socket s");
    insta::assert_snapshot!(printed, @"
    exit 1
    ---
    fleet-init: cannot reach fleet-init: cannot connect to s: No such file or directory (os error 2)
    help: start fleet-init with `fleet-init run`, or give its socket with --socket
    ");
    let printed = run(folder.path(), "run bad --state-dir d --socket s");
    assert!(printed.starts_with("exit 1\n") && printed.contains("bad/db.unit:5:1"), "{printed}");
    assert!(!folder.path().join("d").exists(), "no state directory was created");
}

#[test]
fn check_reports_all_errors_at_once() {
    let folder = folder();
    insta::assert_snapshot!(run(folder.path(), "check bad"), @"
    exit 1
    bad/db.unit:1:1: warning: `name:` is deprecated [W01]
    1 | name: db
      | ^^^^
    help: write `unit:`
    bad/db.unit:3:11: `db` is also provided by cache in bad/db.unit:6 [E13]
    3 | provides: db
      |           ^^
    help: choose one in the central settings: `alternatives: db=UNIT`
    bad/db.unit:5:1: there is no colon in `description` [E01]
    5 | description
      | ^^^^^^^^^^^
    help: write `description: value`, or # before a comment
    bad/init.conf:1:7: no unit provides the goal `wbe` [E28]
    1 | goal: wbe
      |       ^^^
    help: did you mean web?
    bad/web.unit:5:24: no variable `A` is given to this command [E11]
    5 | exec-start: /bin/sh -c $A
      |                        ^^
    help: write `env: A=…`, `pass-env: A` or an `env-file`, or $$ for a dollar sign
    ---
    fleet-init: the files have 4 errors
    ");
    let lines = run(folder.path(), "check bad/db.unit -o jsonl").replace(",\"", ",\n\"");
    insta::assert_snapshot!(lines, @r#"
    exit 1
    {"code":"W01",
    "column":1,
    "file":"bad/db.unit",
    "help":"write `unit:`",
    "line":1,
    "message":"`name:` is deprecated",
    "severity":"warning"}
    {"code":"E13",
    "column":11,
    "file":"bad/db.unit",
    "help":"choose one in the central settings: `alternatives: db=UNIT`",
    "line":3,
    "message":"`db` is also provided by cache in bad/db.unit:6",
    "severity":"error"}
    {"code":"E01",
    "column":1,
    "file":"bad/db.unit",
    "help":"write `description: value`, or # before a comment",
    "line":5,
    "message":"there is no colon in `description`",
    "severity":"error"}
    ---
    fleet-init: the files have 2 errors
    "#);
}

#[test]
fn plan_prints_actions_by_wave_with_reasons() {
    let folder = folder();
    insta::assert_snapshot!("a_plan", run(folder.path(), "plan home"));
    insta::assert_snapshot!(run(folder.path(), "plan home --goal imapd -o name"), @"
    exit 0
    netif
    dhcpcd
    unbound
    network-online
    maddy
    ---
    planned as if no unit were running: no fleet-init listens at no-socket
    for imapd: 5 would be started
    ");
    let json = run(folder.path(), "plan home --goal dns -o json");
    insta::assert_snapshot!(json, @r#"
    exit 0
    [
      {
        "action": "start",
        "after": [],
        "changed": [],
        "degradedBy": [],
        "neededBy": [
          {
            "kind": "depends-on",
            "unit": "unbound"
          }
        ],
        "stopWave": null,
        "type": "oneshot",
        "unit": "netif",
        "wave": 1,
        "why": "needed by unbound (depends-on)"
      },
      {
        "action": "start",
        "after": [
          {
            "kind": "depends-on",
            "unit": "netif"
          }
        ],
        "changed": [],
        "degradedBy": [],
        "neededBy": [],
        "stopWave": null,
        "type": "foreground-supervised",
        "unit": "unbound",
        "wave": 2,
        "why": "it is the goal"
      }
    ]
    ---
    planned as if no unit were running: no fleet-init listens at no-socket
    for dns: 2 would be started
    "#);
    std::fs::write(folder.path().join("home/init.conf"), "goal: irc-bot\nmask: ircd, dns\n")
        .unwrap();
    insta::assert_snapshot!("a_plan_with_masks", run(folder.path(), "plan home"));
}

#[test]
fn plan_needs_a_goal_and_valid_files() {
    let folder = folder();
    insta::assert_snapshot!(run(folder.path(), "plan home/home.unit"), @"
    exit 2
    ---
    fleet-init: no goal is set, so there is nothing to plan
    help: give a goal with --goal TARGET, or write `goal: TARGET` in init.conf
    ");
    insta::assert_snapshot!(run(folder.path(), "plan home --goal imap"), @"
    exit 2
    ---
    fleet-init: no unit provides the goal imap
    help: did you mean imapd?
    ");
    insta::assert_snapshot!(run(folder.path(), "plan bad"), @"
    exit 1
    ---
    fleet-init: the unit files have errors
    fleet-init: bad/db.unit:3:11: `db` is also provided by cache in bad/db.unit:6 [E13]
    help: choose one in the central settings: `alternatives: db=UNIT`
    fleet-init: bad/db.unit:5:1: there is no colon in `description` [E01]
    help: write `description: value`, or # before a comment
    fleet-init: bad/init.conf:1:7: no unit provides the goal `wbe` [E28]
    help: did you mean web?
    fleet-init: bad/web.unit:5:24: no variable `A` is given to this command [E11]
    help: write `env: A=…`, `pass-env: A` or an `env-file`, or $$ for a dollar sign
    ");
    insta::assert_snapshot!(run(folder.path(), "plan nowhere"), @"
    exit 1
    ---
    fleet-init: cannot read nowhere: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(run(folder.path(), "plan"), @"
    exit 2
    ---
    fleet-init: nothing to plan: no files are given, and no fleet-init listens at no-socket
    help: name unit files, or start a fleet-init with `fleet-init run`
    ");
}

#[test]
fn graph_prints_dot() {
    let folder = folder();
    insta::assert_snapshot!(run(folder.path(), "graph home --goal imapd"), @r#"
    exit 0
    digraph units {
      rankdir=LR;
      node [shape=box];
      "dhcpcd" [label="dhcpcd\n(dhcp)"];
      "inspircd" [label="inspircd\n(ircd)", color=grey, fontcolor=grey];
      "irc-bot" [label="irc-bot", color=grey, fontcolor=grey];
      "maddy" [label="maddy\n(imapd, smtpd)", peripheries=2];
      "netif" [label="netif"];
      "network-online" [label="network-online", style=rounded];
      "unbound" [label="unbound\n(dns)"];
      "dhcpcd" -> "netif" [style=bold];
      "inspircd" -> "network-online" [style=solid, color=grey];
      "irc-bot" -> "inspircd" [style=dashed, color=grey];
      "irc-bot" -> "network-online" [style=solid, color=grey];
      "maddy" -> "network-online" [style=solid];
      "network-online" -> "dhcpcd" [style=bold];
      "network-online" -> "netif" [style=bold];
      "network-online" -> "unbound" [style=bold];
      "unbound" -> "netif" [style=bold];
    }
    "#);
}

/// Regression: masked units were drawn as if they were needed.
#[test]
fn graph_draws_masked_units_grey() {
    let folder = folder();
    let text = "goal: irc-bot\nmask: ircd\n";
    std::fs::write(folder.path().join("home/init.conf"), text).unwrap();
    let printed = run(folder.path(), "graph home");
    let node =
        |unit: &str| printed.lines().find(|it| it.starts_with(&format!("  \"{unit}\" ["))).unwrap();
    assert!(node("inspircd").contains("grey"), "{printed}");
    assert!(!node("irc-bot").contains("grey"), "{printed}");
}

#[test]
fn help_lists_commands_and_exit_codes() {
    insta::assert_snapshot!(run(folder().path(), ""), @"
    exit 0
    Run exactly the units that a goal needs

    Usage: fleet-init [COMMAND]

    Commands:
      check         Check files and report everything that is wrong
      plan          Show what would start, stop and restart, in which order, and why
      run           Run units of files, or of this machine's fleetd, until stopped
      status        Show the units of a running fleet-init
      logs          Print the output of a unit
      set-target    Choose another goal
      reload        Read the files again, or have a unit reload its configuration
      restart       Restart a starting or active unit
      reset-failed  Retry a failed or completed unit at once, if it is needed
      mask          Stop a unit and keep it from starting, until unmask or a reboot
      unmask        Undo mask
      graph         Draw the units and their dependencies for Graphviz
      convert       Convert units of another init to stanzas, and report losses
      help          Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Exit codes: 0 done, 1 failed or files are wrong, 2 wrong command line.
    ");
    for command in [
        "check",
        "plan",
        "run",
        "status",
        "logs",
        "set-target",
        "reload",
        "restart",
        "reset-failed",
        "graph",
        "convert",
    ] {
        let help = run(folder().path(), &format!("{command} --help"));
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command}: more than 80 columns: {line}");
        }
    }
}

#[test]
fn repeated_paths_count_once_and_pipes_are_refused() {
    let folder = folder();
    let text = "unit: a\ntype: virtual\nprovides: a\n";
    std::fs::write(folder.path().join("a.unit"), text).unwrap();
    for paths in ["a.unit ./a.unit", "home home/ ./home home/home.unit", "a.unit home/../a.unit"] {
        let printed = run(folder.path(), &format!("check {paths}"));
        assert!(printed.starts_with("exit 0\n"), "{printed}");
        assert!(
            printed.ends_with("ok: 1 unit\n") || printed.ends_with("ok: 7 units\n"),
            "{printed}"
        );
    }
    let made = Command::new("mkfifo").arg(folder.path().join("pipe.unit")).status().unwrap();
    assert!(made.success());
    insta::assert_snapshot!(run(folder.path(), "check pipe.unit"), @"
    exit 1
    ---
    fleet-init: pipe.unit is a named pipe, not a regular file
    help: give a regular file, or /dev/stdin
    ");
}
