//! The faults, and what each may do to units.

use std::time::Duration;

use super::LEASE;
use super::workload::{PLAIN, plain};
use crate::cluster::{Cluster, MACHINES, STORE};
use crate::observe::{wait_for, wait_out};

/// A fault of one machine, of the store, or of the whole cluster.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) effect: Effect,
    /// Injects the fault, and ends it.
    pub(super) inject: fn(&Injection<'_>),
}

/// The most that a fault may do to units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// Units with `OnPartition=stop` stop until the store is back.
    Outage,
    /// The plain units are stopped and started on request.
    Requests,
    /// The units of the machine stop, and may start elsewhere.
    Lost,
    /// The movable units of the machine may also run elsewhere until it is back. Those with
    /// `OnPartition=stop` stop first.
    Isolated,
    /// The machine cannot prove its identity, so it is isolated until its lease has ended. It has
    /// lost its records too, so its units may stop.
    LostIdentity,
}

/// Parameters of a fault.
pub(super) struct Injection<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) machine: &'static str,
    /// A short random time.
    pub(super) delay: Duration,
}

const KILL: &str = "systemctl kill -s KILL --kill-whom=main fleet";

pub(super) const FAULTS: &[Fault] = &[
    Fault { name: "daemon killed", effect: Effect::None, inject: |it| it.exec(KILL) },
    Fault { name: "all daemons killed", effect: Effect::None, inject: |it| it.on_all(KILL) },
    Fault {
        name: "daemon stopped by a signal for half a lease",
        effect: Effect::None,
        inject: |it| {
            it.exec("systemctl kill -s STOP --kill-whom=main fleet");
            wait_out(LEASE / 2);
            // The watchdog may have replaced the daemon already.
            it.exec("systemctl kill -s CONT --kill-whom=main fleet || true");
        },
    },
    Fault {
        name: "network cut for a third of a lease",
        effect: Effect::None,
        inject: |it| it.cut(LEASE / 3),
    },
    Fault {
        name: "network cut for three leases",
        effect: Effect::Isolated,
        inject: |it| it.cut(LEASE * 3),
    },
    Fault {
        name: "etcd killed",
        effect: Effect::None,
        // A start would do nothing if systemd had not noticed the end of the process yet.
        inject: |it| it.store("systemctl kill -s KILL etcd; systemctl restart etcd"),
    },
    Fault {
        name: "etcd stopped for three leases",
        effect: Effect::Outage,
        inject: |it| {
            it.store("systemctl stop etcd");
            wait_out(LEASE * 3);
            it.store("systemctl start etcd");
        },
    },
    Fault {
        name: "machine crashed",
        effect: Effect::Lost,
        inject: |it| {
            it.cluster.kit.run(&["crash", it.machine]);
            it.cluster.kit.run(&["boot", it.machine]);
        },
    },
    Fault {
        name: "systemd executed again while the daemon is killed",
        effect: Effect::None,
        inject: |it| {
            // The next daemon may not run yet.
            it.exec(&format!("for i in 1 2 3; do systemctl daemon-reexec; {KILL} || true; done"));
        },
    },
    Fault {
        name: "bus restarted",
        effect: Effect::None,
        inject: |it| it.exec("systemctl restart dbus"),
    },
    Fault {
        name: "requests in progress while all daemons are killed",
        effect: Effect::Requests,
        inject: |it| {
            it.plain_units("stop");
            wait_out(it.delay);
            it.on_all(KILL);
            it.plain_units("start");
        },
    },
    Fault {
        name: "requests on a full runtime directory",
        effect: Effect::Requests,
        inject: |it| {
            let limit = "mount -o remount,size=$(($(df -k --output=used /run | tail -n 1) + 512))k";
            it.exec(&format!("{limit} /run; cat /dev/zero >/run/fill 2>/dev/null || true"));
            it.plain_units("stop");
            wait_out(LEASE / 3);
            it.exec("rm /run/fill; mount -o remount,size=50% /run");
            it.plain_units("start");
        },
    },
    Fault {
        name: "records emptied while the daemon is killed",
        effect: Effect::Lost,
        inject: |it| {
            let empty = "find /run/fleet -type f ! -name token -exec truncate -s 0 '{}' +";
            it.exec(&format!("systemctl kill -s STOP --kill-whom=main fleet; {empty}; {KILL}"));
        },
    },
    Fault {
        name: "runtime directory removed while the daemon is killed",
        effect: Effect::LostIdentity,
        inject: |it| {
            let stop = "systemctl kill -s STOP --kill-whom=main fleet";
            it.exec(&format!("{stop}; rm -rf /run/fleet; {KILL}"));
        },
    },
    Fault {
        name: "identity token damaged while the daemon is killed",
        effect: Effect::Isolated,
        inject: |it| {
            let damage = "head -c 20 /dev/urandom >/run/fleet/token";
            it.exec(&format!("systemctl kill -s STOP --kill-whom=main fleet; {damage}; {KILL}"));
        },
    },
];

impl Injection<'_> {
    fn exec(&self, script: &str) {
        self.cluster.kit.exec(self.machine, script);
    }

    fn on_all(&self, script: &str) {
        std::thread::scope(|scope| {
            for machine in MACHINES {
                scope.spawn(move || self.cluster.kit.exec(machine, script));
            }
        });
    }

    fn store(&self, script: &str) {
        self.cluster.kit.exec(STORE, script);
    }

    fn cut(&self, period: Duration) {
        self.cluster.kit.run(&["cut", self.machine]);
        wait_out(period);
        self.cluster.kit.run(&["heal", self.machine]);
    }

    /// Requests a change of all plain units, repeatedly until the daemon accepts it. The command
    /// does not wait until the units have changed.
    fn plain_units(&self, verb: &str) {
        let units: Vec<_> = (0..PLAIN).map(plain).collect();
        let units = units.iter().map(|unit| &**unit);
        let arguments: Vec<_> = [verb, "--no-block"].into_iter().chain(units).collect();
        wait_for(&format!("a daemon accepts {verb}"), || {
            self.cluster.fleetctl(&arguments).status.success().then_some(())
        });
    }
}
