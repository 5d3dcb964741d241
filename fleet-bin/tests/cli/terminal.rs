//! Output on a terminal: the live line, also after a resize and at the end, and colours.

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{CONTROL_SEQUENCES, Cluster};
use crate::fake_engine::Role;
use crate::fleetctl::{DEADLINE, command};
use crate::pty::Terminal;

/// Sequence that erases the live line.
const ERASE: &str = "\r\x1b[K";

/// Returns the width of the last live line.
fn last_width(text: &str) -> usize {
    text.rsplit(ERASE).next().unwrap_or_default().chars().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_line_fits_the_terminal_and_is_erased_on_ctrl_c() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.roles.set("web.service", Role::Starting);
    let (terminal, slave) = Terminal::open(60, 24);
    let mut command = command(cluster.folder(), &cluster.endpoint(), "start web");
    let fleetctl = command.stderr(slave).spawn().unwrap();
    // Only the program may hold the other end, so that its exit closes it.
    drop(command);
    terminal.wait_until("there is a live line", |text| text.contains("waiting for web")).await;
    assert!((21..60).contains(&last_width(&terminal.text())), "{:?}", terminal.text());
    terminal.resize(20, 24);
    terminal.wait_until("the line fits again", |text| last_width(text) == 19).await;
    terminal.resize(200, 24);
    terminal.wait_until("there is room again", |text| last_width(text) > 20).await;
    let pid = Pid::from_raw(fleetctl.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = tokio::time::timeout(DEADLINE, fleetctl.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    terminal.wait_until("the error is printed", |text| text.contains("remain in effect\r\n")).await;
    let text = terminal.text();
    let last = text.rsplit(ERASE).next().unwrap();
    assert!(last.starts_with("fleetctl: interrupted"), "the line is still there: {text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colours_follow_terminal_and_environment() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "bad.service"]);
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.run("start --no-block web bad").await.ok();
    cluster.wait_until(|it| it.states().count() == 2).await;
    let line = "list-units --no-legend --fields unit,active";
    let plain = "bad.service\tfailed\nweb.service\tactive\n";
    let coloured = "bad.service\t\u{1b}[1m\u{1b}[31mfailed\u{1b}[0m\n\
                    web.service\t\u{1b}[32mactive\u{1b}[0m\n";
    // On a terminal, blanks separate the columns.
    let (blank_plain, blank_coloured) = (plain.replace('\t', "  "), coloured.replace('\t', "  "));
    let (blank_plain, blank_coloured) = (blank_plain.as_str(), blank_coloured.as_str());
    for (is_terminal, variables, expected) in [
        (true, &[("TERM", "xterm")] as &[_], blank_coloured),
        (true, &[("TERM", "dumb")], blank_plain),
        (true, &[("TERM", "xterm"), ("NO_COLOR", "1")], blank_plain),
        (true, &[("TERM", "xterm"), ("CLICOLOR", "0")], blank_plain),
        (false, &[("TERM", "xterm")], plain),
        (false, &[("CLICOLOR_FORCE", "1")], coloured),
        (false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], plain),
    ] {
        let mut command = command(cluster.folder(), &cluster.endpoint(), line);
        command.envs(variables.iter().copied());
        let printed = match is_terminal {
            true => printed_on_a_terminal(command).await,
            false => String::from_utf8(command.output().await.unwrap().stdout).unwrap(),
        };
        assert_eq!(printed, expected, "{is_terminal} {variables:?}");
    }
    let mut command = command(cluster.folder(), &cluster.endpoint(), line);
    command.env("CLICOLOR_FORCE", "1").args(["-o", "jsonl"]);
    let bytes = command.output().await.unwrap().stdout;
    assert!(!bytes.contains(&0x1b), "JSON has no colours");
}

async fn printed_on_a_terminal(mut command: tokio::process::Command) -> String {
    let (terminal, slave) = Terminal::open(80, 24);
    let ended = command.stdout(slave).status();
    assert!(tokio::time::timeout(DEADLINE, ended).await.unwrap().unwrap().success());
    drop(command);
    terminal.wait_until_closed().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_text_is_sanitized_for_terminals() {
    let cluster = Cluster::start(&["m1"]).await;
    let file = format!(
        "[Unit]\nDescription=Rude {}\n[Service]\nExecStart=/bin/sleep 1d\n",
        CONTROL_SEQUENCES.trim_end()
    );
    cluster.write("rude.service", &file);
    cluster.run("start rude").await.ok();
    for (line, shown) in [
        ("logs rude -n 1", "rude.service on m1: 1\\x1b[2J\\x1b[6n\\x1b]0;mine\\x07\\x9b2J\n"),
        ("journal rude -n 1", "rude.service on m1: 1\\x1b[2J\\x1b[6n\\x1b]0;mine\\x07\\x9b2J\n"),
        ("status rude -n 1", "\nrude.service on m1: 1\\x1b[2J\\x1b[6n"),
        ("status rude -n 1", "rude.service - Rude \\x1b[2J\\x1b[6n"),
        ("cat rude", "Description=Rude \\x1b[2J\\x1b[6n"),
        ("list-unit-files --fields desc", "Rude \\x1b[2J\\x1b[6n"),
        ("export", "\\u009b2J"),
        ("logs rude -o jsonl -n 1", "\\u001b]0;mine\\u0007\\u009b2J"),
        ("cat rude -o json", "\\u001b]0;mine\\u0007\\u009b2J"),
    ] {
        let mut command = command(cluster.folder(), &cluster.endpoint(), line);
        command.env("TERM", "xterm");
        let printed = printed_on_a_terminal(command).await;
        assert!(printed.contains(shown), "{line}: {printed:?}");
        let has_control = |text: &str| text.contains(['\u{7}', '\u{9b}', '\r']);
        assert!(!has_control(&printed) && !printed.contains("\u{1b}[2J"), "{line}: {printed:?}");
    }
    for line in ["logs rude --raw -n 1", "journal rude --raw -n 1", "cat rude"] {
        let run = cluster.run(line).await.ok();
        assert!(run.stdout.contains(CONTROL_SEQUENCES.trim_end()), "{line}: {run}");
    }
    // The reader of a pipe may print to a terminal, too.
    assert!(!cluster.run("logs rude").await.ok().stdout.contains('\u{1b}'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroying_a_pattern_asks_on_a_terminal() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["a.service", "b.service"]);
    cluster.run("submit a b").await.ok();
    for (answer, code) in [("n\n", 1), ("y\n", 0)] {
        let (terminal, slave) = Terminal::open(80, 24);
        let mut command = command(cluster.folder(), &cluster.endpoint(), "destroy *");
        let stdin = slave.try_clone().unwrap();
        let mut fleetctl = command.stdin(stdin).stderr(slave).spawn().unwrap();
        drop(command);
        let question = "Destroy 2 units: a.service, b.service? [y/N] ";
        terminal.wait_until("the question", |text| text.contains(question)).await;
        terminal.type_text(answer);
        let status = tokio::time::timeout(DEADLINE, fleetctl.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(code), "{answer:?}: {}", terminal.text());
        let is_left = !cluster.desired("a.service").await.is_empty();
        assert_eq!(is_left, code == 1, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_fit_the_terminal() {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    let long = "a-service-with-a-rather-long-name@1.service";
    cluster.write_sleepers(&[long, "far.service"]);
    cluster.roles.set("far.service", Role::Unplaceable);
    cluster.run(&format!("start {long}")).await.ok();
    cluster.run("start --no-block far").await.ok();
    cluster.wait_until(|it| it.reason("far.service").is_some()).await;
    let printed = async |line: &str, columns: Option<&str>| {
        let mut command = command(cluster.folder(), &cluster.endpoint(), line);
        command.env("TERM", "dumb").envs(columns.map(|columns| ("COLUMNS", columns)));
        printed_on_a_terminal(command).await
    };
    insta::assert_snapshot!(printed("list-units", None).await, @r"
    UNIT                          MACHINE      ACTIVE  SUB      REASON
    a-service-with-a-rather-lon…  m1/10.0.0.1  active  running  -
    far.service                   -            -       -        no machine is prese…
    ");
    insta::assert_snapshot!(printed("list-units", Some("50")).await, @r"
    UNIT                  MACH…  ACTIVE  SUB      REA…
    a-service-with-a-ra…  m1/1…  active  running  -
    far.service           -      -       -        no…
    ");
    let full = printed("list-units --full --fields unit,machine,hash,reason", None).await;
    assert!(full.contains(long) && full.lines().any(|line| line.len() > 80), "{full}");
    for columns in ["20", "40", "80", "120"] {
        for list in ["list-units", "list-unit-files", "list-machines"] {
            let printed = printed(list, Some(columns)).await;
            let wide = printed.lines().find(|it| it.chars().count() > columns.parse().unwrap());
            assert_eq!(wide, None, "{list} {columns}");
        }
    }
}
