//! Health checks of units, and the health that follows from their results.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use fleet_unitfile::values::{Timespan, parse_timespan, quote_word, split_words_relaxed};

/// The health check of a unit: the options `HealthCheck=`, `HealthInterval=`, `HealthTimeout=` and
/// `HealthThreshold=`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    /// The target of each attempt.
    pub target: HealthTarget,
    /// Time between the end of one attempt and the next attempt; see [`Self::INTERVALS`].
    pub interval: Duration,
    /// Time after which an attempt fails; see [`Self::TIMEOUTS`].
    pub timeout: Duration,
    /// Number of consecutive failures after which the unit is unhealthy; at least 1.
    pub threshold: u32,
}

/// Target of a health check. The check runs on the machine of the unit.
///
/// `Display` writes the target as in a unit file, except that percent signs are not doubled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HealthTarget {
    /// A GET request over HTTP, which succeeds with status 200 to 399.
    Http {
        /// Name or address. An IPv6 address has no brackets here.
        host: String,
        /// TCP port.
        port: u16,
        /// Path with query. It begins with a slash.
        path: String,
    },
    /// A TCP connection, which succeeds once it is established.
    Tcp {
        /// Name or address. An IPv6 address has no brackets here.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// A command without shell, which succeeds with exit status 0.
    Exec {
        /// The program, then its arguments. The program is an absolute path, or a name that is
        /// searched for in `PATH`.
        argv: Vec<String>,
    },
}

/// Error in a [`HealthCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HealthCheckError {
    /// The kind of check is unknown.
    #[error("it begins with neither http://, tcp:// nor exec:")]
    Kind,
    /// The check would need TLS.
    #[error("a check cannot use TLS")]
    Tls,
    /// The host is missing or invalid.
    #[error("it has no valid host")]
    Host,
    /// The port is missing or invalid.
    #[error("it has no valid port")]
    Port,
    /// The path contains a character that a URL cannot contain.
    #[error("its path has a character that URLs do not allow")]
    Path,
    /// The command cannot be split into words.
    #[error("its command has an unclosed quote or an invalid escape")]
    Words,
    /// The program is missing, has a relative path, or has a prefix as in `ExecStart=`.
    #[error("its program is neither an absolute path nor a name")]
    Program,
    /// The text is not a time span.
    #[error("it is not a time span")]
    Timespan,
    /// The interval is too short or too long.
    #[error("it is not from 1s to 1h")]
    Interval,
    /// The timeout is zero or too long.
    #[error("it is not from 1ms to 1h")]
    Timeout,
    /// The threshold is not a number of at least 1.
    #[error("it is not a whole number of at least 1")]
    Threshold,
}

/// Health of an active unit with a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// No check has succeeded since the unit's start, and fewer than the threshold have failed.
    Starting,
    /// A check has succeeded, and fewer than the threshold have failed since.
    Healthy,
    /// At least as many checks as the threshold have failed in a row.
    Unhealthy {
        /// The failure that reached the threshold. Later failures do not change it, so that an
        /// unhealthy unit causes no further writes.
        message: String,
    },
}

/// Derives the health of one run of a unit from the results of its checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthTracker {
    threshold: u32,
    /// Number of failures since the last success.
    failures: u32,
    health: Health,
}

impl HealthCheck {
    /// The allowed intervals.
    pub const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=LONGEST;
    /// The allowed timeouts.
    pub const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;

    /// Creates a check with the default interval (10s), timeout (5s) and threshold (3).
    #[must_use]
    pub fn new(target: HealthTarget) -> Self {
        let (interval, timeout) = (Duration::from_secs(10), Duration::from_secs(5));
        Self { target, interval, timeout, threshold: 3 }
    }

    /// Checks a health check that was not parsed but built as a value.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn validate(&self) -> Result<(), HealthCheckError> {
        let written: HealthTarget = self.target.to_string().parse()?;
        match self {
            _ if written != self.target => Err(HealthCheckError::Kind),
            _ if !Self::INTERVALS.contains(&self.interval) => Err(HealthCheckError::Interval),
            _ if !Self::TIMEOUTS.contains(&self.timeout) => Err(HealthCheckError::Timeout),
            _ if self.threshold == 0 => Err(HealthCheckError::Threshold),
            _ => Ok(()),
        }
    }

    /// Parses a `HealthInterval=`.
    pub(crate) fn parse_interval(text: &str) -> Result<Duration, HealthCheckError> {
        let interval = parse_duration(text)?.filter(|it| Self::INTERVALS.contains(it));
        interval.ok_or(HealthCheckError::Interval)
    }

    /// Parses a `HealthTimeout=`.
    pub(crate) fn parse_timeout(text: &str) -> Result<Duration, HealthCheckError> {
        let timeout = parse_duration(text)?.filter(|it| Self::TIMEOUTS.contains(it));
        timeout.ok_or(HealthCheckError::Timeout)
    }

    /// Parses a `HealthThreshold=`.
    pub(crate) fn parse_threshold(text: &str) -> Result<u32, HealthCheckError> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let threshold = text.parse().ok().filter(|threshold| is_number && *threshold > 0);
        threshold.ok_or(HealthCheckError::Threshold)
    }
}

/// Longest interval and timeout. Without a limit, checks that never end could hold up all others.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Parses a time span; `None` if it is infinite.
fn parse_duration(text: &str) -> Result<Option<Duration>, HealthCheckError> {
    parse_timespan(text).map(Timespan::as_duration).map_err(|_| HealthCheckError::Timespan)
}

impl HealthTarget {
    const HTTP: &str = "http://";
    const TCP: &str = "tcp://";
    const EXEC: &str = "exec:";

    /// Splits the command of a target into words, as for `ExecStart=`. Returns `None` for a target
    /// of another kind.
    pub(crate) fn command_words(text: &str) -> Option<Result<Vec<String>, HealthCheckError>> {
        let words = split_words_relaxed(text.strip_prefix(Self::EXEC)?);
        Some(words.map_err(|_| HealthCheckError::Words))
    }

    /// Makes a command from its words.
    pub(crate) fn from_words(argv: Vec<String>) -> Result<Self, HealthCheckError> {
        let is_program = |word: &String| match word.strip_prefix('/') {
            Some(path) => !path.is_empty(),
            None => !word.is_empty() && !word.contains('/') && !word.starts_with(PREFIXES),
        };
        match argv.first() {
            Some(program) if is_program(program) => Ok(Self::Exec { argv }),
            _ => Err(HealthCheckError::Program),
        }
    }
}

/// Prefixes of commands in `ExecStart=`, which health checks do not have.
const PREFIXES: [char; 6] = ['-', '@', '+', '!', ':', '|'];

impl FromStr for HealthTarget {
    type Err = HealthCheckError;

    /// Parses a `HealthCheck=`, without specifiers.
    fn from_str(text: &str) -> Result<Self, HealthCheckError> {
        if let Some(words) = Self::command_words(text) {
            return Self::from_words(words?);
        }
        if let Some(address) = text.strip_prefix(Self::TCP) {
            let (host, port) = parse_address(address, None)?;
            return Ok(Self::Tcp { host, port });
        }
        let Some(url) = text.strip_prefix(Self::HTTP) else {
            let is_tls = text.starts_with("https:");
            return Err(if is_tls { HealthCheckError::Tls } else { HealthCheckError::Kind });
        };
        let (address, path) = url.split_at(url.find(['/', '?', '#']).unwrap_or(url.len()));
        let (host, port) = parse_address(address, Some(HTTP_PORT))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        match path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            true => Ok(Self::Http { host, port, path }),
            false => Err(HealthCheckError::Path),
        }
    }
}

/// Port of HTTP without an explicit port.
const HTTP_PORT: u16 = 80;

/// Parses `HOST:PORT`, with an IPv6 address in brackets.
fn parse_address(text: &str, default: Option<u16>) -> Result<(String, u16), HealthCheckError> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => {
            let (host, rest) = text.split_once(']').ok_or(HealthCheckError::Host)?;
            host.parse::<Ipv6Addr>().map_err(|_| HealthCheckError::Host)?;
            (host, rest)
        }
        None => {
            let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_valid) {
                return Err(HealthCheckError::Host);
            }
            (host, rest)
        }
    };
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => default,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok(),
        _ => None,
    };
    let port = port.filter(|port| *port > 0).ok_or(HealthCheckError::Port)?;
    Ok((host.to_owned(), port))
}

impl fmt::Display for HealthTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |host: &str| match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        match self {
            Self::Http { host, port, path } => {
                write!(f, "{}{}:{port}{path}", Self::HTTP, bracketed(host))
            }
            Self::Tcp { host, port } => write!(f, "{}{}:{port}", Self::TCP, bracketed(host)),
            Self::Exec { argv } => {
                let words: Vec<_> = argv.iter().map(|word| quote_word(word)).collect();
                write!(f, "{}{}", Self::EXEC, words.join(" "))
            }
        }
    }
}

impl HealthCheckError {
    /// Returns how to correct the health check.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::Kind => "write http://HOST:PORT/PATH, tcp://HOST:PORT or exec:COMMAND",
            Self::Tls => "run a client instead, as in exec:curl -fsSo /dev/null https://HOST/",
            Self::Host => "write a name or an address, as in tcp://127.0.0.1:80 or tcp://[::1]:80",
            Self::Port => "write a number from 1 to 65535, as in tcp://127.0.0.1:5432",
            Self::Path => "encode each such character, as %%20 for a blank",
            Self::Words => "close each quote, and double each backslash",
            Self::Program => "write a command without prefixes, as in exec:/usr/bin/pg_isready -q",
            Self::Timespan | Self::Interval => "write a time span such as 10s or 1min 30s",
            Self::Timeout => "write a time span such as 5s or 500ms",
            Self::Threshold => "write a number such as 3",
        }
    }
}

impl Health {
    /// Returns the state as one word: `starting`, `healthy` or `unhealthy`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Unhealthy { .. } => "unhealthy",
        }
    }
}

impl HealthTracker {
    /// Creates the tracker of a run that has just begun. `threshold` is the number of consecutive
    /// failures that make the unit unhealthy; 0 counts as 1.
    #[must_use]
    pub const fn new(threshold: u32) -> Self {
        Self { threshold, failures: 0, health: Health::Starting }
    }

    /// Returns the current health.
    #[must_use]
    pub const fn health(&self) -> &Health {
        &self.health
    }

    /// Takes the result of a check into account, and returns the health after it. The error of a
    /// failed check is its message.
    pub fn observe(&mut self, result: Result<(), String>) -> &Health {
        match result {
            Ok(()) => {
                self.failures = 0;
                self.health = Health::Healthy;
            }
            Err(message) => {
                self.failures = self.failures.saturating_add(1);
                let is_unhealthy = matches!(self.health, Health::Unhealthy { .. });
                if self.failures >= self.threshold && !is_unhealthy {
                    self.health = Health::Unhealthy { message };
                }
            }
        }
        &self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_parse_or_fail() {
        use HealthCheckError as E;
        let cases = [
            ("http://127.0.0.1:8080/healthz", Ok("http://127.0.0.1:8080/healthz")),
            ("http://localhost", Ok("http://localhost:80/")),
            ("http://[::1]:8080?q=1", Ok("http://[::1]:8080/?q=1")),
            ("tcp://[::1]:53", Ok("tcp://[::1]:53")),
            ("tcp://db-1.example_net:5432", Ok("tcp://db-1.example_net:5432")),
            ("exec:true", Ok("exec:true")),
            (r#"exec:/bin/sh -c "a 'b' \\." ;"#, Ok(r#"exec:/bin/sh -c "a \'b\' \\." ";""#)),
            (r"exec: grep a\.b", Ok(r#"exec:grep "a\\.b""#)),
            ("", Err(E::Kind)),
            ("127.0.0.1:80", Err(E::Kind)),
            ("HTTP://a/", Err(E::Kind)),
            ("https://a/", Err(E::Tls)),
            ("http:///", Err(E::Host)),
            ("http://user@a/", Err(E::Host)),
            ("http://[a]/", Err(E::Host)),
            ("http://[::1/", Err(E::Host)),
            ("http://a b/", Err(E::Host)),
            ("tcp://a", Err(E::Port)),
            ("tcp://a:", Err(E::Port)),
            ("tcp://a:0", Err(E::Port)),
            ("tcp://a:65536", Err(E::Port)),
            ("tcp://a:+1", Err(E::Port)),
            ("tcp://[::1]8", Err(E::Port)),
            ("tcp://a:1/", Err(E::Port)),
            ("http://a/b c", Err(E::Path)),
            ("http://a/#b", Err(E::Path)),
            ("http://a/é", Err(E::Path)),
            ("exec:'a", Err(E::Words)),
            ("exec:", Err(E::Program)),
            ("exec:/", Err(E::Program)),
            ("exec:bin/a", Err(E::Program)),
            ("exec:-/bin/a", Err(E::Program)),
            ("exec:+a", Err(E::Program)),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<HealthTarget>();
            let written = parsed.clone().map(|target| target.to_string());
            assert_eq!(written, expected.map(str::to_owned), "{text}");
            if let Ok(target) = parsed {
                assert_eq!(target.to_string().parse(), Ok(target), "{text}");
            }
        }
    }

    #[test]
    fn health_follows_consecutive_failures() {
        // `+` is a success, and the number is that of a failure. The health follows each result.
        let cases = [
            (3, "", ""),
            (3, "123456", "SSUUUU 3"),
            (3, "+123+", "HHHUH"),
            (3, "12+12+12+", "SSHHHHHHH"),
            (1, "1+2+", "UHUH"),
            (1, "12", "UU 1"),
            (0, "1+", "UH"),
            (2, "1+23+45", "SHHUHHU 5"),
        ];
        for (threshold, results, expected) in cases {
            let mut tracker = HealthTracker::new(threshold);
            assert_eq!(*tracker.health(), Health::Starting);
            let mut seen = String::new();
            for result in results.chars() {
                let result = if result == '+' { Ok(()) } else { Err(result.to_string()) };
                let word = tracker.observe(result).as_str();
                seen.push_str(match word {
                    "starting" => "S",
                    "healthy" => "H",
                    _ => "U",
                });
            }
            if let Health::Unhealthy { message } = tracker.health() {
                seen.push_str(&format!(" {message}"));
            }
            assert_eq!(seen, expected, "{threshold}: {results}");
        }
    }
}
