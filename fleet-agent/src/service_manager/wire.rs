//! Serialised forms of types without their own, for serde's `with`.

use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{ActiveState, Epoch, Generation, KnownUnit, SystemdState, TargetState, Timestamp};
use fleet_unitfile::UnitHash;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(remote = "KnownUnit")]
pub(super) struct KnownUnitWire {
    hash: UnitHash,
    #[serde(with = "text")]
    requested: TargetState,
    #[serde(with = "EpochWire")]
    epoch: Epoch,
    #[serde(with = "GenerationWire")]
    generation: Generation,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Epoch")]
struct EpochWire(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Generation")]
struct GenerationWire(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "SystemdState")]
pub(super) struct SystemdStateWire {
    #[serde(with = "text")]
    load: LoadState,
    #[serde(with = "text")]
    active: ActiveState,
    sub: String,
    #[serde(default, with = "timestamp", skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    result: Option<String>,
    main_pid: Option<u32>,
    #[serde(with = "exit")]
    exit: Option<ExitStatus>,
    restarts: u32,
}

/// Any type by its text.
mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A time in milliseconds.
mod timestamp {
    use fleet_core::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Timestamp::as_millis).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Timestamp::from_millis))
    }
}

mod exit {
    use fleet_core::unit::ExitStatus;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "ExitStatus", rename_all = "kebab-case")]
    enum Status {
        Code(i32),
        Signal(i32),
        Unknown,
    }

    #[derive(Serialize, Deserialize)]
    struct Wire(#[serde(with = "Status")] ExitStatus);

    pub(super) fn serialize<S: Serializer>(
        exit: &Option<ExitStatus>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        exit.map(Wire).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ExitStatus>, D::Error> {
        Ok(Option::<Wire>::deserialize(from)?.map(|Wire(exit)| exit))
    }
}

/// An optional timestamp in milliseconds.
pub(super) mod millis {
    use fleet_core::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(Timestamp::as_millis).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Timestamp::from_millis))
    }
}

/// An operating system error by its number, or another error by its kind and text.
pub(super) mod io_error {
    use std::io::{Error, ErrorKind};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Wire {
        Number(i32),
        Text { kind: String, text: String },
    }

    pub(in super::super) fn serialize<S: Serializer>(
        error: &Error,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let wire = match error.raw_os_error() {
            Some(number) => Wire::Number(number),
            None => Wire::Text { kind: format!("{:?}", error.kind()), text: error.to_string() },
        };
        wire.serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Error, D::Error> {
        Ok(match Wire::deserialize(from)? {
            Wire::Number(number) => Error::from_raw_os_error(number),
            Wire::Text { kind, text } => {
                let known = KINDS.into_iter().find(|known| format!("{known:?}") == kind);
                Error::new(known.unwrap_or(ErrorKind::Other), text)
            }
        })
    }
}
