//! Times of the API, as text in RFC 3339.

use std::fmt;
use std::str::FromStr;

use fleet_core::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// A time by the clock of the machine that recorded it. Its JSON form is RFC 3339 in UTC, in
/// milliseconds, such as `2026-11-25T10:00:00.000Z`.
///
/// ```
/// use fleet_http::wire::Time;
///
/// let time: Time = "2026-11-25T10:00:00+01:00".parse()?;
/// assert_eq!(time.to_string(), "2026-11-25T09:00:00.000Z");
/// # Ok::<(), fleet_http::wire::TimeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// Returns the time as a timestamp with its origin in 1970 (UTC).
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        self.0
    }

    /// Returns the milliseconds since 1970 (UTC).
    #[must_use]
    pub fn as_millis(self) -> u64 {
        self.0.as_millis()
    }
}

impl From<Timestamp> for Time {
    /// Converts a timestamp with its origin in 1970 (UTC).
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp)
    }
}

impl fmt::Display for Time {
    /// Writes RFC 3339. A time after the year 9999 is written as the last one of that year.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.as_millis()).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

/// Error for a text that is no time of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not a time: write RFC 3339, such as 2026-11-25T10:00:00Z")]
pub struct TimeError {
    input: String,
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let error = || TimeError { input: text.to_owned() };
        let time: jiff::Timestamp = text.parse().map_err(|_| error())?;
        let millis = u64::try_from(time.as_millisecond()).map_err(|_| error())?;
        Ok(Self(Timestamp::from_millis(millis)))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl ToSchema for Time {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_and_read_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_764_212_400_001, "2025-11-27T03:00:00.001Z"),
            (u64::MAX, "9999-12-30T22:00:00.999Z"),
        ] {
            let time = Time::from(Timestamp::from_millis(millis));
            assert_eq!(serde_json::to_value(time).unwrap(), text);
            let read: Time = serde_json::from_value(text.into()).unwrap();
            assert_eq!(read.to_string(), text);
        }
        for bad in ["", "yesterday", "2026-11-25", "1969-12-31T23:59:59Z"] {
            assert_eq!(bad.parse::<Time>().unwrap_err().input, bad);
        }
    }
}
