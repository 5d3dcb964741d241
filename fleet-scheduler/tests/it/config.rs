//! The number of cases of the property tests.

use proptest::test_runner::Config;

/// Configures this many hundred cases, or the number in `PROPTEST_CASES`. It suits tests in which
/// the naive planner is slow.
pub(crate) fn few_cases(hundreds: u32) -> Config {
    let many = cases(1);
    let cases = if many.cases == 1000 { hundreds * 100 } else { many.cases };
    Config { cases, ..many }
}

/// Configures this many thousand cases, or the number in `PROPTEST_CASES`.
#[expect(clippy::disallowed_methods, reason = "the environment sets the number of cases")]
pub(crate) fn cases(thousands: u32) -> Config {
    let config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return config;
    }
    Config { cases: thousands * 1000, ..config }
}
