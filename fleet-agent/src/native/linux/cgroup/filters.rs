//! Programs in the kernel that filter the devices and the network addresses of a control group.
//!
//! The kernel runs them for each access to a device and each packet. They are BPF programs without
//! maps: each rule is a sequence of comparisons that ends with a verdict.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use fleet_core::graph::cgroup_filters::{
    AddressRange, CgroupFilters, DevicePattern, DevicePolicy, DeviceRule,
};
use fleet_core::graph::condition::fnmatch;

use super::bpf::{
    DEVICES, EGRESS, EXIT, INGRESS, Instruction, R0, R1, R2, R3, R4, R5, R6, R10, add, attach_once,
    call, copy, instruction, load, mask, read, require, require_equal, set, shift_right,
};

/// Loads a program that permits everything, to find out whether the kernel accepts programs of this
/// process.
pub(super) fn check() -> io::Result<()> {
    load(DEVICES, &[set(R0, 1), EXIT]).map(drop)
}

/// Filters a control group. Programs of an earlier call stay.
pub(crate) fn attach(group: BorrowedFd<'_>, filters: &CgroupFilters) -> io::Result<()> {
    if filters_devices(filters) {
        attach_once(group, DEVICES, || Ok(device_program(&device_rules(filters))))?;
    }
    if !filters.denied_addresses.is_empty() {
        attach_once(group, INGRESS, || address_program(filters, SOURCE))?;
        attach_once(group, EGRESS, || address_program(filters, DESTINATION))?;
    }
    Ok(())
}

/// A rule for the device program. `None` stands for every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelRule {
    kind: i32,
    major: Option<u32>,
    minor: Option<u32>,
    access: i32,
}

/// Kinds of devices and of access, as the kernel numbers them.
const BLOCK: i32 = 1;
const CHAR: i32 = 2;
const CREATE: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;
const ALL: i32 = CREATE | READ | WRITE;

/// Numbers of `null`, `zero`, `full`, `random`, `urandom`, `tty` and `ptmx`.
const PSEUDO_DEVICES: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];

fn filters_devices(filters: &CgroupFilters) -> bool {
    filters.device_policy != DevicePolicy::Auto || !filters.devices.is_empty()
}

/// Returns the permitted devices.
fn device_rules(filters: &CgroupFilters) -> Vec<KernelRule> {
    let mut rules = Vec::new();
    if filters.device_policy != DevicePolicy::Strict {
        rules.extend(PSEUDO_DEVICES.map(|(major, minor)| KernelRule {
            kind: CHAR,
            major: Some(major),
            minor: Some(minor),
            access: ALL,
        }));
        rules.extend(resolve(&DevicePattern::Char("pts".to_owned()), READ | WRITE));
    }
    for DeviceRule { device, read, write, create } in &filters.devices {
        let bits = [(*read, READ), (*write, WRITE), (*create, CREATE)];
        let access = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        let found = resolve(device, access);
        if found.is_empty() {
            tracing::warn!(
                ?device,
                "a device of DeviceAllow= does not exist, so it stays forbidden"
            );
        }
        rules.extend(found);
    }
    rules
}

/// Returns the rules for the devices that exist now.
fn resolve(device: &DevicePattern, access: i32) -> Vec<KernelRule> {
    let (kind, pattern) = match device {
        DevicePattern::Path(path) => return of_node(path, access).into_iter().collect(),
        DevicePattern::Block(pattern) => (BLOCK, pattern),
        DevicePattern::Char(pattern) => (CHAR, pattern),
    };
    if pattern == "*" {
        return vec![KernelRule { kind, major: None, minor: None, access }];
    }
    let drivers = fs::read_to_string("/proc/devices").unwrap_or_default();
    let rule = |major| KernelRule { kind, major: Some(major), minor: None, access };
    majors(&drivers, kind, pattern).into_iter().map(rule).collect()
}

fn of_node(path: &str, access: i32) -> Option<KernelRule> {
    // These names have the numbers of the device, which need not exist.
    for (prefix, kind) in [("/dev/char/", CHAR), ("/dev/block/", BLOCK)] {
        if let Some((major, minor)) = path.strip_prefix(prefix).and_then(|it| it.split_once(':')) {
            let (major, minor) = (Some(major.parse().ok()?), Some(minor.parse().ok()?));
            return Some(KernelRule { kind, major, minor, access });
        }
    }
    let metadata = fs::metadata(path).ok()?;
    let kind = match metadata.file_type() {
        kind if kind.is_block_device() => BLOCK,
        kind if kind.is_char_device() => CHAR,
        _ => return None,
    };
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Some(KernelRule { kind, major: Some(major), minor: Some(minor), access })
}

/// Returns the major numbers of the drivers in `/proc/devices` that match a pattern. The pattern
/// may be a number itself.
fn majors(drivers: &str, kind: i32, pattern: &str) -> Vec<u32> {
    if let Ok(major) = pattern.parse() {
        return vec![major];
    }
    let heading = if kind == BLOCK { "Block devices:" } else { "Character devices:" };
    let section = drivers.lines().skip_while(|line| *line != heading).skip(1);
    let entries = section.take_while(|line| !line.is_empty());
    let found = entries.filter_map(|line| line.trim_start().split_once(' '));
    let mut majors: Vec<u32> = found
        .filter(|(_, driver)| fnmatch(pattern, driver))
        .filter_map(|(major, _)| major.parse().ok())
        .collect();
    majors.dedup();
    majors
}

/// Appends a rule: if all requirements hold, the program ends with the verdict.
fn add_rule(program: &mut Vec<Instruction>, mut rule: Vec<Instruction>, verdict: i32) {
    rule.extend([set(R0, verdict), EXIT]);
    let length = rule.len();
    for (index, instruction) in rule.iter_mut().enumerate() {
        if matches!(instruction.code, 0x56 | 0x5d) {
            // Rules have less than 20 instructions.
            instruction.offset = i16::try_from(length - index - 1).unwrap_or(i16::MAX);
        }
    }
    program.append(&mut rule);
}

/// Returns the program that permits the devices of these rules.
fn device_program(rules: &[KernelRule]) -> Vec<Instruction> {
    // The kernel passes the access in the upper half of a word, and the kind in its lower half.
    let mut program = vec![
        read(R2, R1, 0),
        copy(R3, R2),
        mask(R2, 0xffff),
        shift_right(R3, 16),
        read(R4, R1, 4),
        read(R5, R1, 8),
    ];
    for rule in rules {
        let mut checks = vec![require(R2, rule.kind)];
        if rule.access != ALL {
            checks.extend([copy(R1, R3), mask(R1, rule.access), require_equal(R1, R3)]);
        }
        checks.extend(rule.major.map(|major| require(R4, major.cast_signed())));
        checks.extend(rule.minor.map(|minor| require(R5, minor.cast_signed())));
        add_rule(&mut program, checks, 1);
    }
    program.extend([set(R0, 0), EXIT]);
    program
}

/// Offsets of an address in the headers of IPv4 and IPv6.
const SOURCE: (i32, i32) = (12, 8);
const DESTINATION: (i32, i32) = (16, 24);

/// The kernel's function `bpf_skb_load_bytes`.
const LOAD_BYTES: i32 = 26;

/// Returns the program that filters packets by one of their addresses.
fn address_program(filters: &CgroupFilters, offsets: (i32, i32)) -> io::Result<Vec<Instruction>> {
    let mut program = vec![copy(R6, R1), read(R2, R1, 16)];
    for (protocol, offset, length) in [(0x0800_u16, offsets.0, 4), (0x86dd, offsets.1, 16)] {
        let is_family = |range: &&AddressRange| range.address.is_ipv4() == (length == 4);
        let mut family = vec![
            copy(R1, R6),
            set(R2, offset),
            copy(R3, R10),
            add(R3, -16),
            set(R4, length),
            call(LOAD_BYTES),
            // A packet without an address is dropped.
            instruction(0x15, R0, 0, 2, 0),
            set(R0, 0),
            EXIT,
        ];
        let allowed = filters.allowed_addresses.iter().map(|range| (range, 1));
        let denied = filters.denied_addresses.iter().map(|range| (range, 0));
        let mut rules = allowed.chain(denied).filter(|(range, _)| is_family(range));
        // The kernel refuses instructions after a rule without requirements.
        let catches_all = rules.any(|(range, verdict)| {
            add_rule(&mut family, range_checks(*range), verdict);
            range.prefix == 0
        });
        if !catches_all {
            family.extend([set(R0, 1), EXIT]);
        }
        // Other protocols skip the whole block.
        let skipped = i16::try_from(family.len())
            .map_err(|_| io::Error::other("IPAddressAllow= and IPAddressDeny= are too long"))?;
        let is_other = i32::from(protocol.to_be());
        program.push(instruction(0x56, R2, 0, skipped, is_other));
        program.append(&mut family);
    }
    program.extend([set(R0, 1), EXIT]);
    Ok(program)
}

/// Returns the comparisons of an address on the stack with a range.
fn range_checks(range: AddressRange) -> Vec<Instruction> {
    let bytes = match range.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut checks = Vec::new();
    let mut left = u32::from(range.prefix);
    for (offset, word) in (-16_i16..).step_by(4).zip(bytes.chunks_exact(4)) {
        let bits = left.min(32);
        left -= bits;
        if bits == 0 {
            break;
        }
        let wanted = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
        let relevant = u32::MAX << (32 - bits);
        // The packet has its bytes in the order of the network.
        let (wanted, relevant) = ((wanted & relevant).to_be(), relevant.to_be());
        checks.extend([
            read(R1, R10, offset),
            mask(R1, relevant.cast_signed()),
            require(R1, wanted.cast_signed()),
        ]);
    }
    checks
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, UdpSocket};
    use std::os::fd::AsFd as _;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::super::Groups;
    use super::*;
    use crate::clock::pause;

    const DRIVERS: &str = "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n137 pts\n\n\
                           Block devices:\n  7 loop\n259 blkext\n";

    #[test]
    fn drivers_are_found_by_pattern() {
        assert_eq!(majors(DRIVERS, CHAR, "pts"), [136, 137]);
        assert_eq!(majors(DRIVERS, CHAR, "*t*"), [5, 136, 137]);
        assert_eq!(majors(DRIVERS, BLOCK, "loop"), [7]);
        assert_eq!(majors(DRIVERS, BLOCK, "pts"), [0; 0]);
        assert_eq!(majors(DRIVERS, BLOCK, "8"), [8]);
        let rule = of_node("/dev/char/10:229", READ).expect("it has numbers");
        assert_eq!((rule.kind, rule.major, rule.minor), (CHAR, Some(10), Some(229)));
    }

    #[test]
    fn rule_skips_to_its_end() {
        let mut program = Vec::new();
        add_rule(&mut program, vec![require(R2, CHAR), require(R4, 1)], 1);
        let offsets: Vec<i16> = program.iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [3, 2, 0, 0]);
    }

    #[test]
    fn closed_policy_permits_pseudo_devices_and_listed_ones() {
        let mut filters = CgroupFilters::default();
        assert!(!filters_devices(&filters));
        filters.devices.push(DeviceRule {
            device: DevicePattern::Path("/dev/null".to_owned()),
            read: true,
            write: false,
            create: false,
        });
        let null = KernelRule { kind: CHAR, major: Some(1), minor: Some(3), access: READ };
        let rules = device_rules(&filters);
        assert!(filters_devices(&filters) && rules.len() > PSEUDO_DEVICES.len());
        assert_eq!(rules.last(), Some(&null));
        filters.device_policy = DevicePolicy::Strict;
        assert_eq!(device_rules(&filters), [null]);
    }

    /// Helper process for the test below: waits for the end of its input, and then writes the
    /// results of opening two devices and of sending to three addresses, and the first message that
    /// it receives.
    #[test]
    fn helper_process() {
        let Some(results) = std::env::var_os("FILTER_RESULTS") else { return };
        io::stdin().read_line(&mut String::new()).expect("the input ends");
        let opens = |path: &str| fs::File::open(path).is_ok();
        let sends = |from: &str, to: &str| {
            let socket = UdpSocket::bind(from).expect("it is local");
            socket.send_to(b"x", to).is_ok()
        };
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("it is local");
        let port = receiver.local_addr().expect("it is bound").port().to_string();
        let file = PathBuf::from(&results).with_extension("port");
        fs::write(file.with_extension("new"), port).expect("it can be written");
        fs::rename(file.with_extension("new"), file).expect("it is there");
        let mut message = [0; 16];
        receiver.set_read_timeout(Some(Duration::from_secs(30))).expect("it is no zero");
        let length = receiver.recv(&mut message).expect("a message arrives");
        let text = format!(
            "/dev/null {}\n/dev/zero {}\n127.0.0.1 {}\n127.0.0.2 {}\n::1 {}\nfrom {}",
            opens("/dev/null"),
            opens("/dev/zero"),
            sends("127.0.0.1:0", "127.0.0.1:9"),
            sends("127.0.0.1:0", "127.0.0.2:9"),
            sends("[::1]:0", "[::1]:9"),
            String::from_utf8_lossy(&message[..length]),
        );
        fs::write(results, text).expect("it can be written");
    }

    #[test]
    fn filters_apply_to_processes_of_the_group() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        // Without the permission to load programs there is nothing to test.
        let Some(groups) = Groups::find(directory.path()).ok().filter(Groups::has_filters) else {
            return;
        };
        let group = groups.for_run("a.service", "1");
        let range = |address: [u8; 4], prefix| AddressRange { address: address.into(), prefix };
        let six = AddressRange { address: Ipv6Addr::LOCALHOST.into(), prefix: 128 };
        let mut filters = CgroupFilters::default();
        filters.device_policy = DevicePolicy::Strict;
        filters.devices.push(DeviceRule {
            device: DevicePattern::Path("/dev/null".to_owned()),
            read: true,
            write: true,
            create: false,
        });
        filters.allowed_addresses = vec![range([127, 0, 0, 1], 32)];
        filters.denied_addresses = vec![range([127, 0, 0, 0], 8), six];
        let opened = group.open().expect("it can be created");
        for _ in 0..2 {
            attach(opened.as_fd(), &filters).expect("the kernel accepts the programs");
        }
        let module = module_path!().split_once("::").expect("it is in a crate").1;
        let results = directory.path().join("results");
        let mut child = Command::new(std::env::current_exe().expect("it has a path"))
            .args(["--exact", &format!("{module}::helper_process")])
            .env("FILTER_RESULTS", &results)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it can be run");
        let pid = child.id().to_string();
        fs::write(group.path().join("cgroup.procs"), pid).expect("it can enter");
        drop(child.stdin.take());
        let port_file = results.with_extension("port");
        while !port_file.exists() && child.try_wait().expect("it is our child").is_none() {
            pause(Duration::from_millis(5));
        }
        let port = fs::read_to_string(port_file).expect("it was written");
        // The first one is dropped.
        for sender in ["127.0.0.2", "127.0.0.1"] {
            let socket = UdpSocket::bind((sender, 0)).expect("it is local");
            let to = format!("127.0.0.1:{port}");
            socket.send_to(sender.as_bytes(), to).expect("it can be sent");
        }
        let status = child.wait().expect("it is our child");
        groups.remove_empty();
        assert!(status.success());
        let results = fs::read_to_string(&results).expect("it was written");
        insta::assert_snapshot!(results, @r"
        /dev/null true
        /dev/zero false
        127.0.0.1 true
        127.0.0.2 false
        ::1 false
        from 127.0.0.1
        ");
    }

    #[test]
    fn empty_prefix_matches_every_address() {
        let any = AddressRange { address: IpAddr::from([0, 0, 0, 0]), prefix: 0 };
        assert_eq!(range_checks(any), []);
        let network = AddressRange { address: IpAddr::from([10, 1, 2, 3]), prefix: 8 };
        let checks = range_checks(network);
        let values: Vec<i32> = checks.iter().map(|it| it.value).collect();
        assert_eq!(values, [0, 0xff_u32.cast_signed(), 10]);
    }
}
