//! Lists, unit pages, actions and keys, against a real daemon.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::Daemon;
use crate::webdriver::{Browser, DOWN, ENTER, ESCAPE};

const SLEEPER: &str = "[Service]\nExecStart=/bin/sleep infinity\n";

const TALKER: &str = "[Service]\nExecStart=/bin/sh -c 'n=0; while n=$((n+1)); do \
                      echo \"line $n <b>\"; sleep 0.2; done'\n";

const UNITS: [(&str, &str); 4] = [
    ("api.service", SLEEPER),
    ("lost.service", "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=zone=mars\n"),
    ("talker.service", TALKER),
    ("web.service", SLEEPER),
];

/// Names of the rows that are shown.
const SHOWN: &str = "[...document.querySelectorAll('tbody tr:not([hidden])')]\
                     .map((row) => row.dataset.unit).join(' ')";

fn start() -> (Daemon, Browser) {
    (Daemon::start(&UNITS), Browser::start(1200, 900))
}

/// Waits until the list shows this state of a unit.
fn wait_state(browser: &Browser, unit: &str, state: &str) {
    let row = format!("tr[data-unit={unit:?}][data-state={state:?}]");
    browser.wait_for(&format!("!!document.querySelector({row:?})"));
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn list_is_live_and_filtered_while_typing() {
    let (daemon, browser) = start();
    browser.open(&daemon.url);
    wait_state(&browser, "web.service", "active");
    wait_state(&browser, "lost.service", "unplaced");
    assert_eq!(browser.run("return document.querySelector('#count-unplaced').innerText"), "1");
    browser.press("/lost");
    assert_eq!(browser.wait_for(SHOWN), "lost.service");
    browser.wait_text("#matches", "1 of 4 shown");
    browser.press(ESCAPE);
    browser.wait_for(&format!("{SHOWN}.length > 20"));
    assert!(daemon.fleetctl(&["stop", "web"]).status().unwrap().success());
    wait_state(&browser, "web.service", "inactive");
    assert!(daemon.fleetctl(&["destroy", "web"]).status().unwrap().success());
    browser.wait_for("!document.querySelector('tr[data-unit=\"web.service\"]')");
    let file = daemon.path("added.service");
    std::fs::write(&file, SLEEPER).unwrap();
    assert!(daemon.fleetctl(&["start", file.to_str().unwrap()]).status().unwrap().success());
    wait_state(&browser, "added.service", "active");
    assert_eq!(browser.run(&format!("return {SHOWN}.split(' ')[0]")), "added.service");
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn unit_page_shows_live_journal_and_acts() {
    let (daemon, browser) = start();
    browser.open(&format!("{}/ui/units/talker.service", daemon.url));
    browser.wait_text("#journal", "line 3 <b>");
    browser.wait_text("#status", "active");
    browser.click("#do-stop");
    browser.wait_text(".notice", "The stop was requested.");
    browser.wait_text("#status h1 + .badge", "inactive");
    browser.click("#do-start");
    browser.wait_text(".notice", "The start was requested.");
    browser.wait_for("!!document.querySelector('#status h1 + .badge[data-tone=good]')");
    browser.wait_text("#history", "started");
    browser.click("#do-restart");
    browser.wait_text(".notice", "The restart was requested.");
    browser.wait_text("#status .facts", "Generation");
    browser.click(".confirm summary");
    browser.click("#do-destroy");
    browser.wait_text(".notice", "The unit was destroyed.");
    browser.wait_for(&format!("!{SHOWN}.includes('talker')"));
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn drain_is_previewed_and_followed() {
    let (daemon, browser) = start();
    browser.open(&daemon.url);
    wait_state(&browser, "web.service", "active");
    browser.click("tr[data-unit='web.service'] td:nth-child(6) a");
    browser.wait_text("#status", "ready");
    browser.wait_text("tbody", "web.service");
    browser.click("a[href$='/drain']");
    browser.wait_text("#moves", "web.service");
    browser.click("#start-drain");
    browser.wait_text("h1", "Drain in progress");
    browser.click("main p a");
    browser.wait_text("#status", "drained");
    browser.wait_for("!document.querySelector('tbody tr')");
    browser.click("#do-uncordon");
    browser.wait_text("#status", "ready");
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn files_are_chosen_previewed_and_applied() {
    let (daemon, browser) = start();
    browser.open(&format!("{}/ui/apply", daemon.url));
    browser.wait_for("!document.querySelector('#choose').hidden");
    // A page cannot choose files by itself, except through a list that it makes.
    browser.run(
        "const chosen = new DataTransfer();
         chosen.items.add(new File(['[Service]\\nExecStart=/bin/sleep 1d\\n'], 'one.service'));
         chosen.items.add(new File(['[Service]\\nExecStart=/bin/sleep 2d\\n'], 'two.service'));
         const input = document.querySelector('#files');
         input.files = chosen.files;
         input.dispatchEvent(new Event('change'));",
    );
    browser.wait_for("document.querySelectorAll('.file').length === 2");
    browser.click("#apply button");
    browser.wait_text("#preview", "+ ExecStart=/bin/sleep 2d");
    browser.wait_text("#plan", "one.service");
    browser.click("#do-apply");
    browser.wait_text(".notice", "The unit files were applied.");
    wait_state(&browser, "one.service", "active");
    wait_state(&browser, "two.service", "active");
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn keyboard_alone_finds_and_stops_a_unit() {
    let (daemon, browser) = start();
    browser.open(&daemon.url);
    wait_state(&browser, "web.service", "active");
    browser.press("j");
    assert_eq!(browser.run("return document.activeElement.innerText"), "api.service");
    browser.press("jjk");
    assert_eq!(browser.run("return document.activeElement.innerText"), "lost.service");
    browser.press(&format!("/web{DOWN}{ENTER}"));
    browser.wait_text("#status h1", "web.service");
    browser.tab_to("#do-stop");
    browser.press(ENTER);
    browser.wait_text(".notice", "The stop was requested.");
    browser.wait_text("#status h1 + .badge", "inactive");
    browser.tab_to(".confirm summary");
    browser.press(ENTER);
    browser.tab_to("#do-destroy");
    browser.press(ENTER);
    browser.wait_text(".notice", "The unit was destroyed.");
    browser.press("m");
    browser.wait_text("h1", "Machines");
    browser.press(&format!("j{ENTER}"));
    browser.wait_text("#status", "ready");
    browser.tab_to("a[href$='/drain']");
    browser.press(ENTER);
    browser.wait_text("h1", "Plan of the drain");
    browser.press("?");
    browser.wait_for("document.querySelector('.keys').open");
    browser.open(&daemon.url);
    browser.tab_to(".skip");
    browser.press(ENTER);
    assert_eq!(browser.run("return document.activeElement.id"), "main");
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn focus_stays_while_rows_change() {
    let (daemon, browser) = start();
    browser.open(&daemon.url);
    wait_state(&browser, "web.service", "active");
    browser.press("/web");
    browser.press(DOWN);
    assert!(daemon.fleetctl(&["stop", "web"]).status().unwrap().success());
    wait_state(&browser, "web.service", "inactive");
    assert_eq!(browser.run("return document.activeElement.innerText"), "web.service");
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn page_reports_lost_daemon_and_catches_up() {
    let (mut daemon, browser) = start();
    browser.open(&daemon.url);
    browser.wait_text("#connection", "Live");
    daemon.restart(|| browser.wait_text("#connection", "Disconnected, reconnecting"));
    browser.wait_text("#connection", "Live");
    assert!(daemon.fleetctl(&["destroy", "web"]).status().unwrap().success());
    browser.wait_for(&format!("!{SHOWN}.includes('web')"));
}

/// Sends a request without a cookie to the port of a link. Returns its first line.
fn first_line(link: &str) -> String {
    let (host, path) = link.trim_start_matches("http://").split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

// Holds: I-20
#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn fleetctl_ui_opens_page_with_one_time_link() {
    let (daemon, browser) = start();
    let mut command: Command = daemon.fleetctl(&["ui", "--no-browser"]);
    let mut ui = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut link = String::new();
    BufReader::new(ui.stdout.take().unwrap()).read_line(&mut link).unwrap();
    let link = link.trim();
    let port = link.split("/?").next().unwrap();
    assert_eq!(first_line(&format!("{port}/")), "HTTP/1.1 401 Unauthorized");
    assert_eq!(first_line(&format!("{port}/?token=guess")), "HTTP/1.1 403 Forbidden");
    browser.open(link);
    assert_eq!(browser.run("return location.pathname + location.search"), "/");
    browser.wait_text("#connection", "Live");
    wait_state(&browser, "web.service", "active");
    assert_eq!(browser.run("return document.cookie"), "", "scripts cannot read the cookie");
    assert_eq!(first_line(link), "HTTP/1.1 403 Forbidden", "the link works once");
    browser.open(&format!("{port}/ui/units/talker.service"));
    browser.wait_text("#journal", "line 3 <b>");
    browser.click("#do-stop");
    browser.wait_text("#status h1 + .badge", "inactive");
    kill_process(Pid::from_child(&ui), Signal::INT).unwrap();
    assert!(ui.wait().unwrap().success());
}
