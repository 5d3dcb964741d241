//! A server of 1,000 units on 50 machines, over the memory store, in a process of its own. The test
//! plays the agents and the engine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fleet_core::unit::{LoadState, SystemdState};
use fleet_core::{
    ActiveState, Epoch, Generation, MachineId, Metadata, Reason, TargetState, Timestamp, UnitState,
};
use fleet_http::{Api, Listener, serve};
use fleet_store::registry::{
    ExpectUnit, MachineRecord, NewUnit, PlacementWrites, Presence, SetPlacement,
};
use fleet_store::{Layout, MemoryStore, Mirror, Registry};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::io::AsyncBufReadExt as _;

/// Set for the process that serves: the number of units and of machines.
const SERVES: &str = "FLEET_BROWSER_SERVER";

const TTL: Duration = Duration::from_secs(3600);

/// The server as a child process. It ends with its standard input.
pub(crate) struct LargeCluster {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl LargeCluster {
    pub(crate) fn start(units: usize, machines: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "large::serve_if_requested", "--nocapture", "--test-threads=1"])
            .env(SERVES, format!("{units} {machines}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut cluster = Self { child, input, output, url: String::new() };
        cluster.url = cluster.line_after("serving ");
        cluster
    }

    fn line_after(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            if let Some((_, rest)) = line.split_once(prefix) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Publishes a state of a unit. Returns the time just before it was published, in milliseconds
    /// since 1970.
    pub(crate) fn publish(&mut self, unit: usize, active: &str) -> f64 {
        writeln!(self.input.as_mut().unwrap(), "{unit} {active}").unwrap();
        self.line_after("published ").parse().unwrap()
    }

    /// Returns the resident memory of the server, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Opens the connections of a page, without a browser.
    pub(crate) fn open_page(&self) -> Vec<TcpStream> {
        let address = self.url.trim_start_matches("http://");
        let get = |path: &str, keep: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: {keep}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let mut page = String::new();
        std::io::Read::read_to_string(&mut get("/", "close"), &mut page).unwrap();
        let since = page.split_once("data-since=\"").unwrap().1.split_once('"').unwrap().0;
        let live = get(&format!("/ui/live?view=units&since={since}"), "keep-alive");
        let mut first = String::new();
        BufReader::new(&live).read_line(&mut first).unwrap();
        assert!(first.contains("200"), "{first}");
        vec![live]
    }
}

impl Drop for LargeCluster {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

/// Serves in the child process; elsewhere it does nothing.
#[test]
fn serve_if_requested() {
    let Ok(size) = std::env::var(SERVES) else { return };
    let (units, machines) = size.split_once(' ').unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(serve_cluster(units.parse().unwrap(), machines.parse().unwrap()));
}

fn machine_id(number: usize) -> MachineId {
    format!("{:08x}{:024x}", 0x9e37_79b9_usize.wrapping_mul(number + 1) % 0xffff_ffff, number)
        .parse()
        .unwrap()
}

const KINDS: [&str; 8] =
    ["api", "billing", "cache", "frontend", "mail", "queue", "search", "worker"];

fn unit_name(number: usize) -> UnitName {
    format!("{}@{}.service", KINDS[number % KINDS.len()], number / KINDS.len() + 1).parse().unwrap()
}

fn state(number: usize, machines: usize, active: ActiveState) -> UnitState {
    let sub = match active {
        ActiveState::Active => "running",
        ActiveState::Failed => "failed",
        ActiveState::Activating => "start-pre",
        _ => "dead",
    };
    let systemd = SystemdState {
        main_pid: (active == ActiveState::Active).then_some(4000 + number as u32),
        result: (active == ActiveState::Failed).then(|| "exit-code".to_owned()),
        since: Some(ago(3_600_000 * (number as u64 % 50))),
        ..SystemdState::new(LoadState::Loaded, active, sub)
    };
    UnitState {
        unit: unit_name(number),
        machine: machine_id(number % machines),
        hash: "5b4e7d2f0a1c3e5d7f90112233445566778899aa".parse().unwrap(),
        requested: TargetState::Launched,
        epoch: Epoch(1),
        generation: Generation::ZERO,
        systemd,
        problem: None,
        health: None,
        output: Vec::new(),
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn ago(millis: u64) -> Timestamp {
    Timestamp::default().after(now() - Duration::from_millis(millis + 90_000))
}

async fn serve_cluster(units: usize, machines: usize) {
    let store = Arc::new(MemoryStore::new());
    let registry = Registry::new(store, Layout::DEFAULT_PREFIX);
    let mirror = Mirror::start(&registry);
    let presences = join(&registry, machines).await;
    fill(&registry, &presences, units).await;
    let listener = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let url = listener.local_address().to_string().replace("tcp://", "http://");
    let all = mirror
        .subscribe()
        .wait_for(|_| mirror.snapshot().states().count() >= units - 1)
        .await
        .is_ok();
    assert!(all);
    let api = Api::new(registry, mirror).router();
    print(&format!("serving {url}"));
    serve(listener, api, follow_orders(&presences)).await;
}

fn print(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "\n{line}").unwrap();
    output.flush().unwrap();
}

/// Publishes the states that the parent orders, until the input ends.
async fn follow_orders(presences: &[Presence]) {
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (unit, active) = line.split_once(' ').unwrap();
        let unit: usize = unit.parse().unwrap();
        let state = state(unit, presences.len(), active.parse().unwrap());
        let before = now();
        presences[unit % presences.len()].publish_states(&[state], &[]).await.unwrap();
        print(&format!("published {:.3}", before.as_secs_f64() * 1e3));
    }
}

async fn join(registry: &Registry, machines: usize) -> Vec<Presence> {
    let mut presences = Vec::new();
    for number in 0..machines {
        let zone = ["a", "b", "c"][number % 3].to_owned();
        let disk = ["ssd", "hdd"][number % 2].to_owned();
        let record = MachineRecord {
            address: Some([10, 0, 1, number as u8 + 1].into()),
            metadata: Metadata::from([("zone".to_owned(), zone), ("disk".to_owned(), disk)]),
            version: "0.1.0".to_owned(),
            ..MachineRecord::new(machine_id(number))
        };
        presences.push(registry.join(record, "token", TTL).await.unwrap());
    }
    presences
}

/// Writes units, places them, and reports their states. The last unit has no machine.
async fn fill(registry: &Registry, presences: &[Presence], units: usize) {
    let text = "[Unit]\nDescription=A part of the shop\n[Service]\nExecStart=/usr/bin/shop %i\n";
    let file = UnitFile::parse(text).unwrap();
    for number in 0..units {
        let (name, file) = (unit_name(number), file.clone());
        let new = NewUnit { name, file, desired: TargetState::Launched };
        registry.put_unit(new, ExpectUnit::Any).await.unwrap();
    }
    let leader = registry.campaign(&machine_id(0), TTL).await.unwrap().unwrap();
    let placed = units - 1;
    let set = (0..placed).map(|number| SetPlacement {
        unit: unit_name(number),
        machine: machine_id(number % presences.len()),
        epoch: Epoch(1),
        previous: None,
    });
    let reasons = vec![(unit_name(placed), Some(Reason::NoMachines))];
    let set = set.collect();
    leader.commit(&PlacementWrites { set, reasons, ..PlacementWrites::default() }).await.unwrap();
    leader.resign().await.unwrap();
    for number in 0..placed {
        let active = match number {
            5 | 26 => ActiveState::Failed,
            10 => ActiveState::Activating,
            _ => ActiveState::Active,
        };
        let state = state(number, presences.len(), active);
        presences[number % presences.len()].publish_states(&[state], &[]).await.unwrap();
    }
}
