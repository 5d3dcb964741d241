//! The environment of a process before its program runs, and errors in setting it up.

use std::os::unix::fs::PermissionsExt as _;

use fleet_core::graph::DerivedState;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::graph::{SLEEP, Stand, supervised};
use crate::support::{Bench, Home};

#[tokio::test]
async fn fifo_in_a_unit_file_blocks_no_other_unit() {
    let home = Home::new();
    let pipe = home.path("pipe").display().to_string();
    mknodat(CWD, &*pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be created");
    // At least as many units as there are threads.
    let keys = ["env-file: ", "output: append:", "output: file:", "error-output: truncate:"];
    let mut stanzas = supervised("works", SLEEP);
    for (at, key) in keys.iter().enumerate() {
        let more = format!("{key}{pipe}\nrestart: never\nexec-start: /bin/sleep 1000\n");
        stanzas += &supervised(&format!("u{at}"), &more);
    }
    stanzas += "unit: all\ntype: virtual\nprovides: all\nwaits-for: u0, u1, u2, u3, works\n";
    let stand = Stand::new(&stanzas, "all").await;
    stand.running("works").await;
    for (at, key) in keys.iter().enumerate() {
        let is_failed = |unit: &fleet_agent::native::UnitSnapshot| {
            matches!(unit.report.state, DerivedState::Failed { .. })
        };
        let unit = stand.wait_for(&format!("u{at}"), is_failed).await;
        let problem = unit.problem.expect("it is reported");
        assert!(problem.contains(&pipe), "{key}: {problem}");
    }
    stand.clean_up().await;
}

#[tokio::test]
async fn each_process_has_its_own_session() {
    for control_groups in [true, false] {
        let bench = Bench::with(|config| config.control_groups = control_groups).await;
        for more in ["", "UMask=0022\n", "User=root\n"] {
            if more.contains("User=") && !rustix::process::geteuid().is_root() {
                continue;
            }
            let service = format!("ExecStart=/bin/sleep 1000\n{more}");
            bench.run("a.service", &service).await;
            let pid = bench.pid("a.service").await;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
            let (_, fields) = stat.rsplit_once(") ").expect("the name is in brackets");
            let [group, session, terminal] =
                [2, 3, 4].map(|at| fields.split(' ').nth(at).expect("it has this many"));
            let own = pid.to_string();
            assert_eq!([group, session, terminal], [&own, &own, "0"], "{more}: {stat}");
            bench.stop("a.service").await;
        }
        bench.clean_up().await;
    }
}

#[tokio::test]
async fn exec_failure_is_told_apart_from_program_failure() {
    let bench = Bench::new().await;
    let service =
        format!("ExecStart=/bin/sleep 1000\nWorkingDirectory=/root\n{}", unprivileged_user());
    bench.load("a.service", &service).await;
    let error =
        bench.start("a.service").await.expect_err("the directory is not accessible").to_string();
    let words = "enter its working directory";
    assert!(error.contains(words) && !error.contains("cannot run"), "{error}");
    bench.clean_up().await;
}

/// Returns the option that makes the unit unprivileged.
fn unprivileged_user() -> &'static str {
    if rustix::process::geteuid().is_root() { "User=nobody\n" } else { "" }
}

/// Returns a value that the kernel shows for a process, from a line of a file in `/proc`.
fn proc_value(pid: u32, file: &str, line: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it runs");
    let proc_value = text.lines().find_map(|text| text.strip_prefix(line)).expect("it is reported");
    proc_value.trim().to_owned()
}

/// Returns whether the process ignores `SIGPIPE`.
fn ignores_sigpipe(pid: u32) -> bool {
    let ignored = u64::from_str_radix(&proc_value(pid, "status", "SigIgn:"), 16);
    ignored.expect("it is a number") & 1 << 12 != 0
}

#[tokio::test]
async fn unit_files_have_the_defaults_of_systemd() {
    let bench = Bench::new().await;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = limit.expect("every process has one").to_string();
    bench.run("a.service", "ExecStart=/bin/sleep 1000\nLimitNOFILE=infinity\n").await;
    let pid = bench.pid("a.service").await;
    assert!(ignores_sigpipe(pid));
    assert_eq!(proc_value(pid, "status", "Umask:"), "0022");
    // No process can be unlimited; `infinity` gives the maximum.
    let limits = proc_value(pid, "limits", "Max open files");
    let limits: Vec<&str> = limits.split_whitespace().take(2).collect();
    assert_eq!(limits, [&limit, &limit]);
    bench.stop("a.service").await;
    bench.run("a.service", "ExecStart=/bin/sleep 1000\nIgnoreSIGPIPE=no\n").await;
    assert!(!ignores_sigpipe(bench.pid("a.service").await));
    bench.clean_up().await;
}

#[tokio::test]
async fn stanza_ignores_sigpipe_only_on_request() {
    let mut stanzas = supervised("heeds", SLEEP);
    stanzas += &supervised("ignores", &format!("{SLEEP}ignore-sigpipe: yes\n"));
    stanzas += "unit: all\ntype: virtual\nprovides: all\nwaits-for: heeds, ignores\n";
    let stand = Stand::new(&stanzas, "all").await;
    for (unit, expected) in [("heeds", false), ("ignores", true)] {
        assert_eq!(ignores_sigpipe(stand.running(unit).await), expected, "{unit}");
    }
    stand.clean_up().await;
}

#[tokio::test]
async fn output_file_permissions_follow_the_umask() {
    let bench = Bench::new().await;
    for (mask, expected) in [("0077", 0o600), ("0", 0o666), ("0137", 0o640)] {
        let file = bench.path(mask).display().to_string();
        let service = format!("Type=oneshot\nExecStart=/bin/true\nUMask={mask}\n");
        bench.run("a.service", &format!("{service}StandardOutput=append:{file}\n")).await;
        let mode = std::fs::metadata(&file).expect("it is created").permissions().mode();
        assert_eq!(mode & 0o777, expected, "{mask}");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn optional_directory_without_access_is_the_root() {
    let bench = Bench::new().await;
    let service =
        format!("ExecStart=/bin/sleep 1000\nWorkingDirectory=-/root\n{}", unprivileged_user());
    bench.run("a.service", &service).await;
    let pid = bench.pid("a.service").await;
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs");
    assert_eq!(directory, std::path::Path::new("/"));
    bench.clean_up().await;
}

#[tokio::test]
async fn program_name_may_be_a_variable() {
    let bench = Bench::new().await;
    let out = bench.path("out").display().to_string();
    let service = format!("ExecStart=@/bin/sh ${{A}} -c 'echo $$0 >{out}'\nEnvironment='A=x y'\n");
    bench.run("a.service", &format!("Type=oneshot\n{service}")).await;
    assert_eq!(std::fs::read_to_string(out).expect("it is written"), "x y\n");
    bench.clean_up().await;
}

#[tokio::test]
async fn forking_program_gets_its_pid_file_path() {
    let bench = Bench::new().await;
    let file = bench.path("pid").display().to_string();
    let service = format!(
        "Type=forking\nPIDFile={file}\n\
         ExecStart=/bin/sh -c '/bin/sleep 1000 & echo $$! > $$PIDFILE'\n"
    );
    bench.run("a.service", &service).await;
    let written = std::fs::read_to_string(&file).expect("it is written");
    assert_eq!(written.trim(), bench.pid("a.service").await.to_string());
    bench.clean_up().await;
}
