//! How many cases the properties are tested with.

use proptest::test_runner::Config;

/// So many hundred cases, of what takes a naive planner long; or as many as `PROPTEST_CASES` says.
pub(crate) fn few_cases(hundreds: u32) -> Config {
    let many = cases(1);
    let cases = if many.cases == 1000 { hundreds * 100 } else { many.cases };
    Config { cases, ..many }
}

/// So many thousand cases, or as many as `PROPTEST_CASES` says.
#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says how long")]
pub(crate) fn cases(thousands: u32) -> Config {
    let config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return config;
    }
    Config { cases: thousands * 1000, ..config }
}
