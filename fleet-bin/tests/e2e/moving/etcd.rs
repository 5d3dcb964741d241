//! From the embedded store into a real etcd and back, and out of the keys of a fleet v1.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fleet_unitfile::UnitFile;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{report, units};
use crate::daemon::{main_pid, output_text, wait_for};
use crate::run::Machine;

/// An etcd that also has the keyspace of version 2. It ends with the test.
struct Etcd {
    port: u16,
    server: Child,
    _home: TempDir,
}

impl Etcd {
    fn start() -> Self {
        let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, peer] = held.map(|listener| listener.local_addr().unwrap().port());
        let home = tempfile::tempdir().unwrap();
        let server = serve(home.path(), port, peer);
        let etcd = Self { port, server, _home: home };
        wait_for("etcd answers", || etcd.ask("GET", "/v2/keys/", "").map(drop));
        etcd
    }

    /// Asks by HTTP/1.0, so that the answer ends with the connection.
    fn ask(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut to = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let (length, form) = (body.len(), "application/x-www-form-urlencoded");
        let head = format!("Content-Type: {form}\r\nContent-Length: {length}\r\n\r\n");
        to.write_all(format!("{method} {path} HTTP/1.0\r\n{head}{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        to.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        (head.contains(" 200 ") || head.contains(" 201 ")).then(|| body.to_owned())
    }

    /// Sets a key of the keyspace of version 2.
    fn set(&self, key: &str, value: &str) {
        let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/v2/keys/_coreos.com/fleet/{key}");
        assert!(self.ask("PUT", &path, &format!("value={escaped}")).is_some(), "cannot set {key}");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

fn serve(home: &Path, port: u16, peer: u16) -> Child {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let log = File::create(home.join("etcd.log")).unwrap();
    let started = Command::new("etcd")
        .env_clear()
        .args(["--enable-v2", &format!("--data-dir={}", home.join("data").display())])
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    started.expect("etcd is installed")
}

/// Has the machine's next daemon keep its cluster in etcd, or in its own file again.
fn choose_store(machine: &Machine, etcd: Option<&Etcd>) {
    let config = std::fs::read_to_string(machine.config()).unwrap();
    let rest = config.lines().filter(|line| !line.starts_with("store") && !line.contains("etcd"));
    let store = match etcd {
        None => "store = \"embedded\"".to_owned(),
        Some(Etcd { port, .. }) => {
            format!("store = \"etcd\"\netcd_servers = [\"http://127.0.0.1:{port}\"]")
        }
    };
    let text = rest.fold(store, |text, line| text + "\n" + line);
    std::fs::write(machine.config(), text + "\n").unwrap();
}

#[test]
#[ignore = "needs etcd: run by scripts/test"]
fn etcd_takes_a_cluster_over_and_gives_it_back_and_no_unit_notices() {
    let etcd = Etcd::start();
    let mut machine = Machine::new();
    let pid = main_pid(&machine.start_with_unit());
    let embedded = machine.export("embedded", &[]);
    machine.end();
    std::fs::remove_file(machine.path("data/store.redb")).unwrap();

    choose_store(&machine, Some(&etcd));
    let imported = machine.import(&[&embedded, "--config", &machine.config()]);
    assert_eq!(report(&imported)["kept"], 1, "{}", output_text(&imported));
    machine.start();
    machine.wait_undisturbed(pid);
    let beside = machine.import(&[&embedded, "--config", &machine.config()]);
    assert_eq!(report(&beside)["same"], 1, "{}", output_text(&beside));
    let back = machine.export("etcd", &["--config", &machine.config()]);
    assert_eq!(units(&back), units(&embedded));
    machine.end();

    choose_store(&machine, None);
    let imported = machine.import(&[&back, "--config", &machine.config()]);
    assert_eq!(report(&imported)["kept"], 1, "{}", output_text(&imported));
    machine.start();
    machine.wait_undisturbed(pid);
}

#[test]
#[ignore = "needs etcd: run by scripts/test"]
fn the_keys_of_a_fleet_v1_in_a_real_etcd_are_imported() {
    let etcd = Etcd::start();
    let text = "[Service]\nExecStart=/bin/sleep infinity\n";
    let hash = UnitFile::parse(text).unwrap().hash().to_string();
    let byte = |at| u8::from_str_radix(&hash[at..at + 2], 16).unwrap();
    let numbers: Vec<u8> = (0..hash.len()).step_by(2).map(byte).collect();
    let object = json!({ "Name": "steady.service", "UnitHash": numbers }).to_string();
    let content = json!({ "Raw": text }).to_string();
    etcd.set("job/steady.service/object", &object);
    etcd.set("job/steady.service/target-state", "launched");
    etcd.set("job/steady.service/target", "gone");
    etcd.set(&format!("unit/{hash}"), &content);
    etcd.set("engine/version", "1");
    let dump = etcd.ask("GET", "/v2/keys/_coreos.com/fleet?recursive=true", "").unwrap();

    let mut machine = Machine::new();
    machine.start();
    let file = machine.path("dump.json");
    std::fs::write(&file, dump).unwrap();
    let imported = machine.import(&[file.to_str().unwrap()]);
    let imported = report(&imported);
    assert_eq!((&imported["format"], &imported["created"]), (&"v1".into(), &1.into()));
    let row: Value = wait_for("the unit is active", || machine.row());
    assert_eq!(row["unit"], "steady.service");
    machine.end();
}
