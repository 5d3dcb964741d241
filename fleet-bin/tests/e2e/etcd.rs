//! Two daemons, each a machine of its own, that meet in a real etcd alone.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use fleet_http::{Client, JournalOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{is_alive, main_pid, told, wait_for};

/// One etcd and two machines. However a test ends, they end, and so do the units.
struct Cluster {
    home: TempDir,
    port: u16,
    peer_port: u16,
    etcd: Option<Child>,
    daemons: [Option<Child>; 2],
}

impl Cluster {
    fn start() -> Self {
        let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, peer_port] = held.map(|listener| listener.local_addr().unwrap().port());
        let home = tempfile::tempdir().unwrap();
        let mut cluster = Self { home, port, peer_port, etcd: None, daemons: [None, None] };
        cluster.start_etcd();
        cluster.start_daemon(0);
        cluster.start_daemon(1);
        wait_for("both machines are there", || (cluster.machines(0).len() == 2).then_some(()));
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
        wait_for("the daemon shows machines", || (!self.machines(number).is_empty()).then_some(()));
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

    fn listed(&self, number: usize, what: &str) -> Vec<Value> {
        let listed = self.fleetctl(number, &[what, "-o", "json"]);
        serde_json::from_slice(&listed.stdout).unwrap_or_default()
    }

    fn machines(&self, number: usize) -> Vec<Value> {
        self.listed(number, "list-machines")
    }

    fn launch(&self, number: usize, unit: &str) {
        self.launch_text(number, unit, "[Service]\nExecStart=/bin/sleep infinity\n");
    }

    fn launch_text(&self, number: usize, unit: &str, text: &str) {
        let started = self.try_launch(number, unit, text);
        assert!(started.status.success(), "{}", told(&started));
    }

    fn try_launch(&self, number: usize, unit: &str, text: &str) -> Output {
        let path = self.path(unit);
        std::fs::write(&path, text).unwrap();
        self.fleetctl(number, &["start", path.to_str().unwrap()])
    }

    /// Waits until daemon `number` shows this unit as active, and returns its row.
    fn wait_active(&self, number: usize, unit: &str) -> Value {
        wait_for("the unit is active", || {
            let rows = self.listed(number, "list-units");
            rows.into_iter().find(|row| row["unit"] == unit && row["active"] == "active")
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.etcd.is_none() {
            self.start_etcd();
        }
        for number in 0..2 {
            if self.daemons[number].is_none() {
                self.start_daemon(number);
            }
        }
        let rows = self.listed(0, "list-units");
        for row in &rows {
            let _gone = self.fleetctl(0, &["destroy", row["unit"].as_str().unwrap_or_default()]);
        }
        wait_for("nothing is left", || self.listed(0, "list-units").is_empty().then_some(()));
        self.end_daemon(0, Signal::TERM);
        self.end_daemon(1, Signal::TERM);
        self.kill_etcd();
    }
}

#[test]
#[ignore = "needs etcd: run by scripts/test"]
fn two_daemons_share_a_cluster_and_each_outlives_the_other_and_etcd() {
    let mut cluster = Cluster::start();
    cluster.launch(0, "one.service");
    let row = cluster.wait_active(0, "one.service");
    assert_eq!(cluster.wait_active(1, "one.service"), row, "the daemons show different things");

    // Without the daemon that leads, or without the other: the one that is left places units.
    for killed in [0, 1] {
        let left = 1 - killed;
        cluster.end_daemon(killed, Signal::KILL);
        wait_for("its machine is gone", || (cluster.machines(left).len() == 1).then_some(()));
        let unit = format!("without{killed}.service");
        cluster.launch(left, &unit);
        let placed = cluster.wait_active(left, &unit);
        assert!(placed["machine"].as_str().unwrap().contains(&left.to_string()), "{placed}");
        cluster.start_daemon(killed);
        wait_for("it is back", || (cluster.machines(left).len() == 2).then_some(()));
    }

    // Without etcd nothing changes, and nothing ends.
    let before = cluster.wait_active(0, "one.service");
    cluster.kill_etcd();
    wait_for("the daemon knows", || {
        let path = cluster.path("late.service");
        std::fs::write(&path, "[Service]\nExecStart=/bin/true\n").unwrap();
        let submitted = cluster.fleetctl(0, &["submit", path.to_str().unwrap()]);
        (!submitted.status.success()).then_some(())
    });
    assert!(is_alive(main_pid(&before)), "a unit ended with etcd");
    cluster.start_etcd();
    wait_for("both machines are there", || (cluster.machines(1).len() == 2).then_some(()));
    // An etcd that has begun again elects its leader before it takes a write.
    wait_for("a unit can be started", || {
        let text = "[Service]\nExecStart=/bin/sleep infinity\n";
        cluster.try_launch(1, "after.service", text).status.success().then_some(())
    });
    cluster.wait_active(0, "after.service");
    let after = cluster.wait_active(0, "one.service");
    assert_eq!(after["mainPID"], before["mainPID"], "a unit was disturbed");
}

/// A line every now and then, each with the moment of its writing in nanoseconds.
const TALKER: &str = "[Service]\nExecStart=/bin/sh -c 'while :; do date +%%s%%N; sleep 0.1; done'\n\
     [X-Fleet]\nMachineID=machine1\n";

/// How many of its lines are waited for.
const LINES: usize = 20;

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test"]
async fn a_line_of_another_machine_is_shown_as_it_comes() {
    let cluster = Cluster::start();
    cluster.launch_text(0, "talker.service", TALKER);
    cluster.wait_active(0, "talker.service");
    let socket = format!("unix://{}", cluster.socket(0).display());
    let client = Client::new(&socket.parse().expect("it is an endpoint"));
    let options = JournalOptions { lines: Some(0), follow: true, ..JournalOptions::default() };
    let unit = "talker.service".parse().expect("it is a name");
    let mut journal = client.journal(&unit, &options).await.expect("it has a journal");
    let mut late = Vec::new();
    for _ in 0..LINES {
        let line = tokio::time::timeout(Duration::from_secs(30), journal.next_line()).await;
        let line = line.expect("a line comes").expect("it can be read").expect("there are more");
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("it is long past");
        late.push(now.saturating_sub(Duration::from_nanos(line.parse().expect("a moment"))));
    }
    late.sort_unstable();
    let (median, longest) = (late[LINES / 2], late[LINES - 1]);
    let figure = format!("a line of another machine: median {median:.1?}, longest {longest:.1?}");
    writeln!(std::io::stderr(), "figure: {figure}")
        .expect("a test can write to its standard error");
}
