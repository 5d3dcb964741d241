//! Two daemons, each with its own machine, that share only an etcd server.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use fleet_http::Client;
use fleet_http::client::JournalOptions;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{etcd_directory, is_alive, main_pid, output_text, wait_for};

/// One etcd server and two machines, which are stopped, with their units, on drop.
struct Cluster {
    home: TempDir,
    port: u16,
    peer_port: u16,
    etcd: Option<Child>,
    daemons: [Option<Child>; 2],
}

impl Cluster {
    fn start() -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, peer_port] = listeners.map(|listener| listener.local_addr().unwrap().port());
        let home = etcd_directory();
        let mut cluster = Self { home, port, peer_port, etcd: None, daemons: [None, None] };
        cluster.start_etcd();
        cluster.start_daemon(0);
        cluster.start_daemon(1);
        wait_for("both machines are present", || (cluster.machines(0).len() == 2).then_some(()));
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn start_etcd(&mut self) {
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.peer_port));
        let log = File::create(self.path("etcd.log")).unwrap();
        let started = Command::new("etcd")
            .env_clear()
            .arg(format!("--data-dir={}", self.path("etcd").display()))
            .args([format!("--listen-client-urls={client}")])
            .args([format!("--advertise-client-urls={client}")])
            .args([format!("--listen-peer-urls={peer}")])
            .args([format!("--initial-advertise-peer-urls={peer}")])
            .args([format!("--initial-cluster=default={peer}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.etcd = Some(started.expect("etcd is installed"));
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn kill_etcd(&mut self) {
        let mut etcd = self.etcd.take().expect("etcd runs");
        etcd.kill().unwrap();
        etcd.wait().unwrap();
    }

    fn start_daemon(&mut self, number: usize) {
        let daemon = Command::new(env!("CARGO_BIN_EXE_fleetd"))
            .arg(format!("--etcd-servers={}", self.endpoint()))
            .args(["--etcd-key-prefix=/two/", "--etcd-request-timeout=1s"])
            .args(["--agent-ttl=3s", "--engine-ttl=3s"])
            .arg(format!("--machine-id=machine{number}"))
            .arg(format!("--data-dir={}", self.path(&number.to_string()).display()))
            .arg(format!("--runtime-dir={}", self.path(&format!("{number}.run")).display()))
            .arg(format!("--listen=unix://{}", self.socket(number).display()))
            .arg(format!("--public-url=unix://{}", self.socket(number).display()))
            .stdin(Stdio::null())
            .stderr(File::create(self.path(&format!("{number}.log"))).unwrap())
            .spawn()
            .unwrap();
        self.daemons[number] = Some(daemon);
        wait_for("the daemon lists machines", || (!self.machines(number).is_empty()).then_some(()));
    }

    fn end_daemon(&mut self, number: usize, signal: Signal) {
        let mut daemon = self.daemons[number].take().expect("the daemon runs");
        kill_process(Pid::from_child(&daemon), signal).unwrap();
        daemon.wait().unwrap();
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.path(&format!("{number}.sock"))
    }

    fn fleetctl(&self, number: usize, args: &[&str]) -> Output {
        let endpoint = format!("unix://{}", self.socket(number).display());
        let mut fleetctl = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        fleetctl.args(["--endpoint", &endpoint]).args(args).stdin(Stdio::null());
        fleetctl.output().unwrap()
    }

    fn list(&self, number: usize, command: &str) -> Vec<Value> {
        let listed = self.fleetctl(number, &[command, "-o", "json"]);
        serde_json::from_slice(&listed.stdout).unwrap_or_default()
    }

    fn machines(&self, number: usize) -> Vec<Value> {
        self.list(number, "list-machines")
    }

    fn launch(&self, number: usize, unit: &str) {
        self.launch_text(number, unit, "[Service]\nExecStart=/bin/sleep infinity\n");
    }

    fn launch_text(&self, number: usize, unit: &str, text: &str) {
        let started = self.try_launch(number, unit, text);
        assert!(started.status.success(), "{}", output_text(&started));
    }

    fn try_launch(&self, number: usize, unit: &str, text: &str) -> Output {
        let path = self.path(unit);
        std::fs::write(&path, text).unwrap();
        self.fleetctl(number, &["start", path.to_str().unwrap()])
    }

    /// Waits until daemon `number` shows this unit as active, and returns its row.
    fn wait_active(&self, number: usize, unit: &str) -> Value {
        wait_for("the unit is active", || {
            let rows = self.list(number, "list-units");
            rows.into_iter().find(|row| row["unit"] == unit && row["active"] == "active")
        })
    }
}

impl Cluster {
    /// Ends all units and all processes.
    fn stop(&mut self) {
        if self.etcd.is_none() {
            self.start_etcd();
        }
        for number in 0..2 {
            if self.daemons[number].is_none() {
                self.start_daemon(number);
            }
        }
        let rows = self.list(0, "list-units");
        for row in &rows {
            let _destroyed =
                self.fleetctl(0, &["destroy", row["unit"].as_str().unwrap_or_default()]);
        }
        wait_for("no units remain", || self.list(0, "list-units").is_empty().then_some(()));
        self.end_daemon(0, Signal::TERM);
        self.end_daemon(1, Signal::TERM);
        self.kill_etcd();
    }

    /// Returns the last lines of all logs, and each daemon's response to a request.
    fn report(&self) -> String {
        let logs = ["etcd.log", "0.log", "1.log"].map(|name| {
            let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
        });
        let responses = [0, 1].map(|number| {
            let output = output_text(&self.fleetctl(number, &["list-machines", "-l"]));
            format!("--- machines of daemon {number}\n{output}\n")
        });
        logs.concat() + &responses.concat()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return self.stop();
        }
        let _written = std::io::stderr().write_all(self.report().as_bytes());
        // A second panic would end all tests of this process, and hide the first one.
        let stopped = std::panic::catch_unwind(AssertUnwindSafe(|| self.stop()));
        if stopped.is_err() {
            for process in self.daemons.iter_mut().chain([&mut self.etcd]).flatten() {
                let _killed = process.kill();
                let _reaped = process.wait();
            }
        }
    }
}

#[test]
#[ignore = "needs etcd: run by scripts/test --full"]
fn two_daemons_survive_each_other_and_etcd() {
    let mut cluster = Cluster::start();
    cluster.launch(0, "one.service");
    let row = cluster.wait_active(0, "one.service");
    assert_eq!(cluster.wait_active(1, "one.service"), row, "the daemons report different states");

    // Whether the leading daemon or the other one is killed, the remaining one places units.
    for killed in [0, 1] {
        let remaining = 1 - killed;
        cluster.end_daemon(killed, Signal::KILL);
        wait_for("its machine is absent", || {
            (cluster.machines(remaining).len() == 1).then_some(())
        });
        let unit = format!("without{killed}.service");
        cluster.launch(remaining, &unit);
        let placed = cluster.wait_active(remaining, &unit);
        assert!(placed["machine"].as_str().unwrap().contains(&remaining.to_string()), "{placed}");
        cluster.start_daemon(killed);
        wait_for("its machine is present", || {
            (cluster.machines(remaining).len() == 2).then_some(())
        });
    }

    // Without etcd, nothing changes, and no unit stops.
    let before = cluster.wait_active(0, "one.service");
    cluster.kill_etcd();
    wait_for("writes fail", || {
        let path = cluster.path("late.service");
        std::fs::write(&path, "[Service]\nExecStart=/bin/true\n").unwrap();
        let submitted = cluster.fleetctl(0, &["submit", path.to_str().unwrap()]);
        (!submitted.status.success()).then_some(())
    });
    assert!(is_alive(main_pid(&before)), "units must outlive etcd");
    cluster.start_etcd();
    wait_for("both machines are present", || (cluster.machines(1).len() == 2).then_some(()));
    // A restarted etcd must elect its leader before it accepts writes.
    wait_for("a unit can be started", || {
        let text = "[Service]\nExecStart=/bin/sleep infinity\n";
        cluster.try_launch(1, "after.service", text).status.success().then_some(())
    });
    cluster.wait_active(0, "after.service");
    let after = cluster.wait_active(0, "one.service");
    assert_eq!(after["mainPID"], before["mainPID"], "a unit was restarted");
}

/// A unit that writes a line every 100 ms, with the current time in nanoseconds.
const TALKER: &str = "[Service]\nExecStart=/bin/sh -c 'while :; do date +%%s%%N; sleep 0.1; done'\n\
     [X-Fleet]\nMachineID=machine1\n";

/// The number of lines to measure.
const LINES: usize = 20;

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn remote_line_is_shown_immediately() {
    let cluster = Cluster::start();
    cluster.launch_text(0, "talker.service", TALKER);
    cluster.wait_active(0, "talker.service");
    let socket = format!("unix://{}", cluster.socket(0).display());
    let client = Client::new(&socket.parse().expect("the endpoint is valid"));
    let options = JournalOptions::default().with_lines(0).with_follow(true);
    let unit = "talker.service".parse().expect("the name is valid");
    let mut journal = client.journal(&unit, &options).await.expect("the unit has a journal");
    let mut delays = Vec::new();
    for _ in 0..LINES {
        let line = tokio::time::timeout(Duration::from_secs(30), journal.next_line()).await;
        let line = line
            .expect("a line arrives")
            .expect("the line can be read")
            .expect("the journal continues");
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is after the epoch");
        delays.push(now.saturating_sub(Duration::from_nanos(line.parse().expect("a timestamp"))));
    }
    delays.sort_unstable();
    let (median, longest) = (delays[LINES / 2], delays[LINES - 1]);
    let figure = format!("delay of a remote line: median {median:.1?}, longest {longest:.1?}");
    writeln!(std::io::stderr(), "figure: {figure}")
        .expect("a test can write to its standard error");
}
