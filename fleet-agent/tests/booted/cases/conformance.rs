//! The conformance suite over each kind of connection.

use std::path::Path;

use async_trait::async_trait;
use fleet_agent::testing::{Harness, ManagerWithJournals, conformance};
use fleet_agent::{SystemdConfig, SystemdManager};
use tempfile::TempDir;

use crate::bench::{shell, wait_until};

struct Conforming {
    config: SystemdConfig,
    directory: TempDir,
}

#[async_trait]
impl Harness for Conforming {
    async fn open(&self) -> ManagerWithJournals {
        ManagerWithJournals::new(SystemdManager::open(self.config.clone()).await.expect("it opens"))
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }
}

// Holds: G-30
pub(crate) async fn system_bus_conforms() {
    conforms(SystemdConfig::system()).await;
}

/// Runtime directory of root's user instance in this case.
const RUNTIME: &str = "/run/user/0";

/// Starts a user instance with a bus, like a login session but without one.
const USER: &str = r#"
    mkdir -p -m 0700 /run/user/0/systemd/user /etc/systemd/system/user@0.service.d
    cd /run/user/0/systemd/user
    printf '[Socket]\nListenStream=%%t/bus\n' >dbus.socket
    printf '[Service]\nType=notify\nExecStart=/usr/bin/dbus-daemon --session \
        --address=systemd: --nofork --nopidfile --systemd-activation\n' >dbus.service
    printf '[Service]\nExecStart=/bin/true\n' >/etc/systemd/system/user-runtime-dir@.service
    printf '[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/0\n' \
        >/etc/systemd/system/user@0.service.d/here.conf
    systemctl daemon-reload
    systemctl start user@0.service
    export XDG_RUNTIME_DIR=/run/user/0
    systemctl --user start dbus.socket dbus.service
"#;

pub(crate) async fn user_instance_conforms() {
    shell(USER);
    let user = SystemdConfig::user(Path::new(RUNTIME));
    let opens = async || SystemdManager::open(user.clone()).await.is_ok();
    wait_until("the user's systemd is on the bus", opens).await;
    conforms(user).await;
}

async fn conforms(config: SystemdConfig) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    conformance(&Conforming { config, directory }).await;
}
