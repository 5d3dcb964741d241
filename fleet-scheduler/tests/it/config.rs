//! The number of cases of the property tests.

use proptest::test_runner::Config;

/// Configures this many cases, or the number in `PROPTEST_CASES`. It suits tests in which each case
/// is slow.
pub(crate) fn single_cases(cases: u32) -> Config {
    configure(cases)
}

/// Configures this many hundred cases, or the number in `PROPTEST_CASES`. It suits tests in which
/// the naive planner is slow.
pub(crate) fn few_cases(hundreds: u32) -> Config {
    configure(hundreds * 100)
}

/// Configures this many thousand cases, or the number in `PROPTEST_CASES`.
pub(crate) fn cases(thousands: u32) -> Config {
    configure(thousands * 1000)
}

/// `FLEET_FEWER_CASES=10` configures a tenth of the cases.
#[expect(clippy::disallowed_methods, reason = "the environment sets the number of cases")]
fn configure(cases: u32) -> Config {
    let config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return config;
    }
    let divisor = std::env::var("FLEET_FEWER_CASES").map_or(1, |text| text.parse().unwrap());
    Config { cases: cases / divisor, ..config }
}
