//! Sandboxes, directories, credentials and scheduling under systemd and under the native service
//! manager, in the same machine: the processes of a unit must see the same.

use std::collections::BTreeMap;
use std::fs;

use crate::cluster::print_line;
use crate::kit::Kit;
use crate::observe::wait_for;

/// Units by name, with the options that a unit adds to [`UNIT`].
const UNITS: [(&str, &str); 50] = [
    ("plain", ""),
    ("no-new-privileges", "NoNewPrivileges=yes"),
    ("bounding-set", "CapabilityBoundingSet=CAP_CHOWN CAP_KILL\nCapabilityBoundingSet=~CAP_KILL"),
    ("no-capabilities", "CapabilityBoundingSet="),
    ("ambient", "User=daemon\nAmbientCapabilities=CAP_NET_BIND_SERVICE CAP_KILL"),
    ("secure-bits", "SecureBits=noroot noroot-locked"),
    ("private-tmp", "PrivateTmp=yes"),
    ("private-devices", "PrivateDevices=yes"),
    ("devices-closed", "DevicePolicy=closed\nDeviceAllow=/dev/kmsg r"),
    ("devices-strict", "DevicePolicy=strict\nDeviceAllow=/dev/null rw\nDeviceAllow=char-mem r"),
    ("private-network", "PrivateNetwork=yes"),
    ("private-ipc", "PrivateIPC=yes"),
    ("private-mounts", "PrivateMounts=yes"),
    ("protect-system", "ProtectSystem=yes"),
    ("protect-system-full", "ProtectSystem=full"),
    (
        "protect-system-strict",
        "ProtectSystem=strict\nReadWritePaths=/srv/a\nStateDirectory=strict\n\
         ConfigurationDirectory=strict",
    ),
    ("protect-home", "ProtectHome=yes"),
    ("protect-home-tmpfs", "ProtectHome=tmpfs"),
    ("protect-home-read-only", "ProtectHome=read-only"),
    (
        "protect-kernel",
        "ProtectKernelTunables=yes\nProtectKernelModules=yes\nProtectKernelLogs=yes\n\
         ProtectControlGroups=yes\nProtectClock=yes\nProtectHostname=yes",
    ),
    ("protect-proc", "User=daemon\nProtectProc=invisible\nProcSubset=pid"),
    ("paths", "ReadOnlyPaths=/srv\nReadWritePaths=/srv/a\nInaccessiblePaths=-/gone /srv/b"),
    ("binds", "BindPaths=/srv/a:/srv/new\nBindReadOnlyPaths=/srv/a:/srv/b"),
    ("tmpfs", "TemporaryFileSystem=/srv:ro\nBindPaths=/srv/a /srv/share"),
    ("no-exec", "NoExecPaths=/srv\nExecPaths=/srv/a"),
    ("families", "RestrictAddressFamilies=AF_UNIX AF_INET"),
    ("families-denied", "RestrictAddressFamilies=~AF_INET AF_INET6"),
    ("namespaces", "RestrictNamespaces=~uts"),
    (
        "restrictions",
        "User=daemon\nRestrictSUIDSGID=yes\nRestrictRealtime=yes\nLockPersonality=yes\n\
         MemoryDenyWriteExecute=yes",
    ),
    ("calls", "SystemCallFilter=@system-service\nSystemCallErrorNumber=EPERM"),
    ("calls-denied", "SystemCallFilter=~@chown fchmodat:EACCES\nSystemCallErrorNumber=EPERM"),
    (
        "directories",
        "User=daemon\nRuntimeDirectory=own own/deep\nRuntimeDirectoryMode=0750\n\
         StateDirectory=own:own-link\nCacheDirectory=own\nLogsDirectory=own\n\
         ConfigurationDirectory=own",
    ),
    ("credentials", "SetCredential=key:secret\nLoadCredential=host:/etc/hostname"),
    (
        "scheduling",
        "CPUAffinity=0\nCPUSchedulingPolicy=batch\nIOSchedulingClass=best-effort\n\
         IOSchedulingPriority=6\nNice=5\nUMask=0027\nLimitNOFILE=100\n\
         CoredumpFilter=private-anonymous elf-headers",
    ),
    (
        "dynamic",
        "DynamicUser=yes\nStateDirectory=dyn dyn/deep\nCacheDirectory=dyn\n\
         LogsDirectory=dyn-logs/deep\nRuntimeDirectory=dyn\nConfigurationDirectory=dyn",
    ),
    (
        "dynamic-named",
        "DynamicUser=yes\nUser=dyn-user\nGroup=dyn-group\nProtectHome=tmpfs\n\
         RuntimeDirectory=dyn-kept\nRuntimeDirectoryPreserve=yes\n\
         StateDirectory=dyn-named:dyn-named-link",
    ),
    ("dynamic-static", "DynamicUser=yes\nUser=daemon\nStateDirectory=dyn-static"),
    ("dynamic.hashed", "DynamicUser=yes\nWorkingDirectory=-~\nSupplementaryGroups=adm"),
    (
        "dynamic-weakened",
        "DynamicUser=yes\nProtectSystem=no\nProtectHome=no\nPrivateTmp=no\nRemoveIPC=no\n\
         NoNewPrivileges=no\nRestrictSUIDSGID=no",
    ),
    (
        "dynamic-moved",
        "DynamicUser=yes\nStateDirectory=dyn-moved\nCapabilityBoundingSet=\nPrivateUsers=yes\n\
         PrivateDevices=yes",
    ),
    ("dynamic-moved-back", "User=daemon\nStateDirectory=dyn-back"),
    ("private-users", "PrivateUsers=yes"),
    ("private-users-of-user", "PrivateUsers=yes\nUser=daemon\nSupplementaryGroups=adm"),
    (
        "private-users-and-more",
        "PrivateUsers=yes\nUser=daemon\nGroup=adm\nAmbientCapabilities=CAP_KILL\nPrivateTmp=yes\n\
         ProtectSystem=strict\nPrivateNetwork=yes\nPrivateDevices=yes\nProtectHostname=yes\n\
         RestrictNamespaces=~uts\nProtectProc=invisible\nBindPaths=/srv/a:/srv/new",
    ),
    ("personality", "Personality=x86"),
    ("personality-locked", "Personality=x86-64\nLockPersonality=yes"),
    ("network-path", "NetworkNamespacePath=/run/netns/other"),
    // Alone, the option has no effect in systemd 252.
    ("ipc-path", "IPCNamespacePath=/run/ipcns\nPrivateTmp=yes"),
    ("keyring-private", "KeyringMode=private\nUser=daemon\nEnvironment=KEYS=1"),
    ("keyring-shared", "KeyringMode=shared\nUser=daemon\nEnvironment=KEYS=1"),
];

const UNIT: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                    ExecStart=/bin/sh /srv/share/report.sh\n";

/// Script that reports what a process of the unit sees, and what it may do.
const REPORT: &str = r#"exec 2>/dev/null
cd /
names='Uid|Gid|Groups|Umask|Cap...|NoNewPrivs|Seccomp|Cpus_allowed_list'
grep -E "^($names):" /proc/self/status
for type in ipc mnt net user uts; do
    [ "$(readlink /proc/self/ns/$type)" = "$(cat /srv/share/$type)" ] || echo "own $type"
done
for path in / /boot /dev /etc /home /root /run /srv /srv/a /srv/b /srv/new /tmp /usr /var/tmp; do
    readable=$(ls "$path" >/dev/null && echo readable)
    writable=$(touch "$path/probe.$$" && rm "$path/probe.$$" && echo writable)
    echo "$path $readable $writable"
done
for path in /proc/sys/kernel/domainname /proc/kcore /proc/kmsg /sys/kernel/mm /sys/fs/cgroup; do
    [ -r "$path" ] && echo "may read $path"
    [ -w "$path" ] && echo "may write $path"
done
ls -d /proc/1 /proc/sys
cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups /proc/self/coredump_filter
id
uname -m
pwd
env | grep -E '^(HOME|USER|LOGNAME|SHELL)=' | sort
[ -z "$KEYS" ] || awk '{ print $5, $6, $7, $8, $9 }' /proc/keys | sort
for id in 0 1 "$(id -u)"; do getent passwd "$id"; done
stat -c '%A %U' /srv/a /root
echo tmp $(ls -A /tmp /var/tmp | grep -c mark)
[ -e /dev/initctl ] || echo devices $(ls /dev)
for device in full kmsg loop-control zero; do
    [ -e /dev/$device ] && true </dev/$device && echo "may read /dev/$device"
    [ -e /dev/$device ] && true >/dev/$device && echo "may write /dev/$device"
done
ip -br link show lo | cut -c 1-20
unshare --uts true && echo may create namespaces
touch /var/tmp/probe.$$ && chmod u+s /var/tmp/probe.$$ && echo may set the user ID bit
rm -f /var/tmp/probe.$$
chown daemon /srv/a && echo may change owners
chmod 1777 /srv/a && echo may change modes
setarch i686 true && echo may change the personality
chrt --fifo 1 true && echo may run in real time
bash -c ': </dev/udp/127.0.0.1/9' && echo may use internet sockets
ip link >/dev/null && echo may use netlink sockets
/srv/a/program && echo may run a program in /srv/a
/srv/program && echo may run a program in /srv
chrt --pid $$ | sed 's/pid [0-9]*//'
ionice --pid $$
nice
ulimit -n
env | grep _DIRECTORY= | sort
for path in $(echo "$RUNTIME_DIRECTORY:$STATE_DIRECTORY:$CACHE_DIRECTORY" | tr : ' ') \
    $LOGS_DIRECTORY $CONFIGURATION_DIRECTORY; do
    stat --format='%n %a %U %G' "$path" "$path/."
    readlink "$path" "$path-link"
    touch "$path/probe" && echo "may write $path"
    ls "$path"
    private="${path%/*}/private"
    grep " $private" /proc/self/mountinfo | cut -d ' ' -f 5-6
    mountpoint -q "$private" && stat --format='%n %a %U' "$private" && ls "$private"
done
echo end
"#;

/// Script that prepares the machine.
const PREPARE: &str = "
for type in ipc mnt net user uts; do readlink /proc/1/ns/$type >/srv/share/$type; done
ip netns add other
touch /run/ipcns
unshare --ipc mount --bind /proc/self/ns/ipc /run/ipcns
mkdir -p /srv/a /srv/b /srv/new
chown daemon /srv/a
chmod 1777 /srv/a /srv/share/results
touch /tmp/mark /var/tmp/mark
printf '#!/bin/sh\\n' >/srv/program
chmod +x /srv/program
cp /srv/program /srv/a/program";

/// Script that creates the directories of units that had, or had no, dynamic user before.
const EARLIER: &str = "
mkdir -p /var/lib/dyn-moved /var/lib/private/dyn-back
chmod 700 /var/lib/private
touch /var/lib/dyn-moved/kept /var/lib/private/dyn-back/kept
ln -s private/dyn-back /var/lib/dyn-back";

/// Script that runs all units under systemd, one after the other.
const RUN_BY_SYSTEMD: &str = "
cp /srv/share/systemd/*.service /run/systemd/system/
systemctl daemon-reload
cd /srv/share/systemd
for unit in *.service; do systemctl start $unit || true; systemctl stop $unit; done
for path in /run /var/lib /var/cache /var/log /etc; do
    rm -rf $path/private $path/dyn* $path/own* $path/strict
done";

/// Script that runs all units under the native service manager.
const RUN_BY_FLEET: &str = "
systemd-run --quiet --unit=dev --setenv=HOME=/root \\
    /srv/share/fleetd dev --machines 1 --data-dir /run/dev --native-unsupported refuse \\
    /srv/share/native";

#[test]
#[ignore = "boots a machine: run by scripts/test --full"]
fn confined_units_see_the_same_under_both_managers() {
    let kit = Kit::new();
    kit.up(&[("m1", "10.77.0.11")]);
    fs::copy(env!("CARGO_BIN_EXE_fleetd"), kit.share("fleetd")).unwrap();
    fs::write(kit.share("report.sh"), REPORT).unwrap();
    for folder in ["systemd", "native", "results"] {
        fs::create_dir(kit.share(folder)).unwrap();
    }
    for manager in ["systemd", "native"] {
        for (name, options) in UNITS {
            let output = format!("StandardOutput=truncate:/srv/share/results/{manager}-{name}");
            let path = kit.share(manager).join(format!("{name}.service"));
            fs::write(path, format!("{UNIT}{output}\n{options}\n")).unwrap();
        }
    }
    kit.exec("m1", PREPARE);
    kit.exec("m1", EARLIER);
    kit.exec("m1", RUN_BY_SYSTEMD);
    let expected = reports(&kit, "systemd");
    kit.exec("m1", EARLIER);
    kit.exec("m1", RUN_BY_FLEET);
    wait_for("the units of fleet have run", || {
        let found = reports(&kit, "native");
        let is_done =
            |name: &&str| found.get(*name).is_some_and(|report| report.ends_with("end\n"));
        expected.keys().all(is_done).then_some(())
    });
    let found = reports(&kit, "native");
    kit.exec("m1", "systemctl stop dev");
    let mut differences = 0;
    for (name, expected) in &expected {
        let found = found.get(name).map_or("", String::as_str);
        for line in difference(expected, found) {
            print_line(&format!("{name}: {line}"));
            differences += 1;
        }
    }
    assert_eq!(differences, 0);
}

/// Reads what the units have reported.
fn reports(kit: &Kit, manager: &str) -> BTreeMap<&'static str, String> {
    let read = |name| {
        let path = kit.share("results").join(format!("{manager}-{name}"));
        fs::read_to_string(path).unwrap_or_default()
    };
    UNITS.map(|(name, _)| (name, read(name))).into()
}

/// Returns the lines that only one of two reports has.
fn difference(expected: &str, found: &str) -> Vec<String> {
    let missing = expected.lines().filter(|line| !found.lines().any(|other| other == *line));
    let more = found.lines().filter(|line| !expected.lines().any(|other| other == *line));
    let missing = missing.map(|line| format!("only systemd: {line}"));
    missing.chain(more.map(|line| format!("only fleet: {line}"))).collect()
}
