//! Sockets and paths, the units that they start, and descriptors of services.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::{ActiveState, Generation, TargetState};

use super::helper::does;
use crate::support::{Bench, name, runs, wait_until};

impl Bench {
    /// Loads a unit of any type.
    pub(super) async fn load_unit(&self, unit: &str, text: &str) {
        self.try_load(unit, text).await.expect("it can be loaded");
    }

    /// Loads `a.socket`, which listens at the path `socket`.
    pub(super) async fn load_socket(&self, settings: &str) {
        let at = self.path("socket").display().to_string();
        self.load_unit("a.socket", &format!("[Socket]\nListenStream={at}\n{settings}\n")).await;
    }

    /// Loads `a.service`, which answers one connection per run.
    pub(super) async fn load_server(&self) {
        let listens = self.path("listens").display().to_string();
        let steps = format!("listens {listens}|answer 3 hello|exit 0");
        let text = format!("[Unit]\nStartLimitIntervalSec=0\n[Service]\n{}", does(&steps));
        self.load_unit("a.service", &text).await;
    }
}

/// Connects to a socket, and returns the text that its service sends.
pub(super) async fn ask(socket: &Path) -> String {
    let socket = socket.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        let mut stream = UnixStream::connect(socket).expect("it listens");
        stream.read_to_string(&mut text).expect("it is answered");
        text
    });
    asked.await.expect("it ends")
}

#[tokio::test]
async fn traffic_starts_the_service_with_its_socket() {
    let bench = Bench::new().await;
    bench.load_server().await;
    bench.load_socket("FileDescriptorName=web").await;
    assert_eq!(bench.state("a.socket").await.sub, "dead");
    bench.start("a.socket").await.expect("it starts");
    let state = bench.state("a.socket").await;
    assert_eq!((state.active, &*state.sub), (ActiveState::Active, "listening"));
    assert_eq!(bench.state("a.service").await.sub, "dead", "nothing has arrived");
    for _ in 0..3 {
        assert_eq!(ask(&bench.path("socket")).await, "hello\n");
    }
    let lines = bench.wait_for_lines("listens", 3).await;
    assert_eq!(lines, ["1 web true"; 3]);
    bench.wait_for_sub("a.service", "dead").await;
    bench.wait_for_sub("a.socket", "listening").await;
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded);
    bench.stop("a.socket").await;
    UnixStream::connect(bench.path("socket")).expect_err("it does not listen any more");
    assert!(bench.path("socket").exists(), "the path stays");
    bench.clean_up().await;
}

#[tokio::test]
async fn running_service_owns_the_traffic() {
    let bench = Bench::new().await;
    bench.load("a.service", &does("answer 3 one|answer 3 two|sleep")).await;
    bench.load_socket("").await;
    bench.start("a.socket").await.expect("it starts");
    assert_eq!(ask(&bench.path("socket")).await, "one\n");
    bench.wait_for_sub("a.socket", "running").await;
    let pid = bench.pid("a.service").await;
    assert_eq!(ask(&bench.path("socket")).await, "two\n");
    assert_eq!(bench.pid("a.service").await, pid);
    // Traffic that the service does not take starts it again once it has ended.
    let _waiting = UnixStream::connect(bench.path("socket")).expect("it listens");
    bench.stop("a.service").await;
    bench.wait_for("a.service", |state| state.main_pid.is_some_and(|it| it != pid)).await;
    bench.stop("a.socket").await;
    assert!(runs(bench.pid("a.service").await), "stopping a socket stops no service");
    bench.clean_up().await;
}

#[tokio::test]
async fn service_started_by_hand_gets_its_sockets() {
    let bench = Bench::new().await;
    let listens = bench.path("listens").display().to_string();
    let service = does(&format!("listens {listens}|sleep"));
    bench.load("a.service", &format!("{service}Sockets=b.socket\n")).await;
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_socket(&format!("ListenFIFO={}", bench.path("fifo").display())).await;
    bench.load_unit("b.socket", &format!("[Socket]\nListenStream=@{listens}\n")).await;
    bench.start("a.service").await.expect("it starts");
    assert_eq!(bench.state("b.socket").await.sub, "listening", "the service wants it");
    assert_eq!(bench.state("a.socket").await.sub, "dead", "it does not want this one");
    let refused = bench.start("a.socket").await.expect_err("its service runs without it");
    assert!(refused.to_string().contains("active without its sockets"), "{refused}");
    bench.wait_for_lines("listens", 1).await;
    bench.stop("a.service").await;
    bench.start("a.socket").await.expect("it starts");
    bench.start("a.service").await.expect("it starts");
    let lines = bench.wait_for_lines("listens", 2).await;
    assert_eq!(lines, ["1 b.socket true", "3 a.socket:a.socket:b.socket true"]);
    bench.wait_for_sub("a.socket", "running").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn socket_paths_have_their_mode_and_symlinks() {
    let bench = Bench::new().await;
    bench.load_server().await;
    let at = bench.path("new/directory/socket");
    let link = bench.path("links/link");
    let settings = format!(
        "[Socket]\nListenStream={}\nSocketMode=0640\nDirectoryMode=0700\nSymlinks={}\n\
         RemoveOnStop=yes\nBacklog=7\nReceiveBuffer=8K\nPassCredentials=yes\nKeepAlive=yes\n",
        at.display(),
        link.display()
    );
    bench.load_unit("a.socket", &settings).await;
    bench.start("a.socket").await.expect("it starts");
    let mode =
        |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode(&at), mode(&bench.path("new"))), (0o640, 0o700));
    assert_eq!(ask(&link).await, "hello\n");
    bench.wait_for_sub("a.service", "dead").await;
    bench.stop("a.socket").await;
    assert!(!at.exists() && std::fs::symlink_metadata(&link).is_err(), "both are removed");
    std::fs::write(&at, "text").expect("it can be written");
    let refused = bench.start("a.socket").await.expect_err("a file is in the way");
    assert!(refused.to_string().contains("cannot listen at"), "{refused}");
    assert_eq!(bench.state("a.socket").await.result.as_deref(), Some("resources"));
    assert_eq!(std::fs::read_to_string(&at).expect("it is there"), "text");
    bench.clean_up().await;
}

#[tokio::test]
async fn port_and_fifo_start_their_service() {
    let bench = Bench::new().await;
    let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = free.local_addr().expect("it has an address");
    drop(free);
    bench.load("tcp.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load("fifo.service", &does("read 3|sleep")).await;
    let tcp = format!("[Socket]\nListenStream={address}\nNoDelay=yes\nReusePort=yes\n");
    bench.load_unit("tcp.socket", &tcp).await;
    let fifo = format!("[Socket]\nListenFIFO={}\n", bench.path("fifo").display());
    bench.load_unit("fifo.socket", &fifo).await;
    for socket in ["tcp.socket", "fifo.socket"] {
        bench.start(socket).await.expect("it starts");
    }
    let _connection = std::net::TcpStream::connect(address).expect("it listens");
    bench.wait_for_sub("tcp.service", "running").await;
    let kind = std::fs::metadata(bench.path("fifo")).expect("it is there").file_type();
    assert!(kind.is_fifo());
    std::fs::write(bench.path("fifo"), "text").expect("it can be written");
    bench.wait_for_sub("fifo.service", "running").await;
    bench.clean_up().await;
}

/// The service never takes its connection, so it is started again and again.
#[tokio::test]
async fn socket_fails_beyond_its_trigger_limit() {
    let bench = Bench::new().await;
    let service = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nExecStart=/bin/true\n";
    bench.load_unit("a.service", service).await;
    bench.load_socket("TriggerLimitIntervalSec=1h\nTriggerLimitBurst=3").await;
    bench.start("a.socket").await.expect("it starts");
    let _waiting = UnixStream::connect(bench.path("socket")).expect("it listens");
    let state = bench.wait_for_sub("a.socket", "failed").await;
    assert_eq!(state.result.as_deref(), Some("trigger-limit-hit"));
    UnixStream::connect(bench.path("socket")).expect_err("it does not listen any more");
    bench.start("a.socket").await.expect("it starts again");
    bench.clean_up().await;
}

#[tokio::test]
async fn socket_fails_with_the_start_limit_of_its_service() {
    let bench = Bench::new().await;
    let service = "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n[Service]\n\
                   Type=oneshot\nExecStart=/bin/true\n";
    bench.load_unit("a.service", service).await;
    bench.load_socket("").await;
    bench.start("a.socket").await.expect("it starts");
    let _waiting = UnixStream::connect(bench.path("socket")).expect("it listens");
    let state = bench.wait_for_sub("a.socket", "failed").await;
    assert_eq!(state.result.as_deref(), Some("service-start-limit-hit"));
    bench.clean_up().await;
}

#[tokio::test]
async fn flushed_traffic_starts_no_service_again() {
    let bench = Bench::new().await;
    bench.load("a.service", "Type=oneshot\nExecStart=/bin/true\n").await;
    bench.load_socket("FlushPending=yes").await;
    bench.start("a.socket").await.expect("it starts");
    let socket = bench.path("socket");
    // The connection ends unanswered when the socket is flushed.
    assert_eq!(ask(&socket).await, "");
    bench.wait_for_sub("a.socket", "listening").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn stopped_socket_stops_the_services_that_require_it() {
    let bench = Bench::new().await;
    let needs = "[Unit]\nRequires=a.socket\nAfter=a.socket\n[Service]\nExecStart=/bin/sleep 1000\n";
    bench.load_unit("a.service", needs).await;
    bench.load_socket("[Install]\nWantedBy=sockets.target").await;
    bench.load_unit("sockets.target", "[Unit]\nDescription=All\n").await;
    bench.start("sockets.target").await.expect("it starts");
    assert_eq!(bench.state("a.socket").await.sub, "listening", "the target wants it");
    bench.stop("a.socket").await;
    bench.start("a.service").await.expect("it starts");
    bench.wait_for_sub("a.socket", "running").await;
    bench.stop("a.socket").await;
    bench.wait_for_sub("a.service", "dead").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn socket_without_its_service_is_refused() {
    let bench = Bench::new().await;
    bench.load_socket("Service=b.service").await;
    let refused = bench.start("a.socket").await.expect_err("there is nothing to start");
    assert!(matches!(refused, ServiceError::NothingToTrigger { .. }), "{refused}");
    assert_eq!(bench.get("a.socket").await.known.requested, TargetState::Loaded);
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.start("a.socket").await.expect("it starts");
    bench.manager.unload(&name("b.service")).await.expect("it is unloaded");
    let _waiting = UnixStream::connect(bench.path("socket")).expect("it listens");
    bench.wait_for_sub("a.socket", "failed").await;
    bench.load("b.service", "ExecStart=/bin/sleep 1001\n").await;
    bench.wait_for_sub("a.socket", "listening").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn unmet_condition_skips_a_socket() {
    let bench = Bench::new().await;
    bench.load_server().await;
    bench.load_socket("[Unit]\nConditionPathExists=/none").await;
    bench.start("a.socket").await.expect("it is skipped");
    assert_eq!(bench.state("a.socket").await.sub, "dead");
    bench.load_socket("[Unit]\nAssertPathExists=/none").await;
    let refused = bench.manager.start(&name("a.socket"), Generation(2)).await;
    assert!(matches!(refused, Err(ServiceError::StartFailed { .. })), "{refused:?}");
    bench.clean_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_starts_its_unit() {
    let bench = Bench::new().await;
    let file = bench.path("new/file");
    let script = format!("rm {}; echo run >>{}", file.display(), bench.path("ran").display());
    bench.load("a.service", &format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n")).await;
    bench.load_unit("a.path", &format!("[Path]\nPathExists={}\n", file.display())).await;
    bench.start("a.path").await.expect("it starts");
    assert_eq!(bench.state("a.path").await.sub, "waiting");
    std::fs::create_dir(bench.path("new")).expect("it can be created");
    for count in 1..4 {
        std::fs::write(&file, "").expect("it can be written");
        bench.wait_for_lines("ran", count).await;
        wait_until("it waits again", async || {
            let path = bench.state("a.path").await;
            path.sub == "waiting" && bench.state("a.service").await.sub == "dead"
        })
        .await;
    }
    bench.stop("a.path").await;
    assert_eq!(bench.state("a.path").await.sub, "dead");
    bench.clean_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_path_starts_a_unit_once_per_change() {
    let bench = Bench::new().await;
    let directory = bench.path("spool");
    bench.load("a.service", "ExecStart=/bin/sleep 1000\n").await;
    let text = format!("[Path]\nPathChanged={}\nMakeDirectory=yes\n", directory.display());
    bench.load_unit("a.path", &text).await;
    bench.start("a.path").await.expect("it starts");
    assert!(directory.is_dir(), "it was created");
    // The watch may begin only after this write.
    let file = directory.join("file");
    wait_until("a change is noticed", async || {
        std::fs::write(&file, "text").expect("it can be written");
        bench.state("a.service").await.sub == "running"
    })
    .await;
    bench.wait_for_sub("a.path", "running").await;
    bench.stop("a.service").await;
    bench.wait_for_sub("a.path", "waiting").await;
    assert_eq!(bench.state("a.service").await.sub, "dead", "nothing has changed since");
    bench.clean_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_fails_beyond_its_trigger_limit() {
    let bench = Bench::new().await;
    let service = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nExecStart=/bin/true\n";
    bench.load_unit("a.service", service).await;
    bench.load_unit("a.path", "[Path]\nPathExists=/\nTriggerLimitBurst=3\n").await;
    bench.start("a.path").await.expect("it starts");
    let state = bench.wait_for_sub("a.path", "failed").await;
    assert_eq!(state.result.as_deref(), Some("trigger-limit-hit"));
    bench.clean_up().await;
}

#[tokio::test]
async fn stored_descriptors_return_at_the_next_start() {
    let bench = Bench::new().await;
    let listens = bench.path("listens").display().to_string();
    let stores = "store FDSTORE=1,FDNAME=kept|store FDSTORE=1|store FDSTORE=1,FDNAME=more";
    let steps = format!("listens {listens}|{stores}|say READY=1|sleep");
    let service =
        format!("{}Type=notify\nNotifyAccess=all\nFileDescriptorStoreMax=2\n", does(&steps));
    bench.load("a.service", &service).await;
    bench.load_socket("").await;
    bench.start("a.socket").await.expect("it starts");
    bench.start("a.service").await.expect("it starts");
    bench.manager.restart(&name("a.service"), Generation(2)).await.expect("it restarts");
    bench.stop("a.service").await;
    bench.start("a.service").await.expect("it starts");
    let lines = bench.wait_for_lines("listens", 3).await;
    let expected = ["1 a.socket true", "3 a.socket:kept:stored true", "1 a.socket true"];
    assert_eq!(lines, expected, "a stop closes them");
    bench.clean_up().await;
}

#[tokio::test]
async fn removed_descriptors_are_not_passed() {
    let bench = Bench::new().await;
    let listens = bench.path("listens").display().to_string();
    let steps = format!(
        "listens {listens}|store FDSTORE=1,FDNAME=a|store FDSTORE=1,FDNAME=b|\
         say FDSTOREREMOVE=1,FDNAME=a|say READY=1|sleep"
    );
    let service =
        format!("{}Type=notify\nNotifyAccess=all\nFileDescriptorStoreMax=7\n", does(&steps));
    bench.run("a.service", &service).await;
    bench.manager.restart(&name("a.service"), Generation(2)).await.expect("it restarts");
    assert_eq!(bench.wait_for_lines("listens", 2).await, ["- - false", "1 b true"]);
    bench.clean_up().await;
}
