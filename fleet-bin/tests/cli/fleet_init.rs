//! The real `fleet-init` over files.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder with a system that is sound, and one with all kinds of mistakes.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet-core/tests/golden");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let text = std::fs::read_to_string(golden.join("home.unit")).unwrap();
    std::fs::write(home.join("home.unit"), text).unwrap();
    std::fs::copy(golden.join("home.conf"), home.join("init.conf")).unwrap();
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
    let output = command.current_dir(folder).env_clear().stdin(Stdio::null()).output().unwrap();
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
    assert!(told.contains("`/usr/bin/maddy` is no executable file here [W05]"), "{told}");
    assert!(told.ends_with("ok: 7 units\n"), "{told}");
    assert!(told.contains("home/README: passed over"), "{told}");
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
    help: `fleetctl verify` checks it for a fleet cluster, which runs it as it is
    ");
    let told = run(folder.path(), "check .");
    assert!(told.contains("web.service: passed over: it is a unit file of systemd"), "{told}");
}

#[test]
fn what_runs_is_asked_for_in_one_way() {
    let folder = folder();
    for wrong in ["run", "run --fleet home", "run --fleet --target a", "reset", "logs -n x a"] {
        let told = run(folder.path(), wrong);
        assert!(told.starts_with("exit 2\n"), "{wrong}: {told}");
    }
    let told = run(folder.path(), "status --socket s");
    insta::assert_snapshot!(told, @"
    exit 1
    ---
    fleet-init: cannot ask a fleet-init: nobody listens at s: No such file or directory (os error 2)
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
    bad/db.unit:1:1: warning: `name:` is an old way to begin a stanza [W01]
    1 | name: db
      | ^^^^
    help: write `unit:`
    bad/db.unit:5:1: there is no colon in `description` [E01]
    5 | description
      | ^^^^^^^^^^^
    help: write `description: value`, or # before a comment
    bad/init.conf:1:7: no unit provides the goal `wbe` [E28]
    1 | goal: wbe
      |       ^^^
    help: choose a target that a unit provides
    bad/web.unit:5:24: no variable `A` is given to this command [E11]
    5 | exec-start: /bin/sh -c $A
      |                        ^^
    help: write `env: A=…`, `pass-env: A` or an `env-file`, or $$ for a dollar sign
    ---
    fleet-init: there are 3 errors
    ");
    let lines = run(folder.path(), "check bad/db.unit -o jsonl").replace(",\"", ",\n\"");
    insta::assert_snapshot!(lines, @r#"
    exit 1
    {"code":"W01",
    "column":1,
    "file":"bad/db.unit",
    "help":"write `unit:`",
    "line":1,
    "message":"`name:` is an old way to begin a stanza",
    "severity":"warning"}
    {"code":"E01",
    "column":1,
    "file":"bad/db.unit",
    "help":"write `description: value`, or # before a comment",
    "line":5,
    "message":"there is no colon in `description`",
    "severity":"error"}
    ---
    fleet-init: there is 1 error
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
    ");
    let json = run(folder.path(), "plan home --goal dns -o json");
    insta::assert_snapshot!(json, @r#"
    exit 0
    [
      {
        "after": [],
        "neededBy": [
          {
            "kind": "depends-on",
            "unit": "unbound"
          }
        ],
        "type": "oneshot",
        "unit": "netif",
        "wave": 1
      },
      {
        "after": [
          {
            "kind": "depends-on",
            "unit": "netif"
          }
        ],
        "neededBy": [],
        "type": "foreground-supervised",
        "unit": "unbound",
        "wave": 2
      }
    ]
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
    help: name one by --goal TARGET, or write `goal: TARGET` in init.conf
    ");
    insta::assert_snapshot!(run(folder.path(), "plan home --goal imap"), @"
    exit 2
    ---
    fleet-init: no unit provides the goal imap
    help: name a target that a unit provides
    ");
    insta::assert_snapshot!(run(folder.path(), "plan bad"), @"
    exit 1
    ---
    fleet-init: the units are not fit for a graph
    fleet-init: bad/db.unit:5:1: there is no colon in `description` [E01]
    help: write `description: value`, or # before a comment
    fleet-init: bad/init.conf:1:7: no unit provides the goal `wbe` [E28]
    help: choose a target that a unit provides
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
    error: the following required arguments were not provided:
      <PATH>...

    Usage: fleet-init plan <PATH>...

    For more information, try '--help'.
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

#[test]
fn the_help_names_the_commands_and_the_exit_codes() {
    insta::assert_snapshot!(run(folder().path(), ""), @"
    exit 0
    Run the units that a goal needs, and no others

    Usage: fleet-init [COMMAND]

    Commands:
      check       Check files, and say all that is wrong in them
      plan        Say what would start for a goal, in which waves, and for whom
      run         Run units until told to end: those of files, or those of this machine's fleetd
      status      Show the units of a fleet-init that runs
      logs        Show what a unit of a fleet-init that runs has written
      set-target  Choose another goal for a fleet-init that runs
      reload      Have a fleet-init that runs read its files again
      reset       Have a unit that failed or ended tried again at once
      graph       Draw the units and their dependencies, for dot of Graphviz
      help        Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Exit codes: 0 done, 1 could not be done or is wrong, 2 the command line is wrong.
    ");
}
