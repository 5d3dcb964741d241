//! A cluster with `fleetd` as a service on three machines and etcd on a fourth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::kit::{Kit, bounded};
use crate::observe::output_text;

/// Machines that run units.
pub(crate) const MACHINES: [&str; 3] = ["m1", "m2", "m3"];

/// Machine that runs etcd.
pub(crate) const STORE: &str = "store";

/// Folder of the service files and other installed files.
const DIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/dist");

/// A unit that runs until it is stopped.
pub(crate) const SLEEP: &str = "[Service]\nExecStart=/bin/sleep infinity\n";

const ADDRESSES: [(&str, &str); 4] =
    [(STORE, "10.77.0.10"), ("m1", "10.77.0.11"), ("m2", "10.77.0.12"), ("m3", "10.77.0.13")];

/// Script that runs etcd as a service of the store's machine. Its data survives a reboot.
const START_ETCD: &str = "
cat >/etc/systemd/system/etcd.service <<END
[Service]
Type=notify
ExecStart=/usr/bin/env etcd --name=store --data-dir=/var/lib/etcd-of-fleet \\
    --listen-client-urls=http://10.77.0.10:2379 --advertise-client-urls=http://10.77.0.10:2379 \\
    --listen-peer-urls=http://10.77.0.10:2380 \\
    --initial-advertise-peer-urls=http://10.77.0.10:2380 \\
    --initial-cluster=store=http://10.77.0.10:2380
END
systemctl daemon-reload
systemctl start etcd.service";

/// Script that installs and starts fleet like the Debian package.
const INSTALL: &str = "
cd /srv/share
ln -sf /srv/share/fleetd /srv/share/fleetctl /usr/bin/
cp dist/fleet.service dist/fleet.socket /etc/systemd/system/
install -D -m 644 dist/fleet.sysusers /etc/sysusers.d/fleet.conf
install -D -m 644 dist/fleet.tmpfiles /etc/tmpfiles.d/fleet.conf
systemd-sysusers /etc/sysusers.d/fleet.conf
systemd-tmpfiles --create /etc/tmpfiles.d/fleet.conf
mkdir -p /etc/fleet /etc/systemd/system/fleet.socket.d
cp $(hostname).conf /etc/fleet/fleet.conf
printf '[Socket]\\nListenStream=/srv/share/%%H.sock\\n' \\
    >/etc/systemd/system/fleet.socket.d/share.conf
if [ $(hostname) = m3 ]; then
    install -D -m 644 dist/sandbox.conf /etc/systemd/system/fleet.service.d/sandbox.conf
fi
systemctl daemon-reload
systemctl -q enable --now fleet.socket fleet.service";

/// Three machines and their etcd. On the third, `fleetd` runs with `sandbox.conf`.
pub(crate) struct Cluster {
    pub(crate) kit: Kit,
    /// Machine IDs in the order of [`MACHINES`].
    ids: Vec<String>,
}

impl Cluster {
    /// Boots a cluster. `ttl` is the lifetime of presence and leader leases.
    pub(crate) fn boot(ttl: &str) -> Self {
        let mut cluster = Self { kit: Kit::new(), ids: Vec::new() };
        cluster.kit.up(&ADDRESSES);
        cluster.kit.exec(STORE, START_ETCD);
        cluster.fill_share(ttl);
        std::thread::scope(|scope| {
            for machine in MACHINES {
                let kit = &cluster.kit;
                scope.spawn(move || kit.exec(machine, INSTALL));
            }
        });
        let id = |machine| cluster.kit.exec(machine, "cat /etc/machine-id");
        cluster.ids = MACHINES.map(id).to_vec();
        cluster.wait_present(&MACHINES);
        cluster
    }

    /// Copies programs, service files and configurations into the shared folder.
    fn fill_share(&self, ttl: &str) {
        for program in [env!("CARGO_BIN_EXE_fleetd"), env!("CARGO_BIN_EXE_fleetctl")] {
            let name = Path::new(program).file_name().expect("a program has a name");
            fs::copy(program, self.kit.share(&name.to_string_lossy())).unwrap();
        }
        for folder in ["dist", "units", "results"] {
            fs::create_dir(self.kit.share(folder)).unwrap();
        }
        for file in fs::read_dir(DIST).unwrap().map(Result::unwrap) {
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), self.kit.share("dist").join(file.file_name())).unwrap();
            }
        }
        for (machine, address) in &ADDRESSES[1..] {
            let config = format!(
                "store = \"etcd\"\netcd_servers = [\"http://10.77.0.10:2379\"]\n\
                 service_manager = \"systemd\"\nagent_ttl = \"{ttl}\"\nengine_ttl = \"{ttl}\"\n\
                 public_ip = \"{address}\"\n[metadata]\nname = \"{machine}\"\n"
            );
            fs::write(self.kit.share(&format!("{machine}.conf")), config).unwrap();
        }
    }

    /// Returns a machine's ID.
    pub(crate) fn id(&self, machine: &str) -> &str {
        let at = MACHINES.iter().position(|name| *name == machine).expect("the machine exists");
        &self.ids[at]
    }

    /// Returns the name of the machine with this ID.
    pub(crate) fn name_of(&self, id: &str) -> Option<&'static str> {
        let at = self.ids.iter().position(|other| other == id)?;
        Some(MACHINES[at])
    }

    /// Runs `fleetctl` against the first machine.
    pub(crate) fn fleetctl(&self, args: &[&str]) -> Output {
        self.fleetctl_by(MACHINES[0], args)
    }

    /// Runs `fleetctl` against a machine, in the folder of the unit files.
    pub(crate) fn fleetctl_by(&self, machine: &str, args: &[&str]) -> Output {
        let socket = self.kit.share(&format!("{machine}.sock"));
        let mut fleetctl = bounded(env!("CARGO_BIN_EXE_fleetctl"));
        fleetctl.env("FLEETCTL_ENDPOINT", format!("unix://{}", socket.display()));
        fleetctl.current_dir(self.kit.share("units")).args(args).output().unwrap()
    }

    /// Runs `fleetctl`, which must succeed. Returns its standard output.
    pub(crate) fn succeed(&self, args: &[&str]) -> String {
        let output = self.fleetctl(args);
        assert!(output.status.success(), "fleetctl {args:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `fleetctl`, which must fail with this status. Returns all its output.
    pub(crate) fn refused(&self, status: i32, args: &[&str]) -> String {
        let output = self.fleetctl(args);
        assert_eq!(
            output.status.code(),
            Some(status),
            "fleetctl {args:?}: {}",
            output_text(&output)
        );
        output_text(&output)
    }

    /// Writes a unit file. Returns its path.
    pub(crate) fn write(&self, unit: &str, text: &str) -> PathBuf {
        let path = self.kit.share("units").join(unit);
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a unit file, starts the unit, and waits until it is active.
    pub(crate) fn start(&self, unit: &str, text: &str) {
        self.write(unit, text);
        self.succeed(&["start", unit]);
    }

    /// Returns the contents of a file that units have written to the shared folder `results`.
    pub(crate) fn result_file(&self, name: &str) -> String {
        fs::read_to_string(self.kit.share("results").join(name)).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for machine in MACHINES {
                let script = "journalctl --no-pager --lines 40 -u fleet.service";
                print_line(&format!(
                    "--- {machine}: {}",
                    output_text(&self.kit.try_exec(machine, script))
                ));
            }
        }
    }
}

/// Writes a line to standard error that the test harness does not capture.
pub(crate) fn print_line(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{text}").expect("a test can write to its standard error");
}
