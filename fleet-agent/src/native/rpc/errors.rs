//! Wire format of service manager errors, which keeps their variants.

use std::io::{Error, ErrorKind};

use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use crate::ServiceError;

/// A [`ServiceError`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ErrorWire {
    NotLoaded { unit: String },
    BadSetting { unit: String, line: usize, problem: String },
    StartFailed { unit: String, problem: String },
    NothingToTrigger { unit: String, missing: String },
    StopFailed { unit: String, problem: String },
    ReloadFailed { unit: String, problem: String },
    Io { action: String, cause: IoWire },
    Unavailable(String),
}

/// An operating system error by number, or another error by its text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IoWire {
    Number(i32),
    Text { kind: Option<String>, text: String },
}

/// Error kinds that callers may act on.
const KINDS: [ErrorKind; 10] = [
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::AlreadyExists,
    ErrorKind::InvalidData,
    ErrorKind::InvalidInput,
    ErrorKind::TimedOut,
    ErrorKind::UnexpectedEof,
    ErrorKind::BrokenPipe,
    ErrorKind::OutOfMemory,
    ErrorKind::Unsupported,
];

impl From<ServiceError> for ErrorWire {
    fn from(error: ServiceError) -> Self {
        use ServiceError as E;
        match error {
            E::NotLoaded { unit } => Self::NotLoaded { unit: unit.to_string() },
            E::BadSetting { unit, line, problem } => {
                Self::BadSetting { unit: unit.to_string(), line, problem }
            }
            E::StartFailed { unit, problem } => {
                Self::StartFailed { unit: unit.to_string(), problem }
            }
            E::NothingToTrigger { unit, missing } => {
                Self::NothingToTrigger { unit: unit.to_string(), missing }
            }
            E::StopFailed { unit, problem } => Self::StopFailed { unit: unit.to_string(), problem },
            E::ReloadFailed { unit, problem } => {
                Self::ReloadFailed { unit: unit.to_string(), problem }
            }
            E::Io { action, source } => Self::Io { action, cause: source.into() },
            E::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

impl ErrorWire {
    /// Converts the message back to the error. If the message names a unit by an invalid name, the
    /// result is [`ServiceError::Unavailable`].
    pub(crate) fn read(self) -> ServiceError {
        let result = match self {
            Self::NotLoaded { unit } => name(&unit).map(|unit| ServiceError::NotLoaded { unit }),
            Self::BadSetting { unit, line, problem } => {
                name(&unit).map(|unit| ServiceError::BadSetting { unit, line, problem })
            }
            Self::StartFailed { unit, problem } => {
                name(&unit).map(|unit| ServiceError::StartFailed { unit, problem })
            }
            Self::NothingToTrigger { unit, missing } => {
                name(&unit).map(|unit| ServiceError::NothingToTrigger { unit, missing })
            }
            Self::StopFailed { unit, problem } => {
                name(&unit).map(|unit| ServiceError::StopFailed { unit, problem })
            }
            Self::ReloadFailed { unit, problem } => {
                name(&unit).map(|unit| ServiceError::ReloadFailed { unit, problem })
            }
            Self::Io { action, cause } => Ok(ServiceError::Io { action, source: cause.into() }),
            Self::Unavailable(why) => Ok(ServiceError::Unavailable(why)),
        };
        result.unwrap_or_else(|error| error)
    }
}

fn name(text: &str) -> Result<UnitName, ServiceError> {
    let unknown = |_| ServiceError::Unavailable(format!("invalid unit name {text:?} in an error"));
    UnitName::parse(text).map_err(unknown)
}

impl From<Error> for IoWire {
    fn from(error: Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Number(number),
            None => {
                let kind = KINDS.contains(&error.kind()).then(|| format!("{:?}", error.kind()));
                Self::Text { kind, text: error.to_string() }
            }
        }
    }
}

impl From<IoWire> for Error {
    fn from(cause: IoWire) -> Self {
        match cause {
            IoWire::Number(number) => Self::from_raw_os_error(number),
            IoWire::Text { kind, text } => {
                let known = |known: &&ErrorKind| kind.as_deref() == Some(&format!("{known:?}"));
                let kind = KINDS.iter().find(known).copied();
                Self::new(kind.unwrap_or(ErrorKind::Other), text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(error: ServiceError) -> ServiceError {
        let text = serde_json::to_string(&ErrorWire::from(error)).unwrap();
        serde_json::from_str::<ErrorWire>(&text).unwrap().read()
    }

    fn all() -> Vec<ServiceError> {
        let unit = || "a.timer".parse().unwrap();
        let problem = || "no such program".to_owned();
        let of = |source| ServiceError::Io { action: "read it".to_owned(), source };
        vec![
            ServiceError::NotLoaded { unit: unit() },
            ServiceError::BadSetting { unit: unit(), line: 7, problem: problem() },
            ServiceError::StartFailed { unit: unit(), problem: problem() },
            ServiceError::NothingToTrigger { unit: unit(), missing: "a.service".to_owned() },
            ServiceError::StopFailed { unit: unit(), problem: problem() },
            ServiceError::ReloadFailed { unit: unit(), problem: problem() },
            of(Error::from_raw_os_error(28)),
            of(Error::new(ErrorKind::InvalidData, "half a line")),
            of(Error::other("no more")),
            ServiceError::Unavailable("it ended".to_owned()),
        ]
    }

    #[test]
    fn errors_round_trip() {
        for (one, other) in all().into_iter().zip(all()) {
            let read = sent(one);
            assert_eq!(format!("{read:?}"), format!("{other:?}"));
            assert_eq!(read.to_string(), other.to_string());
        }
    }
}
