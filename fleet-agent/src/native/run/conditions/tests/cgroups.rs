//! Conditions on control groups, memory and pressure, with the files of other machines.

use super::{check, expect, with_files};

#[test]
fn control_groups_have_controllers() {
    expect(
        &[
            ("proc/1/cgroup", "0::/box/init.scope\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids hugetlb\n"),
            ("sys/fs/cgroup/box/cgroup.controllers", "cpu memory\n"),
        ],
        &[
            "ControlGroupController=v2",
            "ControlGroupController=cpu memory",
            "ControlGroupController=cpu unheard-of",
            "ControlGroupController=unheard-of",
        ],
        &[
            "ControlGroupController=v1",
            "ControlGroupController=cpu io",
            "ControlGroupController=blkio",
            "ControlGroupController=bpf-firewall",
        ],
    );
    expect(
        &[
            ("proc/1/cgroup", "1:name=systemd:/\n0::/\n"),
            ("sys/fs/cgroup/memory/", ""),
            ("sys/fs/cgroup/io/", ""),
        ],
        &["ControlGroupController=v1", "ControlGroupController=memory"],
        &["ControlGroupController=v2", "ControlGroupController=io", "ControlGroupController=cpu"],
    );
}

#[test]
fn memory_is_that_of_the_container() {
    let total = ("proc/meminfo", "MemTotal:        4194304 kB\nMemFree: 1 kB\n");
    let group = ("proc/1/cgroup", "0::/box/init.scope\n");
    let unified = ("sys/fs/cgroup/cgroup.controllers", "memory\n");
    let holding = ["Memory=4G", "Memory==4G", "Memory=>3G", "Memory=<5G"];
    let others = ["Memory=5G", "Memory=<4G", "Memory=<>4G"];
    expect(&[total], &holding, &others);
    expect(&[total, group, unified, ("sys/fs/cgroup/box/memory.max", "max\n")], &holding, &others);
    let limit = ("sys/fs/cgroup/box/memory.max", "1073741824\n");
    expect(&[total, group, unified, limit], &["Memory==1G"], &["Memory=4G"]);
    let limit = ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824\n");
    let group = ("proc/1/cgroup", "5:memory:/x\n1:name=systemd:/box/init.scope\n");
    expect(&[total, group, limit], &["Memory==1G"], &["Memory=4G"]);
    assert_eq!(check(&with_files(&[]).1, "Memory=1G"), None, "an unknown size is no result");
}

#[test]
fn pressure_is_compared_with_a_limit() {
    let text = "some avg10=20.00 avg60=9.00 avg300=8.00 total=7\n\
                full avg10=12.50 avg60=3.00 avg300=0.25 total=5\n";
    let machine = ("proc/pressure/memory", text);
    expect(
        &[machine],
        &["MemoryPressure=0.25%", "MemoryPressure=3%/1min", "MemoryPressure=12.5%/10sec"],
        &["MemoryPressure=0.24%", "MemoryPressure=2%/1min", "MemoryPressure=12.49%/10sec"],
    );
    let some = ("proc/pressure/cpu", "some avg10=20.00 avg60=9.00 avg300=8.00 total=7\n");
    expect(&[some], &["CPUPressure=8%", "IOPressure=0%"], &["CPUPressure=7%"]);
    expect(&[], &["CPUPressure=0%"], &[]);
    let groups = [
        machine,
        ("proc/1/cgroup", "0::/init.scope\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/a.slice/a-b.slice/memory.pressure", text),
    ];
    expect(
        &groups,
        &["MemoryPressure=a-b.slice:1%", "MemoryPressure=none.slice:0%", "IOPressure=a-b.slice:0%"],
        &["MemoryPressure=a-b.slice:0%"],
    );
    expect(&groups[..2], &["MemoryPressure=a-b.slice:0%"], &[]);
}
