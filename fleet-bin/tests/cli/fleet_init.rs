//! The real `fleet-init` over files.

mod others;
mod refusals;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder with a system that is sound, and one with all kinds of mistakes.
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

/// The exit code, standard output, and standard error after a rule.
fn run(folder: &Path, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
    command.args(line.split(' ').filter(|arg| !arg.is_empty()));
    // What may run on this computer is not asked.
    command.env_clear().env("FLEET_INIT_SOCKET", "nobody");
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let mut told = format!("exit {}\n", output.status.code().unwrap_or(-1));
    told += &String::from_utf8(output.stdout).unwrap().replace('\t', "→");
    if !output.stderr.is_empty() {
        write!(told, "---\n{}", String::from_utf8(output.stderr).unwrap()).unwrap();
    }
    told
}

#[test]
fn a_sound_system_is_checked() {
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
    // Its programs are not here, which is only a warning.
    let told = run(folder.path(), "check home");
    assert!(told.starts_with("exit 0\nhome/home.unit:3:7: warning: "), "{told}");
    assert!(told.contains("`/usr/bin/maddy` is not an executable file here [W05]"), "{told}");
    assert!(told.ends_with("ok: 7 units\n"), "{told}");
    assert!(told.contains("home/README: skipped"), "{told}");
    assert!(!told.contains(".hidden"), "{told}");
}

#[test]
fn a_unit_file_of_systemd_is_told_apart() {
    let folder = folder();
    std::fs::write(folder.path().join("web.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    insta::assert_snapshot!(run(folder.path(), "check web.service"), @"
    exit 2
    ---
    fleet-init: web.service is a unit file of systemd, and not of fleet-init
    help: `fleet-init convert --from systemd web.service` writes it as stanzas
    help: check it for a fleet cluster, which runs it as it is, with `fleetctl verify`
    ");
    let told = run(folder.path(), "check .");
    assert!(told.contains("web.service: skipped: a systemd unit file"), "{told}");
}

#[test]
fn what_runs_is_asked_for_in_one_way() {
    let folder = folder();
    for wrong in [
        "run",
        "run --fleet home",
        "run --fleet --goal a",
        "reset-failed",
        "logs -n x a",
        "logs --since x a",
    ] {
        let told = run(folder.path(), wrong);
        assert!(told.starts_with("exit 2\n"), "{wrong}: {told}");
    }
    let told = run(folder.path(), "status --socket s");
    insta::assert_snapshot!(told, @"
    exit 1
    ---
    fleet-init: cannot reach a fleet-init: cannot connect to s: No such file or directory (os error 2)
    help: start one with `fleet-init run`, or name its socket with --socket
    ");
    let told = run(folder.path(), "run bad --state-dir d --socket s");
    assert!(told.starts_with("exit 1\n") && told.contains("bad/db.unit:5:1"), "{told}");
    assert!(!folder.path().join("d").exists(), "nothing was begun");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
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
    fleet-init: there are 4 errors
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
    fleet-init: there are 2 errors
    "#);
}

#[test]
fn a_plan_says_what_starts_in_which_wave_and_for_whom() {
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
    planned from nothing: no fleet-init listens at nobody
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
    planned from nothing: no fleet-init listens at nobody
    for dns: 2 would be started
    "#);
    std::fs::write(folder.path().join("home/init.conf"), "goal: irc-bot\nmask: ircd, dns\n")
        .unwrap();
    insta::assert_snapshot!("a_plan_with_masks", run(folder.path(), "plan home"));
}

#[test]
fn a_plan_needs_a_goal_and_sound_files() {
    let folder = folder();
    insta::assert_snapshot!(run(folder.path(), "plan home/home.unit"), @"
    exit 2
    ---
    fleet-init: there is no goal to plan for
    help: name one with --goal TARGET, or write `goal: TARGET` in init.conf
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
    fleet-init: the units do not form a valid graph
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
    fleet-init: there is nothing to plan
    help: name files, or start a fleet-init with `fleet-init run`
    ");
}

#[test]
fn a_graph_is_drawn_for_graphviz() {
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

/// What is masked was drawn as if it were needed.
#[test]
fn what_is_masked_is_grey_in_a_graph() {
    let folder = folder();
    let text = "goal: irc-bot\nmask: ircd\n";
    std::fs::write(folder.path().join("home/init.conf"), text).unwrap();
    let told = run(folder.path(), "graph home");
    let node =
        |unit: &str| told.lines().find(|it| it.starts_with(&format!("  \"{unit}\" ["))).unwrap();
    assert!(node("inspircd").contains("grey"), "{told}");
    assert!(!node("irc-bot").contains("grey"), "{told}");
}

#[test]
fn the_help_names_the_commands_and_the_exit_codes() {
    insta::assert_snapshot!(run(folder().path(), ""), @"
    exit 0
    Run the units that a goal needs, and no others

    Usage: fleet-init [COMMAND]

    Commands:
      check         Check files, and say all that is wrong in them
      plan          Say what would start, stop and restart, in which order, and why
      run           Run units until told to end: those of files, or those of this machine's fleetd
      status        Show the units of a fleet-init that runs
      logs          Show what a unit of a fleet-init that runs has written
      set-target    Choose another goal for a fleet-init that runs
      reload        Have a fleet-init that runs read its files again, or a unit its own configuration
      restart       Restart a unit that is starting or active
      reset-failed  Forget that a unit failed or completed, so that it starts again at once if it is needed
      graph         Draw the units and their dependencies, as SVG or for dot of Graphviz
      convert       Turn units of another init into stanzas, and say what is lost
      help          Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Exit codes: 0 done, 1 failed or files are wrong, 2 wrong command line.
    ");
}

#[test]
fn files_are_there_once_and_pipes_are_none() {
    let folder = folder();
    let text = "unit: a\ntype: virtual\nprovides: a\n";
    std::fs::write(folder.path().join("a.unit"), text).unwrap();
    for paths in ["a.unit ./a.unit", "home home/ ./home home/home.unit", "a.unit home/../a.unit"] {
        let told = run(folder.path(), &format!("check {paths}"));
        assert!(told.starts_with("exit 0\n"), "{told}");
        assert!(told.ends_with("ok: 1 unit\n") || told.ends_with("ok: 7 units\n"), "{told}");
    }
    let made = Command::new("mkfifo").arg(folder.path().join("pipe.unit")).status().unwrap();
    assert!(made.success());
    insta::assert_snapshot!(run(folder.path(), "check pipe.unit"), @"
    exit 1
    ---
    fleet-init: pipe.unit is a pipe and no file
    help: name a file, or /dev/stdin
    ");
}

#[test]
fn a_small_system_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let stanza = |name: &str, more: &str| format!("unit: {name}\ntype: virtual\n{more}");
    let source = stanza("web", "provides: web, http\ndepends-on: db\nwaits-for: dns\npulls: log\n")
        + &stanza("db", "provides: db\ndepends-ms: disk\ndescription: <Data> & \"more\"\n")
        + &stanza("dns", "provides: dns\nafter: disk\npulls: web\n")
        + &stanza("disk", "provides: disk\n")
        + &stanza("log", "provides: log\nwaits-for: disk\n")
        + &stanza("alone", "provides: a-very-long-name-of-a-target-that-nobody-needs\n");
    std::fs::write(folder.path().join("a.unit"), source).unwrap();
    let told = run(folder.path(), "graph a.unit -o svg --goal web");
    insta::assert_snapshot!("a_small_system_as_svg", told);
    assert_eq!(run(folder.path(), "graph a.unit -o svg --goal web"), told);
}

#[test]
fn sixty_units_are_drawn_apart_and_thousands_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stanza = |at: usize| {
        let text = format!("unit: u{at}\ntype: virtual\nprovides: u{at}\n");
        let more = [at / 2, at / 3].map(|on| format!("waits-for: u{on}\n"));
        if at == 0 { text } else { text + &more[0] + if at > 5 { &more[1] } else { "" } }
    };
    let write = |count: usize| {
        let source: String = (0..count).map(stanza).collect();
        std::fs::write(folder.path().join("a.unit"), source).unwrap();
    };
    write(60);
    let told = run(folder.path(), "graph a.unit -o svg");
    let boxes = told
        .lines()
        .filter_map(|line| line.split_once("<rect class=\"unit\" ")?.1.split_once(" width"));
    let mut places: Vec<&str> = boxes.map(|(place, _)| place).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 60, "{told}");
    assert_eq!(told.matches("<path class=\"edge waits-for\"").count(), 5 + 54 * 2 + 1, "{told}");
    write(5001);
    insta::assert_snapshot!(run(folder.path(), "graph a.unit -o svg"), @"
    exit 1
    ---
    fleet-init: there are more than 5000 units or dependencies, which no picture shows
    help: draw fewer files, or use -o dot and a layout program
    ");
}
