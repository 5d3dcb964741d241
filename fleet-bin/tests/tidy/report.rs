//! Findings of a rule and how a failing test prints them.

use std::fmt;

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the top of the checkout.
    pub(crate) path: String,
    /// 1-based; 0 for a whole file or folder.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    pub(crate) fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }

    pub(crate) fn whole(path: &str, what: impl Into<String>) -> Self {
        Self::at(path, 0, what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A file that may break one rule, with the reason.
pub(crate) struct Exception {
    pub(crate) path: &'static str,
    pub(crate) reason: &'static str,
}

/// Fails the test with all findings and the remedy, unless there are none.
pub(crate) fn fail_on(findings: Vec<Finding>, remedy: &str) {
    fail_on_except(findings, &[], remedy);
}

/// Like [`fail_on`], but exempts the files of `exceptions`. An unused exception is itself a
/// finding, so the list can only shrink.
pub(crate) fn fail_on_except(findings: Vec<Finding>, exceptions: &[Exception], remedy: &str) {
    let mut left: Vec<Finding> = exceptions
        .iter()
        .filter(|exception| !findings.iter().any(|finding| finding.path == exception.path))
        .map(|unused| {
            let what = format!("no longer needs its exception ({}): remove it", unused.reason);
            Finding::whole(unused.path, what)
        })
        .collect();
    left.extend(
        findings
            .into_iter()
            .filter(|finding| !exceptions.iter().any(|exception| exception.path == finding.path)),
    );
    left.sort();
    let lines: Vec<String> = left.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n\nRemedy: {remedy}\n", lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const ONE: &[Exception] = &[Exception { path: "a.rs", reason: "because" }];

    #[test]
    fn an_exception_covers_its_own_file_only() {
        fail_on_except(vec![Finding::at("a.rs", 1, "x")], ONE, "none");
        let other = vec![Finding::at("a.rs", 1, "x"), Finding::at("b.rs", 1, "x")];
        assert!(catch_unwind(|| fail_on_except(other, ONE, "none")).is_err());
    }

    #[test]
    fn an_unused_exception_is_a_finding() {
        assert!(catch_unwind(|| fail_on_except(Vec::new(), ONE, "none")).is_err());
    }
}
