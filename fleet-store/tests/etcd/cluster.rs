//! A test's own etcd cluster: real processes on free ports, killed when dropped.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet_store::{EtcdConfig, EtcdStore, EtcdUser, Store as _};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::support::etcd_directory;

/// Timeout for the start of a cluster.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of attempts with other ports, if one was taken meanwhile.
const TRIES: usize = 5;

/// User and role of the tests.
const USER: &str = "fleet";
const PASSWORD: &str = "a secret, and not a good one";

pub(crate) struct Cluster {
    members: Vec<Member>,
    certificates: Option<Certificates>,
    users: bool,
    /// Removed last, because the members write there.
    _home: TempDir,
}

struct Member {
    url: String,
    arguments: Vec<String>,
    log: File,
    process: Option<Child>,
}

/// Kind of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) members: usize,
    pub(crate) secure: bool,
    /// Additional arguments of every member.
    pub(crate) arguments: &'static [&'static str],
}

impl Cluster {
    /// Starts one member without authentication.
    pub(crate) async fn one() -> Self {
        Self::start(Kind { members: 1, secure: false, arguments: &[] }).await
    }

    /// Starts three members that require client certificates and a user with a password.
    pub(crate) async fn three_secure() -> Self {
        let mut cluster = Self::start(Kind { members: 3, secure: true, arguments: &[] }).await;
        cluster.add_user();
        cluster
    }

    pub(crate) async fn start(kind: Kind) -> Self {
        for _ in 0..TRIES {
            let mut cluster = Self::prepare(kind);
            (0..kind.members).for_each(|member| cluster.start_member(member));
            if cluster.wait_until_ready().await {
                return cluster;
            }
        }
        panic!("etcd does not come up: is it installed?");
    }

    fn prepare(kind: Kind) -> Self {
        let home = etcd_directory();
        let certificates = kind.secure.then(|| Certificates::make(home.path()));
        let scheme = if kind.secure { "https" } else { "http" };
        let ports = free_ports(2 * kind.members);
        let url = |port: &u16| format!("{scheme}://127.0.0.1:{port}");
        let (clients, peers): (Vec<_>, Vec<_>) =
            ports.chunks(2).map(|pair| (url(&pair[0]), url(&pair[1]))).unzip();
        let all = peers.iter().enumerate().map(|(i, url)| format!("m{i}={url}"));
        let all = all.collect::<Vec<_>>().join(",");
        let member = |i: usize| {
            let log = File::create(home.path().join(format!("m{i}.log"))).unwrap();
            let mut arguments: Vec<String> = vec![
                format!("--name=m{i}"),
                format!("--data-dir={}", home.path().join(format!("m{i}")).display()),
                format!("--listen-client-urls={}", clients[i]),
                format!("--advertise-client-urls={}", clients[i]),
                format!("--listen-peer-urls={}", peers[i]),
                format!("--initial-advertise-peer-urls={}", peers[i]),
                format!("--initial-cluster={all}"),
                "--heartbeat-interval=100".to_owned(),
                "--election-timeout=1000".to_owned(),
                "--log-level=warn".to_owned(),
                "--logger=zap".to_owned(),
            ];
            arguments.extend(certificates.iter().flat_map(tls_arguments));
            arguments.extend(kind.arguments.iter().map(|&argument| argument.to_owned()));
            Member { url: clients[i].clone(), arguments, log, process: None }
        };
        let members = (0..kind.members).map(member).collect();
        Self { members, certificates, users: false, _home: home }
    }

    /// Returns the client URLs of the members.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// Returns the configuration of a store whose keys begin with `prefix`.
    pub(crate) fn config(&self, prefix: &str) -> EtcdConfig {
        let user = EtcdUser { name: USER.to_owned(), password: PASSWORD.to_owned() };
        EtcdConfig {
            tls: self.certificates.as_ref().map(Certificates::tls).unwrap_or_default(),
            user: self.users.then_some(user),
            key_prefix: prefix.to_owned(),
            ..EtcdConfig::new(self.urls())
        }
    }

    pub(crate) fn store(&self, prefix: &str) -> EtcdStore {
        EtcdStore::new(&self.config(prefix)).unwrap()
    }

    /// Starts a member, which continues with the data on its disk.
    pub(crate) fn start_member(&mut self, member: usize) {
        let member = &mut self.members[member];
        let started = program("etcd")
            .args(&member.arguments)
            .stdout(member.log.try_clone().unwrap())
            .stderr(member.log.try_clone().unwrap())
            .spawn();
        member.process = Some(started.expect("etcd is installed"));
    }

    /// Kills a member immediately, as a loss of power would.
    pub(crate) fn kill_member(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops a member's execution; its connections remain.
    pub(crate) fn pause_member(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    pub(crate) fn resume_member(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    fn signal(&self, member: usize, signal: Signal) {
        let process = self.members[member].process.as_ref().expect("the member runs");
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// Runs etcdctl as root.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let mut etcdctl = program("etcdctl");
        etcdctl.env("ETCDCTL_API", "3");
        etcdctl.arg(format!("--endpoints={}", self.urls().join(",")));
        if let Some(certificates) = &self.certificates {
            for (flag, file) in
                [("cacert", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")]
            {
                etcdctl.arg(format!("--{flag}={}", certificates.path(file).display()));
            }
        }
        if self.users {
            etcdctl.arg("--user=root:root");
        }
        let output = etcdctl.args(arguments).output().expect("etcdctl is installed");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "etcdctl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Enables authentication. The stores' user may only access its own keys.
    fn add_user(&mut self) {
        let user = format!("{USER}:{PASSWORD}");
        self.etcdctl(&["user", "add", "root:root"]);
        self.etcdctl(&["user", "grant-role", "root", "root"]);
        self.etcdctl(&["role", "add", USER]);
        self.etcdctl(&["role", "grant-permission", "--prefix=true", USER, "readwrite", "test/"]);
        self.etcdctl(&["user", "add", &user]);
        self.etcdctl(&["user", "grant-role", USER, USER]);
        self.etcdctl(&["auth", "enable"]);
        self.users = true;
    }

    /// Waits until all members respond. Returns `false` if one has exited.
    pub(crate) async fn wait_until_ready(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        for member in 0..self.members.len() {
            let url = self.members[member].url.clone();
            let config = EtcdConfig { endpoints: vec![url], ..self.config("test/") };
            let store = EtcdStore::new(&config).unwrap();
            while store.read("").await.is_err() {
                let process = self.members[member].process.as_mut().expect("it was started");
                if process.try_wait().unwrap().is_some() {
                    return false;
                }
                assert!(Instant::now() < deadline, "member {member} does not come up");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        true
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill_member(member);
        }
    }
}

/// Returns a command for a program in the PATH, without etcd's environment variables.
fn program(name: &str) -> Command {
    let mut program = Command::new(name);
    program.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    program.stdin(Stdio::null());
    program
}

fn tls_arguments(certificates: &Certificates) -> Vec<String> {
    let path = |name| certificates.path(name).display().to_string();
    let (ca, certificate, key) = (path("ca.pem"), path("member.pem"), path("member.key"));
    vec![
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={ca}"),
        format!("--cert-file={certificate}"),
        format!("--key-file={key}"),
        "--peer-client-cert-auth".to_owned(),
        format!("--peer-trusted-ca-file={ca}"),
        format!("--peer-cert-file={certificate}"),
        format!("--peer-key-file={key}"),
    ]
}

/// Returns free ports. All are held until all are known, so they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
