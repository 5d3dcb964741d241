//! Detection of virtual machines and containers, with the files of other machines.

use super::super::virtualization::Virtualization;
use super::{Files, check, expect, with_files};

/// Files with descriptions of the hardware.
const PRODUCT: &str = "sys/class/dmi/id/product_name";
const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
const RAW: &str = "sys/firmware/dmi/entries/0-0/raw";

/// Tables of the firmware with and without the flag of virtual machines.
const FLAGGED: &str = "\0\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10";
const UNFLAGGED: &str = "\0\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08";

const XEN: (&str, &str) = ("proc/xen/capabilities", "");

#[test]
fn virtualization_is_detected() {
    let cpuid = |name: &str| Some(name.to_owned());
    let cases: Vec<(Files<'_>, Option<String>, &str)> = vec![
        (&[], None, "none"),
        (&[], cpuid("KVMKVMKVM"), "kvm"),
        (&[], cpuid("Microsoft Hv"), "microsoft"),
        (&[], cpuid("unheard of"), "vm-other"),
        (&[(VENDOR, "QEMU\n")], None, "qemu"),
        (&[(VENDOR, "QEMU\n")], cpuid("KVMKVMKVM"), "kvm"),
        (&[(VENDOR, "QEMU\n")], cpuid("unheard of"), "qemu"),
        (&[(PRODUCT, "VirtualBox\n")], cpuid("KVMKVMKVM"), "oracle"),
        (&[(PRODUCT, "ThinkPad\n")], None, "none"),
        (&[(RAW, FLAGGED)], None, "vm-other"),
        (&[(RAW, UNFLAGGED)], None, "none"),
        (&[(PRODUCT, "Amazon EC2"), (RAW, UNFLAGGED)], None, "none"),
        (&[(PRODUCT, "Amazon EC2"), (RAW, FLAGGED)], None, "amazon"),
        (&[(PRODUCT, "m5.metal"), (VENDOR, "Amazon EC2")], None, "none"),
        (&[("proc/cpuinfo", "processor\t: 0\nvendor_id\t: User Mode Linux\n")], None, "uml"),
        (&[XEN], cpuid("KVMKVMKVM"), "xen"),
        (&[("proc/xen/capabilities", "control_d\n")], None, "none"),
        (&[XEN, ("sys/hypervisor/properties/features", "00000800")], None, "none"),
        (&[("sys/hypervisor/type", "xen\n")], None, "xen"),
        (&[("proc/device-tree/hypervisor/compatible", "linux,kvm\0")], None, "kvm"),
        (&[("proc/device-tree/fw-cfg@9020000/reg", "")], None, "qemu"),
        (&[("proc/sysinfo", "VM00 Control Program: z/VM    6.4.0\n")], None, "zvm"),
        (&[("proc/vz/x", "")], None, "openvz"),
        (&[("proc/vz/x", ""), ("proc/bc/x", "")], None, "none"),
        (&[("proc/sys/kernel/osrelease", "5.15-microsoft-standard-WSL2\n")], None, "wsl"),
        (&[("proc/self/status", "TracerPid:\t7\n"), ("proc/7/comm", "proot\n")], None, "proot"),
        (&[("proc/self/status", "TracerPid:\t7\n"), ("proc/7/comm", "gdb\n")], None, "none"),
        (&[("run/host/container-manager", "podman\n")], cpuid("KVMKVMKVM"), "podman"),
        (&[("run/systemd/container", "systemd-nspawn\n")], None, "systemd-nspawn"),
        (&[("run/systemd/container", "newer\n")], None, "container-other"),
        (&[("proc/1/environ", "PATH=/bin\0container=lxc\0")], None, "lxc"),
        (&[("proc/1/environ", "PATH=/bin\0container=\0")], None, "none"),
        (&[("proc/1/environ", "container=oci\0"), (".dockerenv", "")], None, "docker"),
        (&[("run/.containerenv", ""), (".dockerenv", "")], None, "podman"),
        (&[("proc/self/ns/cgroup", ""), ("sys/fs/cgroup/systemd/", "")], None, "container-other"),
        (&[("proc/self/ns/cgroup", ""), ("sys/fs/cgroup/systemd/release_agent", "")], None, "none"),
    ];
    for (files, hypervisor, expected) in cases {
        let (_directory, mut machine) = with_files(files);
        machine.hypervisor = hypervisor;
        let found = machine.virtualization();
        let (name, word) = match found {
            None => ("none", "no"),
            Some(Virtualization::Vm(name)) => (name, "vm"),
            Some(Virtualization::Container(name)) => (name, "container"),
        };
        assert_eq!(name, expected, "{files:?}");
        let holds = |wanted: &str| check(&machine, &format!("Virtualization={wanted}"));
        assert_eq!(holds("yes"), Some(found.is_some()), "{files:?}");
        assert_eq!(holds("no"), Some(found.is_none()), "{files:?}");
        assert_eq!(holds(word), Some(true), "{files:?}");
        assert_eq!(holds(expected), Some(found.is_some()), "{files:?}");
        assert_eq!(holds("unheard-of"), Some(false), "{files:?}");
    }
}

#[test]
fn user_namespace_is_detected() {
    let full = "         0          0 4294967295\n";
    let private = ["Virtualization=private-users"];
    for files in [
        &[("proc/self/uid_map", "0 100000 65536\n")][..],
        &[("proc/self/uid_map", full), ("proc/self/gid_map", "")],
        &[("proc/self/uid_map", full), ("proc/self/setgroups", "deny\n")],
    ] {
        expect(files, &private, &["Security=audit", "Virtualization=yes"]);
    }
    let root = [
        ("proc/self/uid_map", full),
        ("proc/self/gid_map", full),
        ("proc/self/setgroups", "allow\n"),
    ];
    expect(&root, &["Security=audit"], &private);
    expect(&[], &[], &private);
}
