//! A program that follows a script: this test binary, run again as the process of a unit.
//!
//! The environment variable `HELPER` holds the steps, separated by `|`:
//!
//! | step | effect |
//! |---|---|
//! | `say A=1,B=2` | sends these lines by `sd_notify` |
//! | `last A=1,B=2` | lets a child send these lines and exit, without reaping it |
//! | `barrier` | waits until all its messages are received |
//! | `pidfile PATH` | writes its process ID there; `pidfile PATH NUMBER` writes another one |
//! | `print TEXT` | writes a line |
//! | `flood COUNT` | writes this many lines of a hundred bytes |
//! | `make PATH` | creates a file |
//! | `await PATH` | waits until a file exists |
//! | `trap SIGNAL` | ignores `TERM` or `HUP` |
//! | `hear` | waits for the trapped signal |
//! | `child` | forks a child for the remaining steps, and waits for it |
//! | `fork NAME` | forks a child with the step `hold NAME` |
//! | `leave STATUS` | forks a child for the remaining steps, and exits |
//! | `exit STATUS` | exits |
//! | `sleep` | sleeps forever |
//! | `call PATH A=1,B=2` | sends these lines to the address in the file |
//! | `traceable` | allows any process to trace it |
//! | `trace NUMBER` | traces this process from then on |
//! | `listens PATH` | appends `LISTEN_FDS`, `LISTEN_FDNAMES`, and whether `LISTEN_PID` is its own |
//! | `answer NUMBER TEXT` | accepts a connection at this descriptor, and writes the text to it |
//! | `read NUMBER` | reads from this descriptor |
//! | `store LINES` | sends these lines with a new file, by `sd_notify` |
//! | `hold NAME` | announces itself in the file `NAME` of `HELPER_AT`, and waits for a word |
//!
//! The word is written to `NAME.go`: `go`, or the status to exit with.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::ptrace;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{PTracer, Pid, WaitId, WaitIdOptions, set_ptracer, waitid};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns the lines of a `[Service]` section for a unit with these steps.
pub(crate) fn does(steps: &str) -> String {
    format!("ExecStart={}\nEnvironment=\"HELPER={steps}\"\n", helper())
}

/// Returns the lines of a stanza for a unit with these steps.
pub(crate) fn stanza_with_steps(steps: &str) -> String {
    format!("exec-start: {}\nenv: HELPER={steps}\n", helper())
}

/// Returns a command with these steps, in this folder.
pub(crate) fn command_with_steps(steps: &str, at: &Path) -> String {
    format!("/usr/bin/env HELPER_AT={} \"HELPER={steps}\" {}", at.display(), helper())
}

/// Starts the helper as a process of the test, not of a unit.
pub(crate) fn spawn_helper(steps: &str) -> std::process::Child {
    Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", &itself(), "--nocapture"])
        .env("HELPER", steps)
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be run")
}

fn helper() -> String {
    let program = std::env::current_exe().expect("it has a path");
    format!("{} --exact {} --nocapture", program.display(), itself())
}

/// Returns the test name of the helper, which differs between test binaries.
fn itself() -> String {
    let (_, module) = module_path!().split_once("::").expect("it is in a binary");
    format!("{module}::helper_process")
}

/// The helper. Does nothing as a test.
#[tokio::test]
async fn helper_process() {
    let Ok(script) = std::env::var("HELPER") else { return };
    let mut trapped = None;
    let mut steps = script.split('|');
    while let Some(step) = steps.next() {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        match verb {
            "child" | "leave" => {
                let steps = steps.collect::<Vec<_>>().join("|");
                let mut child = fork_rest(&steps);
                if verb == "child" {
                    child.wait().expect("it is a child");
                }
                std::process::exit(rest.parse().unwrap_or(0));
            }
            "trap" => trapped = Some(trap(rest)),
            "hear" => drop(trapped.as_mut().expect("it is trapped").recv().await),
            "await" => wait_for_file(Path::new(rest)).await,
            "hold" => hold(rest).await,
            "sleep" => std::future::pending().await,
            _ => at_once(verb, rest),
        }
    }
}

fn at_once(verb: &str, rest: &str) {
    match verb {
        "say" => say(&rest.replace(',', "\n")),
        "last" => last(rest),
        "barrier" => barrier(),
        "pidfile" => {
            let (path, pid) = rest.split_once(' ').unwrap_or((rest, ""));
            let own = std::process::id().to_string();
            let pid = if pid.is_empty() { &own } else { pid };
            std::fs::write(path, format!("{pid}\n")).expect("it can be written");
        }
        "print" => println(rest),
        "flood" => {
            let line = "x".repeat(99);
            (0..rest.parse().expect("a number")).for_each(|_: u32| println(&line));
        }
        "call" => {
            let (path, text) = rest.split_once(' ').expect("an address and a text");
            let name = std::fs::read_to_string(path).expect("it is there");
            send_to(&address_of(&name), &text.replace(',', "\n"));
        }
        // Fails without the Yama security module, where nothing has to be allowed.
        "traceable" => drop(set_ptracer(PTracer::Any)),
        "trace" => {
            let pid = nix::unistd::Pid::from_raw(rest.parse().expect("a number"));
            ptrace::seize(pid, ptrace::Options::empty()).expect("it may be traced");
        }
        "fork" => drop(fork_rest(&format!("hold {rest}"))),
        "listens" => listens(Path::new(rest)),
        "answer" => {
            let (number, text) = rest.split_once(' ').expect("a number and a text");
            let listener = UnixListener::from(descriptor(number));
            listener.set_nonblocking(false).expect("it is a socket");
            let (mut connection, _) = listener.accept().expect("a connection arrives");
            writeln!(connection, "{text}").expect("the other end waits");
            std::mem::forget(listener);
        }
        "read" => {
            let mut file = File::from(descriptor(rest));
            file.read_exact(&mut [0]).expect("it can be read");
            std::mem::forget(file);
        }
        "store" => store(&rest.replace(',', "\n")),
        "make" => std::fs::write(rest, "").expect("it can be created"),
        "exit" => std::process::exit(rest.parse().expect("a status")),
        other => panic!("no step: {other}"),
    }
}

fn println(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes()).expect("the reader exists");
}

/// Starts a child in its own session for the remaining steps.
fn fork_rest(steps: &str) -> std::process::Child {
    Command::new("setsid")
        .arg(std::env::current_exe().expect("it has a path"))
        .args(["--exact", &itself(), "--nocapture"])
        .env("HELPER", steps)
        .stdin(Stdio::null())
        .spawn()
        .expect("it can be run")
}

fn trap(name: &str) -> Signal {
    let kind = match name {
        "HUP" => SignalKind::hangup(),
        "ABRT" => SignalKind::from_raw(rustix::process::Signal::ABORT.as_raw()),
        _ => SignalKind::terminate(),
    };
    signal(kind).expect("it can be trapped")
}

async fn wait_for_file(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn hold(name: &str) {
    let at = std::env::var_os("HELPER_AT").map(PathBuf::from).expect("it is set");
    let (file, word_file) = (at.join(name), at.join(format!("{name}.go")));
    let half = at.join(format!("{name}.half"));
    std::fs::write(&half, std::process::id().to_string()).expect("it can be written");
    std::fs::rename(half, file).expect("it can be named");
    wait_for_file(&word_file).await;
    let word = std::fs::read_to_string(&word_file).expect("it is there");
    std::fs::remove_file(word_file).expect("it is there");
    if word != "go" {
        std::process::exit(word.parse().expect("a status"));
    }
}

fn address() -> SocketAddr {
    address_of(&std::env::var("NOTIFY_SOCKET").expect("the socket is bound"))
}

fn address_of(name: &str) -> SocketAddr {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    address.expect("it is short")
}

fn say(text: &str) {
    send_to(&address(), text);
}

/// Waits until the child has exited, without reaping it.
#[expect(clippy::zombie_processes, reason = "the case is covered")]
fn last(text: &str) {
    let child = fork_rest(&format!("say {text}|exit 0"));
    let pid = Pid::from_child(&child);
    let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    ended.expect("it is a child");
}

/// Sends a message to a socket.
pub(crate) fn send_to(address: &SocketAddr, text: &str) {
    let socket = UnixDatagram::unbound().expect("a socket can be made");
    socket.send_to_addr(text.as_bytes(), address).expect("the socket is bound");
}

/// Appends what the helper knows of its descriptors.
fn listens(path: &Path) {
    let get = |name: &str| std::env::var(name).unwrap_or_else(|_| "-".to_owned());
    let own = get("LISTEN_PID") == std::process::id().to_string();
    let line = format!("{} {} {own}\n", get("LISTEN_FDS"), get("LISTEN_FDNAMES"));
    let mut file = File::options().create(true).append(true).open(path).expect("it can be opened");
    file.write_all(line.as_bytes()).expect("it can be written");
}

/// Takes a descriptor that the helper was started with.
#[expect(unsafe_code, reason = "the number of the descriptor is fixed")]
fn descriptor(number: &str) -> OwnedFd {
    let number = number.parse().expect("a number");
    // SAFETY: the service manager has opened it for this process, and no other code owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Sends a message with a new file.
fn store(text: &str) {
    let file = memfd_create("stored", MemfdFlags::CLOEXEC).expect("it can be created");
    send_with(text, file.as_fd());
}

fn send_with(text: &str, descriptor: BorrowedFd<'_>) {
    let socket = UnixDatagram::unbound().expect("a socket can be made");
    socket.connect_addr(&address()).expect("the socket is bound");
    let descriptors = [descriptor];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let text = [std::io::IoSlice::new(text.as_bytes())];
    sendmsg(&socket, &text, &mut control, SendFlags::empty()).expect("it can be sent");
}

fn barrier() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
    send_with("BARRIER=1", writer.as_fd());
    drop(writer);
    // The read ends once the other end is closed everywhere.
    reader.read_to_end(&mut Vec::new()).expect("it can be read");
}
