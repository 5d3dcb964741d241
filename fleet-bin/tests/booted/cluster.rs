//! A cluster: `fleetd` as a service on three machines, and etcd on a fourth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::kit::{Kit, bounded};
use crate::look::told;

/// The machines on which units run.
pub(crate) const MACHINES: [&str; 3] = ["m1", "m2", "m3"];

/// The machine that etcd runs on.
pub(crate) const STORE: &str = "store";

/// What comes with the programs.
const DIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/dist");

/// A unit that runs until it is stopped.
pub(crate) const SLEEP: &str = "[Service]\nExecStart=/bin/sleep infinity\n";

const ADDRESSES: [(&str, &str); 4] =
    [(STORE, "10.77.0.10"), ("m1", "10.77.0.11"), ("m2", "10.77.0.12"), ("m3", "10.77.0.13")];

/// Has etcd run in the store's machine, as a service that is there again after a boot.
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

/// Puts everything where the Debian package puts it, and has it run.
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

/// Three machines and their etcd; on the third, `fleetd` runs in the sandbox for it.
pub(crate) struct Cluster {
    pub(crate) kit: Kit,
    /// The machine ids, in the order of the machines.
    ids: Vec<String>,
}

impl Cluster {
    /// Boots a cluster whose machines count as present for `ttl` after their last sign of life.
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

    fn fill_share(&self, ttl: &str) {
        for program in [env!("CARGO_BIN_EXE_fleetd"), env!("CARGO_BIN_EXE_fleetctl")] {
            let name = Path::new(program).file_name().expect("a program has a name");
            fs::copy(program, self.kit.share(&name.to_string_lossy())).unwrap();
        }
        for folder in ["dist", "units", "seen"] {
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

    /// A machine's id.
    pub(crate) fn id(&self, machine: &str) -> &str {
        let at =
            MACHINES.iter().position(|name| *name == machine).expect("there is such a machine");
        &self.ids[at]
    }

    /// The name of the machine with this id.
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

    /// Runs `fleetctl`, which has to succeed; returns what it printed.
    pub(crate) fn succeed(&self, args: &[&str]) -> String {
        let output = self.fleetctl(args);
        assert!(output.status.success(), "fleetctl {args:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `fleetctl`, which has to fail with this status; returns what it said of it.
    pub(crate) fn refused(&self, status: i32, args: &[&str]) -> String {
        let output = self.fleetctl(args);
        assert_eq!(output.status.code(), Some(status), "fleetctl {args:?}: {}", told(&output));
        told(&output)
    }

    /// Writes a unit file, and returns its path.
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

    /// What units have written into a file of the shared folder `seen`.
    pub(crate) fn seen(&self, name: &str) -> String {
        fs::read_to_string(self.kit.share("seen").join(name)).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for machine in MACHINES {
                let script = "journalctl --no-pager --lines 40 -u fleet.service";
                tell(&format!("--- {machine}: {}", told(&self.kit.try_exec(machine, script))));
            }
        }
    }
}

/// Writes a line past what is kept of a test.
pub(crate) fn tell(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{text}").expect("a test can write to its standard error");
}
