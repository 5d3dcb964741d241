//! `--tunnel` and `ssh` with the real ssh and a real sshd of the test. `scripts/test --full` runs
//! it if sshd is installed.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::daemon::{Cluster, output_text, wait_for};

/// Runs root's sshd in mounts of its own, which leave the machine untouched: an empty `/run`, and a
/// root account with a known shell and home.
const MOUNTS: &str = r#"set -e
mount --bind "$0/passwd" /etc/passwd
if [ -e /etc/shadow ]; then mount --bind "$0/shadow" /etc/shadow; fi
mount -t tmpfs none /run
mkdir -m 755 /run/sshd
exec "$@""#;

/// An sshd on a loopback port, and an `ssh` configured for it. Stops when dropped.
struct Sshd {
    folder: TempDir,
    port: u16,
    server: Child,
}

impl Sshd {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for key in ["host", "key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(key));
            assert!(keygen.status().expect("there is ssh-keygen").success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.path();
        write_settings(at, port);
        let log = fs::File::create(at.join("log")).unwrap();
        let mut server = command_of_server(at);
        server.args(["-D", "-e", "-f"]).arg(at.join("sshd_config"));
        let server = server.stdin(Stdio::null()).stderr(log).spawn().expect("there is sshd");
        let sshd = Self { folder, port, server };
        sshd.wait_ready();
        sshd
    }

    /// Waits for sshd. If it does not respond, panics with its log.
    fn wait_ready(&self) {
        let responds = || TcpStream::connect(("127.0.0.1", self.port)).ok();
        let wait = || wait_for("sshd responds", responds);
        if catch_unwind(AssertUnwindSafe(wait)).is_err() {
            panic!("sshd does not answer:\n{}", self.log());
        }
    }

    /// Returns the log of the server.
    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs `fleetctl` with the real `ssh` and the test's settings.
    fn fleetctl(&self, cluster: &Cluster, args: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.folder.path().display());
        cluster.fleetctl_command(args).env("PATH", path).output().unwrap()
    }

    /// Runs `fleetctl`, and asserts its success.
    fn succeed(&self, cluster: &Cluster, args: &[&str]) -> String {
        let output = self.fleetctl(cluster, args);
        assert!(output.status.success(), "{args:?}: {}\n{}", output_text(&output), self.log());
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _gone = kill_process(Pid::from_child(&self.server), Signal::TERM);
        let _ended = self.server.wait();
    }
}

/// Returns the absolute path of sshd, which it needs to re-execute itself for each connection.
fn program() -> PathBuf {
    let path = std::env::var("PATH").unwrap();
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let mut programs = folders.map(|folder| Path::new(folder).join("sshd"));
    programs.find(|program| program.is_file()).expect("sshd is installed")
}

fn command_of_server(at: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program());
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MOUNTS]).arg(at).arg(program());
    command
}

fn write_settings(at: &Path, port: u16) {
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    let folder = at.display();
    write(
        "sshd_config",
        &format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n\
             AuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\n"
        ),
    );
    write(
        "passwd",
        &format!("root:*:0:0::{folder}:/bin/sh\nsshd:*:65533:65534::/run/sshd:/bin/false\n"),
    );
    write("shadow", "root:*:16000::::::\nsshd:*:16000::::::\n");
    let host = fs::read_to_string(at.join("host.pub")).unwrap();
    write("known_hosts", &format!("[127.0.0.1]:{port} {host}"));
    write(
        "ssh_config",
        &format!(
            "Host box\n  HostName 127.0.0.1\n  Port {port}\nHost *\n  BatchMode yes\n  \
             IdentityFile {folder}/key\n  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n  \
             UserKnownHostsFile {folder}/known_hosts\n"
        ),
    );
    // ssh finds the user's settings by the user ID rather than HOME, so this wrapper passes the
    // file.
    let real = Command::new("sh").args(["-c", "command -v ssh"]).output().unwrap().stdout;
    let real = String::from_utf8(real).unwrap();
    write("ssh", &format!("#!/bin/sh\nexec {} -F {folder}/ssh_config \"$@\"\n", real.trim()));
    fs::set_permissions(at.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "needs sshd: run by scripts/test --full"]
fn real_sshd_serves_tunnels_and_shells() {
    let cluster = Cluster::start(&[]);
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo hello; exec sleep infinity'\n";
    let path = cluster.write("talker.service", unit);
    let sshd = Sshd::start();
    let (port, host) = (sshd.port.to_string(), format!("127.0.0.1:{}", sshd.port));

    sshd.succeed(&cluster, &["--tunnel", &host, "start", path.to_str().unwrap()]);
    for tunnel in [host.as_str(), "box"] {
        let through =
            |args: &[&str]| sshd.succeed(&cluster, &[&["--tunnel", tunnel][..], args].concat());
        assert_eq!(through(&["list-units", "-o", "name"]), "talker.service\n");
        assert_eq!(through(&["journal", "--raw", "talker"]), "hello\n");
        assert_eq!(through(&["logs", "--raw", "talker"]), "hello\n");
        // The machine is the host of the tunnel itself, or reached through it.
        let jumped = through(&["ssh", "--ssh-port", &port, "talker", "echo", "$((6 * 7))"]);
        assert_eq!(jumped, "42\n", "the remote shell must evaluate the command");
    }

    let shell = sshd.fleetctl(&cluster, &["ssh", "--ssh-port", &port, "talker", "exit", "7"]);
    assert_eq!(shell.status.code(), Some(7), "{}\n{}", output_text(&shell), sshd.log());
    let unknown = format!("nobody@{host}");
    let refused = sshd.fleetctl(&cluster, &["--tunnel", &unknown, "list-units"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot open the ssh tunnel to nobody@127.0.0.1"), "{errors}");
}
