//! A dynamic user while its unit, and the daemon, restart.

use std::fs;

use crate::kit::Kit;
use crate::observe::wait_for;

const CONFIG: &str =
    "store = \"embedded\"\nservice_manager = \"native\"\ndata_dir = \"/run/data\"\n";

const UNIT: &str = "[Service]\nDynamicUser=yes\nStateDirectory=kept\n\
                    ExecStart=/bin/sh -c 'touch $STATE_DIRECTORY/file /dev/shm/kept; \
                    ipcmk --shmem 10 --semaphore 1 --queue; exec sleep infinity'\n\
                    ExecStop=/bin/sh -c 'id -u >$STATE_DIRECTORY/stopped-by'\n";

/// Script that starts the daemon, whose processes survive it.
const START: &str = "systemd-run --quiet --collect --unit=$1 --property=Delegate=yes \\
    --property=KillMode=process /srv/share/fleetd --config /srv/share/fleet.conf";

/// Script that prints the number of the user, and whether its lock file is locked.
const STATE: &str = "
file=$(ls /run/systemd/dynamic-uid | grep -v direct)
flock --nonblock /run/systemd/dynamic-uid/$file true && lock=free || lock=locked
echo $(cat /run/systemd/dynamic-uid/$file) $file $lock \\
    $(ps -o uid= -C sleep) $(stat -c %u /var/lib/private/kept/file) \\
    $(getent passwd kept | cut -d : -f 3) $(getent group kept | cut -d : -f 3)";

#[test]
#[ignore = "boots a machine: run by scripts/test --full"]
fn dynamic_user_survives_a_restart_of_the_daemon() {
    let kit = Kit::new();
    kit.up(&[("m1", "10.77.0.11")]);
    fs::copy(env!("CARGO_BIN_EXE_fleetd"), kit.share("fleetd")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_fleetctl"), kit.share("fleetctl")).unwrap();
    fs::write(kit.share("fleet.conf"), CONFIG).unwrap();
    fs::write(kit.share("kept.service"), UNIT).unwrap();
    let start = |name: &str| kit.exec("m1", &START.replace("$1", name));
    let fleetctl =
        |arguments: &str| kit.try_exec("m1", &format!("/srv/share/fleetctl {arguments}"));
    start("first");
    wait_for("the daemon answers", || fleetctl("list-machines").status.success().then_some(()));
    assert!(fleetctl("start /srv/share/kept.service").status.success());
    let id = wait_for("the unit has its user", || {
        let state = String::from_utf8(kit.try_exec("m1", STATE).stdout).unwrap();
        let words: Vec<&str> = state.split_whitespace().collect();
        let [name, id, lock, rest @ ..] = &words[..] else { return None };
        let is_ready = rest == [*id; 4] && (*name, *lock) == ("kept", "locked");
        is_ready.then(|| (*id).to_owned())
    });
    let objects = kit.exec("m1", &format!("ls /dev/shm/kept; grep -hw {id} /proc/sysvipc/*"));
    assert_eq!(objects.lines().count(), 4, "{objects}");
    kit.exec("m1", "systemctl kill --kill-whom=main --signal=KILL first");
    let state = kit.exec("m1", STATE);
    assert_eq!(state, format!("kept {id} free {id} {id} {id} {id}"));
    start("second");
    let expected = format!("kept {id} locked {id} {id} {id} {id}");
    wait_for("the next daemon has adopted the user", || {
        (kit.exec("m1", STATE) == expected).then_some(())
    });
    assert!(fleetctl("stop kept.service").status.success());
    assert_eq!(kit.exec("m1", "cat /var/lib/kept/stopped-by"), id);
    wait_for("the user is released", || {
        let left = "ls -A /run/systemd/dynamic-uid /run/userdb | grep -v :";
        kit.try_exec("m1", left).stdout.trim_ascii().is_empty().then_some(())
    });
    let left = format!("ls /dev/shm | grep kept || grep -w {id} /proc/sysvipc/*");
    assert!(!kit.try_exec("m1", &left).status.success(), "its IPC objects are removed");
    kit.exec("m1", "systemctl stop second");
}
