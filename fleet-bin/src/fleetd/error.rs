//! Startup errors.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::ui::chain;

/// A failed action, its cause and the exit status.
#[derive(Debug)]
pub(crate) struct StartError {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    status: u8,
}

impl StartError {
    /// Creates an error with a self-explanatory message.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None, status: 1 }
    }

    /// Creates an error of the command line or the configuration.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { status: 2, ..Self::new(what) }
    }

    /// Creates an error with a cause.
    pub(crate) fn because(
        what: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { cause: Some(cause.into()), ..Self::new(what) }
    }

    /// Whether the command line or the configuration is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.status == 2
    }

    /// Returns the exit status for this error.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for StartError {
    /// Formats the error with its chain of causes on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.as_deref().map(|cause| cause as &dyn Error);
        f.write_str(&chain::in_one_line(&self.what, cause))
    }
}

/// Adds the failed action to an error.
pub(crate) trait Context<T> {
    /// Adds the action, for example `cannot open the store`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|cause| StartError { what: what(), cause: Some(cause.into()), status: 1 })
    }
}
