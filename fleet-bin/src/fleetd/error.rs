//! Why a daemon could not start, in words for the person who started it.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::chain;

/// What was attempted, why it failed, and the exit status that says so.
#[derive(Debug)]
pub(crate) struct StartError {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    status: u8,
}

impl StartError {
    /// A failure that the message explains by itself.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None, status: 1 }
    }

    /// The request itself is wrong: what was typed, or a configuration.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { status: 2, ..Self::new(what) }
    }

    /// A failure that something else explains.
    pub(crate) fn because(
        what: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { cause: Some(cause.into()), ..Self::new(what) }
    }

    /// Whether the request itself is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.status == 2
    }

    /// The exit status of a daemon that ends with this error.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for StartError {
    /// The whole chain of causes, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.as_deref().map(|cause| cause as &dyn Error);
        f.write_str(&chain::in_one_line(&self.what, cause))
    }
}

/// Says what was attempted when it fails.
pub(crate) trait Context<T> {
    /// Names the attempt, for example `cannot open the store`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|cause| StartError { what: what(), cause: Some(cause.into()), status: 1 })
    }
}
