//! What a process is given before its program begins, and what it is told that failed of that.

use fleet_core::graph::Shown;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::graph::{SLEEP, Stand, supervised};
use crate::support::{Bench, Home};

#[tokio::test]
async fn a_pipe_in_a_file_of_units_keeps_nobody_waiting() {
    let home = Home::new();
    let pipe = home.path("pipe").display().to_string();
    mknodat(CWD, &*pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be made");
    // As many as there are threads, and more.
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
        let is_failed =
            |unit: &fleet_agent::UnitStatus| matches!(unit.state.what, Shown::Failed { .. });
        let unit = stand.wait_for(&format!("u{at}"), is_failed).await;
        let problem = unit.problem.expect("it is told");
        assert!(problem.contains(&pipe), "{key}: {problem}");
    }
    stand.clean_up().await;
}

#[tokio::test]
async fn each_process_has_a_session_of_its_own() {
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
                [2, 3, 4].map(|at| fields.split(' ').nth(at).expect("it has so many"));
            let own = pid.to_string();
            assert_eq!([group, session, terminal], [&own, &own, "0"], "{more}: {stat}");
            bench.stop("a.service").await;
        }
        bench.clean_up().await;
    }
}

#[tokio::test]
async fn what_fails_before_the_program_begins_is_not_called_the_programs_fault() {
    let bench = Bench::new().await;
    // More than the kernel has for anybody.
    let mut settings = vec![("LimitNOFILE=1000000000\n", "set its limits")];
    if rustix::process::geteuid().is_root() {
        settings.push(("User=nobody\nWorkingDirectory=/root\n", "enter its working directory"));
    } else {
        settings.push(("Nice=-5\n", "set its nice level to -5"));
    }
    for (setting, words) in settings {
        let service = format!("ExecStart=/bin/sleep 1000\n{setting}");
        bench.load("a.service", &service).await;
        let error = bench.start("a.service").await.expect_err("it cannot be given that");
        let said = error.to_string();
        assert!(said.contains(words) && !said.contains("cannot run"), "{setting}: {said}");
    }
    bench.clean_up().await;
}
