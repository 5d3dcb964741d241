//! Conditions of the native service manager compared with `systemd-analyze condition`.

use std::path::Path;
use std::process::Command;

use fleet_agent::{NativeConfig, NativeManager, ServiceManager as _};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;

use crate::bench::{name, print_line, shell};

/// Settings whose result depends on the machine, or is the same everywhere. `DIR` is the directory
/// of the test.
const SETTINGS: &str = "
    PathExists=/etc/machine-id
    PathExists=/no such path
    PathExistsGlob=DIR/*.conf
    PathExistsGlob=DIR/*
    PathExistsGlob=DIR/{none,h*}/
    PathExistsGlob=DIR/hidden/*
    PathExistsGlob=DIR/[!g-i]idden
    PathExistsGlob=DIR/brok?n
    PathExistsGlob=DIR/hidden/\\.x
    PathIsDirectory=DIR
    PathIsDirectory=/etc/machine-id
    PathIsSymbolicLink=/proc/self
    PathIsSymbolicLink=DIR/broken
    PathIsSymbolicLink=/proc
    PathIsMountPoint=/
    PathIsMountPoint=/proc
    PathIsMountPoint=/proc/
    PathIsMountPoint=/proc/sys/kernel
    PathIsMountPoint=/etc/machine-id
    PathIsReadWrite=/
    PathIsReadWrite=/sys
    PathIsReadWrite=/proc/sys
    PathIsReadWrite=DIR/frozen
    PathIsReadWrite=/no such path
    PathIsEncrypted=/
    PathIsEncrypted=/proc
    DirectoryNotEmpty=/etc
    DirectoryNotEmpty=DIR/hidden
    DirectoryNotEmpty=DIR/backups
    DirectoryNotEmpty=/etc/machine-id
    DirectoryNotEmpty=/no such path
    FileNotEmpty=/etc/machine-id
    FileNotEmpty=DIR/hidden/.x
    FileIsExecutable=/bin/sh
    FileIsExecutable=/etc/machine-id
    NeedsUpdate=/etc
    NeedsUpdate=/var
    NeedsUpdate=DIR/frozen
    FirstBoot=yes
    FirstBoot=no
    Host=*
    Host=none
    Host=[!x]*
    Host=0123456789abcdef0123456789abcdef
    Architecture=native
    Architecture=x86-64
    Architecture=arm64
    Architecture=unheard-of
    Firmware=uefi
    Firmware=device-tree
    Firmware=device-tree-compatible(x)
    Firmware=smbios-field(sys_vendor $= *)
    Firmware=unheard-of
    Virtualization=yes
    Virtualization=no
    Virtualization=vm
    Virtualization=container
    Virtualization=private-users
    Virtualization=kvm
    Virtualization=qemu
    Virtualization=docker
    Virtualization=systemd-nspawn
    Virtualization=container-other
    Virtualization=vm-other
    ACPower=yes
    ACPower=no
    Memory=1M
    Memory=>=1.5G
    Memory=<64G
    Memory=!= 5T
    Memory=>15E
    CPUs=1
    CPUs=>2
    CPUs=<=2
    CPUs=!=2
    CPUs==2
    MemoryPressure=100%
    MemoryPressure=none.slice:0%
    CPUPressure=system.slice:100%/1min
    IOPressure=100%/10sec
    ControlGroupController=v1
    ControlGroupController=v2
    ControlGroupController=cpu
    ControlGroupController=cpuset
    ControlGroupController=cpuacct
    ControlGroupController=io
    ControlGroupController=blkio
    ControlGroupController=cpu memory
    ControlGroupController=memory pids unheard-of
    ControlGroupController=unheard-of
    ControlGroupController=bpf-firewall
    KernelCommandLine=quiet
    KernelCommandLine=root
    KernelCommandLine=unheard-of
    KernelVersion=>=3
    KernelVersion=>= 3
    KernelVersion=>=3 <100
    KernelVersion=*
    KernelVersion=[0-9].*
    KernelVersion=!$=*
    KernelVersion==5
    KernelVersion=<>5
    KernelVersion='>= 3' \"!=3\"
    OSRelease=ID=debian
    OSRelease=ID=debian VERSION_ID>=9
    OSRelease=VERSION_ID<=100
    OSRelease=ID!=debian
    OSRelease=ID$=deb*
    OSRelease=UNHEARD_OF=x
    Security=selinux
    Security=apparmor
    Security=tomoyo
    Security=ima
    Security=smack
    Security=audit
    Security=uefi-secureboot
    Security=tpm2
    Security=unheard-of
    Capability=CAP_SYS_ADMIN
    Capability=cap_chown
    Capability=CAP_SYS_TIME
    Capability=CAP_CHECKPOINT_RESTORE
    Capability=CAP_AUDIT_READ
    Capability=CAP_UNHEARD_OF
    Capability=SYS_ADMIN
    Capability=8
    Credential=unheard-of
    Environment=PATH
    Environment=UNHEARD_OF
    User=root
    User=0
    User=1
    User=@system
    User=nobody
    Group=root
    Group=0
    Group=daemon
    Group=unheard-of
";

/// Features of processors that systemd knows, and some that it does not.
const FEATURES: &str = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 \
    clflush mmx fxsr sse sse2 ht pni pclmul monitor ssse3 fma3 cx16 sse4_1 sse4_2 movbe popcnt aes \
    xsave osxsave avx f16c rdrand bmi1 avx2 bmi2 rdseed adx sha_ni syscall rdtscp lm lahf_lm abm \
    constant_tsc fma nx vmx hypervisor";

// Holds: G-30
pub(crate) async fn conditions_hold_as_under_systemd() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let place = directory.path().display().to_string();
    shell(&format!(
        "cd {place}; mkdir hidden backups frozen; touch hidden/.x; ln -s nowhere broken
         touch backups/a~ backups/b.dpkg-old backups/lost+found backups/c.swp
         mount -t tmpfs tmpfs frozen; mount -o remount,ro frozen"
    ));
    let features = FEATURES.split_whitespace().map(|feature| format!("CPUFeature={feature}"));
    let settings = SETTINGS.lines().map(|line| line.trim().replace("DIR", &place));
    let settings = settings.filter(|line| !line.is_empty()).chain(features);
    let negated = |setting: String| [setting.clone(), setting.replacen('=', "=!", 1)];
    let settings: Vec<String> = settings.flat_map(negated).collect();

    let config = NativeConfig::new(directory.path().join("native"));
    let native = NativeManager::open(config).await.expect("it opens");
    let mut differences = Vec::new();
    for (index, setting) in settings.iter().enumerate() {
        let unit = name(&format!("condition-{index}.service"));
        let marker = directory.path().join(format!("marker-{index}"));
        let text = format!(
            "[Unit]\nCondition{setting}\n[Service]\nType=oneshot\nExecStart=/bin/touch {}\n",
            marker.display()
        );
        let file = UnitFile::parse(&text).expect("the unit file is well formed");
        native.load(&unit, &file, Epoch(1)).await.unwrap_or_else(|error| panic!("{error}"));
        native.reload().await.expect("the files are read");
        // A skipped start is an error.
        drop(native.start(&unit, Generation(1)).await);
        let (ours, theirs) = (marker.exists(), holds_for_systemd(setting));
        if ours != theirs {
            differences.push(format!("{setting}: {ours} here, {theirs} under systemd"));
        }
    }
    unmount(&directory.path().join("frozen"));
    assert_eq!(differences, Vec::<String>::new(), "conditions have different results");
    print_line(&format!("figure: {} conditions hold as under systemd", settings.len()));
}

fn holds_for_systemd(setting: &str) -> bool {
    let mut analyze = Command::new("systemd-analyze");
    let output = analyze.args(["condition", &format!("Condition{setting}")]).output();
    output.expect("it can be run").status.success()
}

fn unmount(place: &Path) {
    shell(&format!("umount {}", place.display()));
}
