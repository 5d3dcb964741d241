//! Logs of units that may not have long files: no line of its own may kill a unit.

use std::io::Write as _;

use super::outcome::RunOutcome;
use super::process::append;
use super::readiness_tests::DriverHarness;
use super::run_machine::ServiceRun;
use super::run_machine_tests::spec;
use super::run_state::{RunState, ServicePhase};
use super::unit_directory::RunRecord;

const LIMITED: &str = "ExecStart=/bin/echo up\nLimitFSIZE=64K\n";

impl DriverHarness {
    /// Has the log longer than the unit may have a file.
    fn fill(&self) {
        let text = b"sixteen letters\n".repeat(1 << 13);
        let filled = append(self.log()).and_then(|mut file| file.write_all(&text));
        filled.expect("it can be written");
        assert_eq!(self.length(), 128 << 10);
    }

    fn log(&self) -> &std::path::Path {
        self.driver.log().path()
    }

    fn length(&self) -> u64 {
        std::fs::metadata(self.log()).expect("it is there").len()
    }
}

#[tokio::test]
async fn a_unit_outlives_the_first_line_after_a_log_that_is_too_long() {
    let mut stage = DriverHarness::with(spec(LIMITED)).await;
    stage.start();
    stage.fill();
    stage.wait_for(ServicePhase::Dead).await;
    let run_state = stage.driver.service.run_state();
    assert_eq!(run_state.outcome, Some(RunOutcome::Success), "{run_state:?}");
    assert!(stage.length() < 64 << 10);
    let (text, _) = stage.driver.log().tail(Some(1), None).expect("it can be read");
    assert_eq!(text, b"up\n");
}

#[tokio::test]
async fn the_next_daemon_bounds_the_log_of_a_unit_that_runs() {
    let mut stage = DriverHarness::with(spec(LIMITED)).await;
    stage.fill();
    let service = ServiceRun::restore(spec(LIMITED), RunState::default(), stage.context.now());
    stage.driver.adopt(service, RunRecord::default(), Vec::new());
    assert!(stage.length() <= 32 << 10, "{}", stage.length());
}

#[tokio::test]
async fn a_unit_that_gets_a_limit_has_its_log_bounded_for_its_next_process() {
    let mut stage = DriverHarness::with(spec("ExecStart=/bin/echo up\n")).await;
    stage.fill();
    stage.driver.set_definition(spec(LIMITED));
    assert!(stage.length() <= 32 << 10, "{}", stage.length());
}
