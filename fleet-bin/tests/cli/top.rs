//! `top` on real terminals.

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::cluster::Cluster;
use crate::fake_engine::Role;
use crate::fleetctl::{DEADLINE, command};
use crate::pty::{Terminal, controlled};

async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write_sleepers(&["web.service", "far.service", "bad.service"]);
    cluster.roles.set("far.service", Role::Unplaceable);
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.run("start --no-block web far bad").await.ok();
    cluster.wait_until(|it| it.reason("far.service").is_some() && it.states().count() == 2).await;
    cluster
}

fn start(cluster: &Cluster, columns: u16, rows: u16) -> (Terminal, Child) {
    let (terminal, slave) = Terminal::open(columns, rows);
    let mut top = command(cluster.folder(), &cluster.endpoint(), "top");
    top.env("TERM", "xterm-256color");
    let child = controlled(&top, slave).spawn().unwrap();
    (terminal, child)
}

/// Waits for texts on the screen. Bytes before `start` belong to another size.
async fn wait_for(terminal: &Terminal, columns: u16, rows: u16, start: usize, texts: &[&str]) {
    let shows = |_: &str| {
        let contents = terminal.screen(columns, rows, start).contents();
        texts.iter().all(|text| contents.contains(text))
    };
    terminal.wait_until(&format!("the screen shows {texts:?}"), shows).await;
}

async fn exit_code(child: &mut Child) -> Option<i32> {
    tokio::time::timeout(DEADLINE, child.wait()).await.unwrap().unwrap().code()
}

/// Asserts that the terminal is as before: the normal screen, with a cursor and an echo.
async fn assert_clean(terminal: &Terminal) {
    let is_normal = |_: &str| {
        let screen = terminal.screen(200, 50, 0);
        !screen.alternate_screen() && !screen.hide_cursor() && terminal.is_cooked()
    };
    terminal.wait_until("the terminal is clean", is_normal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_fits_every_terminal_and_leaves_it_clean() {
    let cluster = cluster().await;
    for (columns, rows) in [(80, 24), (120, 40)] {
        let (terminal, mut child) = start(&cluster, columns, rows);
        let texts =
            ["2 machines, 3 units, 2 failed", "web.service", "no machine is present", "q quit"];
        wait_for(&terminal, columns, rows, 0, &texts).await;
        let screen = terminal.screen(columns, rows, 0);
        assert!(screen.alternate_screen() && !terminal.is_cooked());
        assert!((0..rows).all(|row| !screen.row_wrapped(row)), "{}", screen.contents());
        let drawn = terminal.written();
        terminal.resize(100, 30);
        wait_for(&terminal, 100, 30, drawn, &texts).await;
        let small = terminal.written();
        terminal.resize(39, 5);
        wait_for(&terminal, 39, 5, small, &["enlarge"]).await;
        let large = terminal.written();
        terminal.resize(100, 30);
        wait_for(&terminal, 100, 30, large, &texts).await;
        terminal.type_text("\x03");
        assert_eq!(exit_code(&mut child).await, Some(0));
        assert_clean(&terminal).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_follows_changes_and_opens_pages() {
    let cluster = cluster().await;
    let (terminal, mut child) = start(&cluster, 100, 30);
    wait_for(&terminal, 100, 30, 0, &["web.service"]).await;
    cluster.write_sleepers(&["late.service"]);
    cluster.run("start late").await.ok();
    wait_for(&terminal, 100, 30, 0, &["late.service", "4 units"]).await;
    terminal.type_text("/web\r");
    wait_for(&terminal, 100, 30, 0, &["/ filter: web"]).await;
    terminal.type_text("i");
    wait_for(&terminal, 100, 30, 0, &["Status of web.service", "Desired: launched"]).await;
    terminal.type_text("q");
    wait_for(&terminal, 100, 30, 0, &["/ filter: web"]).await;
    terminal.type_text("l");
    wait_for(&terminal, 100, 30, 0, &["Logs of web.service"]).await;
    terminal.type_text("\x1b");
    wait_for(&terminal, 100, 30, 0, &["/ filter: web"]).await;
    terminal.type_text("q");
    assert_eq!(exit_code(&mut child).await, Some(0));
    assert_clean(&terminal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_restores_the_terminal_on_signals() {
    let cluster = cluster().await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (terminal, mut child) = start(&cluster, 80, 24);
        wait_for(&terminal, 80, 24, 0, &["web.service"]).await;
        let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(exit_code(&mut child).await, Some(0), "{signal:?}");
        assert_clean(&terminal).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_without_a_terminal_names_list_units() {
    let cluster = Cluster::start(&[]).await;
    insta::assert_snapshot!(cluster.run("top").await, @r#"
    exit 1
    ---
    fleetctl: top needs a terminal
    help: use "fleetctl list-units", which prints to files and pipes, too
    "#);
    let json = cluster.run("top -o json").await;
    assert_eq!(json.code, 2, "{json}");
}
