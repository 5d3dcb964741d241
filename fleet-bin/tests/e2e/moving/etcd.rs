//! Migrations between the embedded store and a real etcd, and from the keys of fleet v1.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fleet_unitfile::UnitFile;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{report, units};
use crate::daemon::{etcd_directory, main_pid, output_text, wait_for};
use crate::run::Machine;

/// An etcd with the v2 API enabled. It is stopped on drop.
struct Etcd {
    port: u16,
    server: Child,
    _home: TempDir,
}

impl Etcd {
    fn start() -> Self {
        let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, peer] = held.map(|listener| listener.local_addr().unwrap().port());
        let home = etcd_directory();
        let server = serve(home.path(), port, peer);
        let etcd = Self { port, server, _home: home };
        wait_for("etcd responds", || etcd.request("GET", "/v2/keys/", "").map(drop));
        etcd
    }

    /// Sends a request by HTTP/1.0, so that the response ends with the connection. Returns the
    /// body of a successful response.
    fn request(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let (length, form) = (body.len(), "application/x-www-form-urlencoded");
        let head = format!("Content-Type: {form}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{method} {path} HTTP/1.0\r\n{head}{body}").as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        (head.contains(" 200 ") || head.contains(" 201 ")).then(|| body.to_owned())
    }

    /// Sets a key through the v2 API.
    fn set(&self, key: &str, value: &str) {
        let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/v2/keys/_coreos.com/fleet/{key}");
        assert!(
            self.request("PUT", &path, &format!("value={escaped}")).is_some(),
            "cannot set {key}"
        );
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

/// Configures the machine's next daemon to use this etcd, or the embedded store.
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
#[ignore = "needs etcd: run by scripts/test --full"]
fn migration_to_etcd_and_back_disturbs_no_unit() {
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
    let repeated = machine.import(&[&embedded, "--config", &machine.config()]);
    assert_eq!(report(&repeated)["same"], 1, "{}", output_text(&repeated));
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
#[ignore = "needs etcd: run by scripts/test --full"]
fn fleet_v1_keys_of_a_real_etcd_are_imported() {
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
    let dump = etcd.request("GET", "/v2/keys/_coreos.com/fleet?recursive=true", "").unwrap();

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
