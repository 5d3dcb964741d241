//! The measured server: in this process, or an external daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::JournalQuery;
use fleet_core::{MachineId, TargetState};
use fleet_http::client::UnitUpload;
use fleet_http::server::{JournalError, JournalStream};
use fleet_http::{Api, Client, Endpoint, Journals, ListenAddress, Listener, serve};
use fleet_store::{Layout, Mirror, Registry, Store};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Number of concurrent writes while preparing a figure.
const CONCURRENCY: usize = 64;

/// A server on a unix socket.
pub(crate) struct Server {
    endpoint: Endpoint,
    socket: PathBuf,
    /// Directory of a server in this process.
    folder: Option<TempDir>,
}

impl Server {
    /// Connects to the daemon that listens there.
    pub(crate) fn connect(endpoint: &Endpoint) -> Self {
        let url = endpoint.to_string();
        let socket = url.strip_prefix("unix://").expect("a unix socket").into();
        Self { endpoint: endpoint.clone(), socket, folder: None }
    }

    /// Starts a server in this process, without journals.
    pub(crate) async fn start(store: Arc<dyn Store>) -> Self {
        Self::start_with(store, Arc::new(NoJournals)).await
    }

    /// Starts a server in this process.
    pub(crate) async fn start_with(store: Arc<dyn Store>, journals: Arc<dyn Journals>) -> Self {
        let registry = Registry::new(store, Layout::DEFAULT_PREFIX);
        let mirror = Mirror::start(&registry);
        mirror.wait_current().await.expect("a mirror");
        let api = Api::new(registry, mirror).with_journals(journals).with_version("bench");
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("fleet.sock");
        let listen = ListenAddress::Unix(socket.clone());
        let listener = Listener::bind(&listen).await.expect("a socket");
        tokio::spawn(serve(listener, api.router(), std::future::pending()));
        let endpoint = listen.to_string().parse().expect("an endpoint");
        Self { endpoint, socket, folder: Some(folder) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.endpoint)
    }

    pub(crate) fn url(&self) -> String {
        self.endpoint.to_string()
    }

    /// Creates this number of units `u0`, `u1`, ….
    pub(crate) async fn fill(&self, count: usize) {
        self.write("u", count).await;
    }

    /// Creates this number of units with names that begin with `prefix`.
    pub(crate) async fn write(&self, prefix: &str, count: usize) {
        let client = &self.client();
        let put = |number: usize| async move {
            client.put_unit(&name(&format!("{prefix}{number}")), &upload()).await.expect("a write");
        };
        stream::iter(0..count).for_each_concurrent(CONCURRENCY, put).await;
    }

    /// Destroys all units.
    pub(crate) async fn clear(&self) {
        let client = &self.client();
        let destroy = |unit: fleet_http::wire::UnitEntity| async move {
            let name = UnitName::parse(&unit.name).expect("a name");
            client.destroy(&name).await.expect("a write");
        };
        let units = client.units().await.expect("a list");
        stream::iter(units).for_each_concurrent(CONCURRENCY, destroy).await;
    }

    /// Connects a client that decodes as little as possible.
    pub(crate) async fn wire(&self) -> Wire {
        Wire(BufReader::new(UnixStream::connect(&self.socket).await.expect("a connection")))
    }

    /// Returns a name for the processes that the figures of memory and CPU time include.
    pub(crate) fn scope(&self) -> &'static str {
        if self.folder.is_some() { "both ends" } else { "the daemon" }
    }

    /// Returns the memory use of the server's process, in KiB.
    pub(crate) fn memory(&self) -> usize {
        let status = read(&self.process().join("status"));
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its size");
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    }

    /// Returns the CPU time of the server's process.
    pub(crate) fn cpu_time(&self) -> Duration {
        let tasks = std::fs::read_dir(self.process().join("task")).expect("its threads");
        let cpu_time = tasks.map(|task| {
            let path = task.expect("a thread").path().join("schedstat");
            let stat = std::fs::read_to_string(path).unwrap_or_default();
            stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
        });
        Duration::from_nanos(cpu_time.sum())
    }

    fn process(&self) -> PathBuf {
        if self.folder.is_some() {
            return "/proc/self".into();
        }
        let connection = std::os::unix::net::UnixStream::connect(&self.socket);
        let connection = connection.expect("a connection");
        connection.set_nonblocking(true).expect("a setting");
        let connection = UnixStream::from_std(connection).expect("a connection");
        let pid = connection.peer_cred().ok().and_then(|peer| peer.pid()).expect("a process");
        Path::new("/proc").join(pid.to_string())
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file of procfs")
}

/// A connection that reads bytes and decodes only page tokens.
pub(crate) struct Wire(BufReader<UnixStream>);

impl Wire {
    /// Reads all pages of the list of units.
    pub(crate) async fn list(&mut self) {
        let mut path = "/fleet/v1/units".to_owned();
        loop {
            let page = self.get(&path).await;
            let Some(next) = page.strip_prefix(br#"{"nextPageToken":""#) else { return };
            let token = next.split(|byte| *byte == b'"').next().expect("a token");
            let token = str::from_utf8(token).expect("a token");
            path = format!("/fleet/v1/units?nextPageToken={token}");
        }
    }

    async fn get(&mut self, path: &str) -> Vec<u8> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.write_all(head.as_bytes()).await.expect("a request");
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line).await.expect("a response");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("a response");
        body
    }
}

struct NoJournals;

#[async_trait]
impl Journals for NoJournals {
    async fn open(
        &self,
        machine: &MachineId,
        _: &UnitName,
        _: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        Err(JournalError::NotLocal { machine: machine.clone() })
    }
}

pub(crate) fn name(text: &str) -> UnitName {
    UnitName::parse(&format!("{text}.service")).expect("a name")
}

pub(crate) fn upload() -> UnitUpload {
    let text = "[Unit]\nDescription=A web server\n[Service]\nExecStart=/usr/bin/web --port 80\n\
                Restart=on-failure\n[X-Fleet]\nMachineMetadata=disk=ssd\n";
    let file = UnitFile::parse(text).expect("a unit file");
    UnitUpload::new(file).with_desired(TargetState::Inactive)
}
