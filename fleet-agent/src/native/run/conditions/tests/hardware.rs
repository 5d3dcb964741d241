//! Conditions on processor, firmware and power, with the files of other machines.

use std::os::unix::fs::symlink;

use super::{check, expect, with_files};

#[test]
fn hardware_conditions_read_the_hardware() {
    expect(&[], &["Architecture=x86-64"], &["Architecture=arm64", "Architecture=unheard-of"]);
    let firmware = ["Firmware=uefi", "Firmware=device-tree", "Firmware=unheard-of"];
    expect(&[], &[], &firmware);
    expect(&[("sys/firmware/efi/x", "")], &firmware[..1], &firmware[1..]);
    expect(&[("sys/firmware/efi/x", ""), (".dockerenv", "")], &[], &firmware);
    expect(&[("sys/firmware/devicetree/x", "")], &firmware[1..2], &firmware[2..]);
    let compatible = [("proc/device-tree/compatible", "vendor,board\0vendor,chip\0")];
    let names = ["vendor,board", "vendor,chip", "vendor", ""];
    let names = names.map(|name| format!("Firmware=device-tree-compatible({name})"));
    let names = names.each_ref().map(String::as_str);
    expect(&compatible, &names[..2], &names[2..]);
    expect(
        &[("sys/class/dmi/id/bios_version", "1.12\n")],
        &[
            "Firmware=smbios-field(bios_version >= 1.9)",
            "Firmware=smbios-field(bios_version = 1.12)",
            "Firmware=smbios-field(bios_version $= 1.*)",
        ],
        &[
            "Firmware=smbios-field(bios_version < 1.9)",
            "Firmware=smbios-field(bios_version != 1.12)",
            "Firmware=smbios-field(none = 1)",
        ],
    );
    expect(
        &[("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse4_2 fma pclmulqdq vmx\n")],
        &["CPUFeature=SSE4_2", "CPUFeature=fma3", "CPUFeature=pclmul"],
        &["CPUFeature=avx2", "CPUFeature=fma", "CPUFeature=vmx", "CPUFeature=osxsave"],
    );
    expect(
        &[],
        &["CPUs=4", "CPUs=>3", "CPUs=<=4", "CPUs=!=5", "CPUs==4"],
        &["CPUs=5", "CPUs=<4", "CPUs=<>4"],
    );
}

#[test]
fn power_comes_from_a_supply_or_a_battery() {
    let power = |name: &str, text: &'static str| (format!("sys/class/power_supply/{name}"), text);
    let battery = || vec![power("B/type", "Battery\n"), power("B/status", "Discharging\n")];
    let with = |more: &[(&str, &'static str)]| {
        let mut files = battery();
        files.extend(more.iter().map(|(name, text)| power(name, text)));
        files
    };
    for (files, external) in [
        (Vec::new(), true),
        (with(&[]), false),
        (with(&[("A/type", "Mains\n"), ("A/online", "1\n")]), true),
        (with(&[("A/type", "Mains\n"), ("A/online", "0\n")]), false),
        (with(&[("A/type", "USB\n"), ("A/online", "1\n")]), true),
        (with(&[("B/status", "Charging\n")]), true),
        (with(&[("B/scope", "Device\n")]), true),
        (with(&[("B/present", "0\n")]), true),
    ] {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let settings = ["ACPower=yes", "ACPower=no"];
        let (holding, others) = settings.split_at(1);
        let (holding, others) = if external { (holding, others) } else { (others, holding) };
        expect(&files, holding, others);
    }
}

/// A port that gives power is no supply.
#[test]
fn usb_port_that_gives_power_does_not_count() {
    for (role, external) in [("[source] sink\n", false), ("source [sink]\n", true)] {
        let (directory, machine) = with_files(&[
            ("sys/devices/port/power_supply/ucsi/type", "USB\n"),
            ("sys/devices/port/power_supply/ucsi/online", "1\n"),
            ("sys/devices/port/typec/port0/power_role", role),
            ("sys/class/power_supply/B/type", "Battery\n"),
            ("sys/class/typec/", ""),
        ]);
        let sys = directory.path().join("sys");
        let supply = sys.join("class/power_supply/ucsi");
        symlink(sys.join("devices/port/power_supply/ucsi"), supply).expect("a link can be made");
        let port = sys.join("class/typec/port0");
        symlink(sys.join("devices/port/typec/port0"), port).expect("a link can be made");
        assert_eq!(check(&machine, "ACPower=yes"), Some(external), "{role}");
    }
}
