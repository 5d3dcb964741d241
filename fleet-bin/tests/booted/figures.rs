//! Measures speed and cost of a cluster, compared with plain systemd, without asserting limits.
//!
//! The machines share the kernel's clock, so the start time of a unit is the timestamp recorded by
//! its machine's systemd.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use fleet_core::TargetState;
use fleet_http::client::UnitUpload;
use fleet_http::{Client, Endpoint};
use fleet_unitfile::UnitFile;
use rustix::time::{ClockId, clock_gettime};

use crate::cluster::{Cluster, MACHINES, SLEEP, STORE, print_line};
use crate::observe::{wait_for, wait_while};

/// Number of measurements of many units.
const ROUNDS: usize = if IN_DEVELOPMENT { 1 } else { 3 };

/// Number of units started at once.
const MANY: usize = if IN_DEVELOPMENT { 60 } else { 600 };

/// Units per machine during the idle measurement.
const IDLE_UNITS: usize = MANY / 2;

/// Whether this is a development build, whose figures are not representative.
const IN_DEVELOPMENT: bool = cfg!(debug_assertions);

/// Number of single units measured.
const SINGLES: usize = 20;

/// Duration of the idle measurement.
const REST: Duration = Duration::from_secs(20);

/// Longer than the time that a new leader waits for machines to return.
const SETTLED: Duration = Duration::from_secs(20);

#[tokio::test]
#[ignore = "boots machines: run by scripts/test --full"]
async fn figures() {
    if IN_DEVELOPMENT {
        figure("development build with fewer units: use --release for representative figures");
    }
    let cluster = Cluster::boot("30s");
    measure_single_units(&cluster).await;
    measure_many_units(&cluster);
    measure_changed_units(&cluster);
    measure_idle_daemons(&cluster);
    drop(cluster);
    measure_machine_loss(&Cluster::boot("5s"));
}

fn figure(text: &str) {
    print_line(&format!("figure: {text}"));
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).expect("the time since the boot is not negative")
}

fn median<T: Ord + Copy>(mut all: Vec<T>) -> T {
    all.sort_unstable();
    all[all.len() / 2]
}

/// Returns the start times of the active units of these machines that match a pattern.
fn came_up(cluster: &Cluster, on: &[&str], pattern: &str) -> Vec<(String, Duration)> {
    let properties = "Id,ActiveState,ActiveEnterTimestampMonotonic";
    let script = format!("systemctl show -p {properties} '{pattern}'");
    let shown: Vec<_> = on.iter().map(|machine| cluster.kit.exec(machine, &script)).collect();
    let blocks = shown.iter().flat_map(|shown| shown.split("\n\n"));
    let up = blocks.filter(|block| block.contains("ActiveState=active"));
    up.map(|block| {
        let of = |name| {
            block
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .expect("systemd prints the property")
        };
        let at = of("ActiveEnterTimestampMonotonic=").parse().expect("a number");
        (of("Id=").to_owned(), Duration::from_micros(at))
    })
    .collect()
}

/// Returns the time from `begin` until the last of `units` was up.
fn until_all_up(cluster: &Cluster, pattern: &str, units: usize, begin: Duration) -> Duration {
    let up = came_up(cluster, &MACHINES, pattern);
    assert_eq!(up.len(), units, "number of {pattern} that are up");
    up.into_iter().map(|(_, at)| at).max().expect("there are units").saturating_sub(begin)
}

async fn measure_single_units(cluster: &Cluster) {
    let socket = format!("unix://{}", cluster.kit.share("m1.sock").display());
    let client = Client::new(&socket.parse::<Endpoint>().expect("the endpoint is a URL"));
    let file = UnitFile::parse(SLEEP).expect("the unit file is valid");
    let desired = Some(TargetState::Launched);
    let upload = UnitUpload::new(file).with_desired(desired).with_create_only(true);
    let mut begins = Vec::new();
    for number in 0..SINGLES {
        let unit = format!("one-{number}.service");
        begins.push((unit.clone(), now()));
        client
            .put_unit(&unit.parse().expect("the name is valid"), &upload)
            .await
            .expect("the unit is accepted");
        cluster.wait_single_machine(&unit);
    }
    let up: BTreeMap<_, _> = came_up(cluster, &MACHINES, "one-*").into_iter().collect();
    let ours = begins.iter().map(|(unit, begin)| up[unit].saturating_sub(*begin)).collect();
    let (ours, floor) = (median(ours), single_start_by_systemctl(cluster));
    figure(&format!("one unit, PUT to running, median of {SINGLES}: {ours:.1?}"));
    figure(&format!("one unit, systemctl start, median of {SINGLES}: {floor:.1?}"));
    destroy(cluster, &begins.into_iter().map(|(unit, _)| unit).collect::<Vec<_>>());
}

/// Returns the median time of `systemctl start` for a new unit.
fn single_start_by_systemctl(cluster: &Cluster) -> Duration {
    let script = format!(
        "cd /run/systemd/system; for i in $(seq {SINGLES}); do
         begin=$(date +%s%N); printf '{}' >floor-$i.service; systemctl start floor-$i.service
         echo $(($(date +%s%N) - begin)); done
         systemctl stop 'floor-*'; rm floor-*",
        SLEEP.escape_default()
    );
    let printed = cluster.kit.exec("m1", &script);
    let nanos = printed.lines().map(|line| line.parse().expect("a number of nanoseconds"));
    Duration::from_nanos(median(nanos.collect()))
}

fn measure_many_units(cluster: &Cluster) {
    let (mut percents, mut of_processors) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let floor = many_starts_by_systemctl(cluster, round);
        let names: Vec<_> = (0..MANY).map(|it| format!("many-{round}-{it}.service")).collect();
        let before = spent(cluster);
        let (begin, returned) = start(cluster, &names, SLEEP);
        let spent = spent(cluster).saturating_sub(before);
        let took = until_all_up(cluster, &format!("many-{round}-*"), MANY, begin);
        figure(&format!(
            "{MANY} units, PUT to all running: {took:.2?} (fleetctl returned after \
             {returned:.2?}), {spent:.2?} of CPU time; by systemctl on each machine: {:.2?}, \
             {:.2?} of CPU time",
            floor.took, floor.spent
        ));
        percents.push(percent(took, floor.took));
        of_processors.push(percent(spent, floor.spent));
        if round + 1 < ROUNDS {
            destroy(cluster, &names);
        }
    }
    let (time, processors) = (median(percents), median(of_processors));
    figure(&format!(
        "{MANY} units relative to systemctl, median of {ROUNDS}: {time} % of the time, \
         {processors} % of the CPU time, which other programs affect less"
    ));
}

/// Measures the update of all units that the last round of [`measure_many_units`] has left running.
fn measure_changed_units(cluster: &Cluster) {
    let round = ROUNDS - 1;
    let names: Vec<_> = (0..MANY).map(|it| format!("many-{round}-{it}.service")).collect();
    let mut percents = Vec::new();
    for version in 0..ROUNDS {
        let text = format!("{SLEEP}Environment=VERSION={version}\n");
        let floor = many_restarts_by_systemctl(cluster, version);
        for name in &names {
            cluster.write(name, &text);
        }
        let args: Vec<_> = ["apply"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let begin = now();
        cluster.succeed(&args);
        let returned = now().saturating_sub(begin);
        let up = came_up(cluster, &MACHINES, &format!("many-{round}-*"));
        let is_new = |(_, at): &&(String, Duration)| *at >= begin;
        assert_eq!(up.iter().filter(is_new).count(), MANY, "all units have restarted");
        let took = until_all_up(cluster, &format!("many-{round}-*"), MANY, begin);
        figure(&format!(
            "{MANY} changed units, apply to all running: {took:.2?} (fleetctl returned after \
             {returned:.2?}); by systemctl on each machine: {floor:.2?}"
        ));
        percents.push(percent(took, floor));
    }
    let time = median(percents);
    figure(&format!("{MANY} changed units relative to systemctl: {time} % of the time"));
}

/// Measures the change and restart of a third of the units on each machine, concurrently.
fn many_restarts_by_systemctl(cluster: &Cluster, version: usize) -> Duration {
    let count = MANY / MACHINES.len();
    let names = format!("$(printf 'changed-%s.service ' $(seq {count}))");
    let write = |version: &str| {
        let text = format!("{SLEEP}Environment=VERSION={version}\n");
        let text = text.escape_default().to_string();
        format!("cd /run/systemd/system; for i in {names}; do printf '{text}' >$i; done")
    };
    on_all(cluster, &format!("{}; systemctl start {names}", write("before")));
    let begin = now();
    let change = write(&version.to_string());
    on_all(cluster, &format!("{change}; systemctl daemon-reload; systemctl restart {names}"));
    let took = until_all_up(cluster, "changed-*", MANY, begin);
    on_all(cluster, &format!("systemctl stop {names}; cd /run/systemd/system; rm {names}"));
    took
}

fn percent(took: Duration, floor: Duration) -> u128 {
    took.as_millis() * 100 / floor.as_millis().max(1)
}

/// Time until the last unit was up, and the CPU time of all machines.
struct Cost {
    took: Duration,
    spent: Duration,
}

/// Returns the CPU time of all machines, including the store, and of this process's children.
fn spent(cluster: &Cluster) -> Duration {
    let script = "sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat";
    let of = |machine| cluster.kit.exec(machine, script).parse::<u64>().expect("a number");
    let machines: u64 = MACHINES.into_iter().chain([STORE]).map(of).sum();
    Duration::from_micros(machines) + spent_by_children()
}

fn spent_by_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc/self/stat can be read");
    // The process name before these fields may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(13).take(2).map(|it| it.parse::<u64>().expect("a number"));
    // USER_HZ is 100 on Linux.
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Starts units with `fleetctl`. Returns when that began, and when `fleetctl` reported success.
fn start(cluster: &Cluster, names: &[String], text: &str) -> (Duration, Duration) {
    for name in names {
        cluster.write(name, text);
    }
    let args: Vec<_> = ["start"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let begin = now();
    cluster.succeed(&args);
    (begin, now().saturating_sub(begin))
}

fn destroy(cluster: &Cluster, names: &[String]) {
    let args: Vec<_> = ["destroy"].into_iter().chain(names.iter().map(String::as_str)).collect();
    cluster.succeed(&args);
}

/// Measures `systemctl start` of a third of the units on each machine, concurrently.
fn many_starts_by_systemctl(cluster: &Cluster, round: usize) -> Cost {
    let names = format!("$(printf 'floor-{round}-%s.service ' $(seq {}))", MANY / MACHINES.len());
    let write = format!(
        "cd /run/systemd/system; for i in {names}; do printf '{}' >$i; done",
        SLEEP.escape_default()
    );
    on_all(cluster, &write);
    let (before, begin) = (spent(cluster), now());
    on_all(cluster, &format!("systemctl start {names}"));
    let spent = spent(cluster).saturating_sub(before);
    let took = until_all_up(cluster, &format!("floor-{round}-*"), MANY, begin);
    on_all(cluster, &format!("systemctl stop {names}; cd /run/systemd/system; rm {names}"));
    Cost { took, spent }
}

fn on_all(cluster: &Cluster, script: &str) {
    std::thread::scope(|scope| {
        for machine in MACHINES {
            scope.spawn(move || cluster.kit.exec(machine, script));
        }
    });
}

/// Measures memory and CPU time of idle daemons.
fn measure_idle_daemons(cluster: &Cluster) {
    for machine in MACHINES {
        let more = IDLE_UNITS - MANY / MACHINES.len();
        let names: Vec<_> = (0..more).map(|it| format!("rest-{machine}-{it}.service")).collect();
        let text = format!("{SLEEP}[X-Fleet]\nMachineMetadata=name={machine}\n");
        start(cluster, &names, &text);
    }
    wait_while("the daemons become idle", REST / 4, || true);
    let (begin, before) = (now(), MACHINES.map(|machine| processor_time(cluster, machine)));
    wait_while("the daemons are idle", REST, || true);
    let (took, after) = (now() - begin, MACHINES.map(|machine| processor_time(cluster, machine)));
    let mut text = format!("idle, {IDLE_UNITS} units on each machine:");
    for ((machine, before), after) in MACHINES.iter().zip(before).zip(after) {
        let percent = (after - before).as_secs_f64() / took.as_secs_f64() * 100.0;
        let memory = memory(cluster, machine);
        write!(text, " {machine} {memory}, {percent:.2} % of a core;")
            .expect("writing to a String cannot fail");
    }
    figure(text.trim_end_matches(';'));
}

fn processor_time(cluster: &Cluster, machine: &str) -> Duration {
    let script = "sed -n 's/^usage_usec //p' /sys/fs/cgroup/system.slice/fleet.service/cpu.stat";
    Duration::from_micros(cluster.kit.exec(machine, script).parse().expect("a number"))
}

fn memory(cluster: &Cluster, machine: &str) -> String {
    let pid = cluster.show(machine, "fleet.service", "MainPID");
    cluster.kit.exec(machine, &format!("awk '/^VmRSS:/ {{ print $2, $3 }}' /proc/{pid}/status"))
}

/// Measures the downtime of the units of a lost machine that is not the leader.
fn measure_machine_loss(cluster: &Cluster) {
    let names: Vec<_> = (0..99).map(|number| format!("moving-{number}.service")).collect();
    start(cluster, &names, SLEEP);
    wait_while("the leader no longer waits for machines to return", SETTLED, || true);
    let leads = "journalctl -u fleet.service | grep -q ' leading '";
    let (other, dead) = match cluster.kit.try_exec("m2", leads).status.success() {
        true => ("m2", "m3"),
        false => ("m3", "m2"),
    };
    let there = cluster.runs_on(dead, "moving-*").len();
    cluster.kit.run(&["crash", dead]);
    // Its lease ended between two checks. The earlier one counts.
    let earlier = Cell::new(now());
    wait_for("the machine is considered lost", || {
        let checked = now();
        let is_gone = cluster.present() == ["m1", other];
        if !is_gone {
            earlier.set(checked);
        }
        is_gone.then_some(())
    });
    let up = wait_for("all units run elsewhere", || {
        let up = came_up(cluster, &["m1", other], "moving-*");
        (up.len() == names.len()).then_some(up)
    });
    let last = up.into_iter().map(|(_, at)| at).max().expect("there are units");
    let took = last.saturating_sub(earlier.get());
    figure(&format!("{there} units of a dead machine run elsewhere {took:.2?} after its lease"));
}
