//! A connection to systemd over D-Bus, and the calls made on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fleet_unitfile::UnitName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::{OnceCell, Semaphore, watch};
use zbus::connection::Builder;
use zbus::message::Sequence;
use zbus::wire::{OwnedVariant, Type};
use zbus::{Connection, DBusError as _, DynamicType, Message, MessageStream, OwnedObjectPath};

use super::SystemdConfig;
use crate::Clock;

const NAME: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const BUS: &str = "org.freedesktop.DBus";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(crate) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(crate) const JOB: &str = "org.freedesktop.systemd1.Job";

/// Timeout of a call. Reloading all unit files takes the longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit on concurrent calls. The bus allows 128 per connection, and refuses more.
const MAX_CONCURRENT: usize = 64;

/// Match rules: signals of systemd, and the loss of its bus name.
const SIGNALS: [&str; 3] = [
    "type='signal',sender='org.freedesktop.systemd1',\
     interface='org.freedesktop.systemd1.Manager',path='/org/freedesktop/systemd1'",
    "type='signal',sender='org.freedesktop.systemd1',\
     interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',\
     path_namespace='/org/freedesktop/systemd1/unit'",
    "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
     member='NameOwnerChanged',arg0='org.freedesktop.systemd1'",
];

/// Error of a call.
#[derive(Debug, Clone)]
pub(crate) enum CallError {
    /// systemd has refused the call.
    Refused {
        /// D-Bus name of the error.
        name: String,
        /// Message of systemd, for people.
        message: String,
    },
    /// The outcome is unknown: systemd may have received the call or not.
    Lost(String),
}

impl CallError {
    pub(crate) fn is_named(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name == wanted)
    }

    pub(crate) fn no_such_unit(&self) -> bool {
        self.is_named("org.freedesktop.systemd1.NoSuchUnit")
    }
}

/// A connection to one systemd instance.
pub(crate) struct Bus {
    connection: Connection,
    clock: Arc<dyn Clock>,
    calls: Semaphore,
    unit_path: OnceCell<Vec<PathBuf>>,
    /// Set once systemd no longer responds on this connection.
    abandoned: watch::Sender<bool>,
}

/// A unit as systemd lists it: name, description, load state, active state, sub state, followed
/// unit, and object path. The last three fields are the ID, type and object path of the unit's job.
type UnitListEntry =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// The three states of a unit, and its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct States {
    pub(crate) name: String,
    pub(crate) load: String,
    pub(crate) active: String,
    pub(crate) sub: String,
    /// Type of the unit's job, for example `stop`. Empty if the unit has none.
    pub(crate) job: String,
}

/// A change of links: `symlink` or `unlink`, the link, its target.
pub(crate) type LinkChange = (String, String, String);

impl Bus {
    /// Connects and subscribes to signals. The stream has every message from then on.
    pub(crate) async fn open(config: &SystemdConfig) -> Result<(Self, MessageStream), CallError> {
        let socket = UnixStream::connect(&config.socket).await;
        let lost = |error: std::io::Error| {
            CallError::Lost(format!("cannot connect to {}: {error}", config.socket.display()))
        };
        let socket = socket.map_err(lost)?;
        let builder = Builder::unix_stream(socket.into_std().map_err(lost)?);
        let connection = builder.build().await.map_err(failed)?;
        let signals = MessageStream::from(&connection);
        let bus = Self {
            connection,
            clock: Arc::clone(&config.clock),
            calls: Semaphore::new(MAX_CONCURRENT),
            unit_path: OnceCell::new(),
            abandoned: watch::Sender::new(false),
        };
        bus.subscribe().await?;
        Ok((bus, signals))
    }

    async fn subscribe(&self) -> Result<(), CallError> {
        for rule in SIGNALS {
            let path = "/org/freedesktop/DBus";
            let sent = self.connection.call_method(Some(BUS), path, Some(BUS), "AddMatch", &rule);
            self.answer(sent).await?;
        }
        match self.manager::<_, ()>("Subscribe", &()).await {
            Err(error) if !error.is_named("org.freedesktop.systemd1.AlreadySubscribed") => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Calls a method of systemd's manager object.
    pub(crate) async fn manager<B, R>(&self, method: &str, body: &B) -> Result<R, CallError>
    where
        B: Serialize + DynamicType,
        R: DeserializeOwned + Type,
    {
        self.call(OBJECT, MANAGER, method, body).await
    }

    /// Reads a property of an object.
    pub(crate) async fn property<T>(
        &self,
        path: &str,
        interface: &str,
        name: &str,
    ) -> Result<T, CallError>
    where
        T: TryFrom<OwnedVariant>,
    {
        let method = "org.freedesktop.DBus.Properties";
        let value: OwnedVariant = self.call(path, method, "Get", &(interface, name)).await?;
        let odd = || CallError::Lost(format!("{name} of {path} has an unexpected type"));
        value.try_into().map_err(|_| odd())
    }

    /// Returns the directories that systemd searches for unit files.
    pub(crate) async fn unit_path(&self) -> Result<&[PathBuf], CallError> {
        let folders = self.unit_path.get_or_try_init(async || {
            let folders: Vec<String> = self.property(OBJECT, MANAGER, "UnitPath").await?;
            Ok(folders.into_iter().map(PathBuf::from).collect())
        });
        folders.await.map(Vec::as_slice)
    }

    /// Returns the states of units, by their names in systemd. systemd loads units that are not in
    /// memory.
    pub(crate) async fn states(&self, units: &[&str]) -> Result<Vec<States>, CallError> {
        let listed: Vec<UnitListEntry> = self.manager("ListUnitsByNames", &units).await?;
        let states = listed.into_iter().map(|(name, _, load, active, sub, _, _, _, job, _)| {
            States { name, load, active, sub, job }
        });
        Ok(states.collect())
    }

    /// Returns the object path of a unit that systemd has in memory, by its name in systemd; `None`
    /// if systemd has not loaded the unit.
    pub(crate) async fn loaded_path(&self, unit: &str) -> Result<Option<String>, CallError> {
        match self.manager::<_, OwnedObjectPath>("GetUnit", &unit).await {
            Ok(path) => Ok(Some(path.to_string())),
            Err(error) if error.no_such_unit() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Requests a job for a unit; returns the job's path.
    pub(crate) async fn job(&self, method: &str, unit: &UnitName) -> Result<String, CallError> {
        let unit = unit.systemd_name();
        let path: OwnedObjectPath = self.manager(method, &(unit.as_str(), "replace")).await?;
        Ok(path.to_string())
    }

    /// Makes systemd forget the failure of a unit.
    pub(crate) async fn reset_failed(&self, unit: &UnitName) -> Result<(), CallError> {
        self.manager("ResetFailedUnit", &unit.systemd_name().as_str()).await
    }

    /// Pings systemd, and returns the position of the response among all received messages. The
    /// signals of everything that systemd did before have earlier positions.
    pub(crate) async fn barrier(&self) -> Result<Sequence, CallError> {
        let peer = Some("org.freedesktop.DBus.Peer");
        let pong = self.connection.call_method(Some(NAME), OBJECT, peer, "Ping", &());
        self.answer(pong).await.map(|pong| pong.recv_position())
    }

    async fn call<B, R>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<R, CallError>
    where
        B: Serialize + DynamicType,
        R: DeserializeOwned + Type,
    {
        let _permit = self.calls.acquire().await;
        let reply = self.connection.call_method(Some(NAME), path, Some(interface), method, body);
        self.answer(reply).await?.body().deserialize().map_err(failed)
    }

    /// Ends all calls in progress, whose responses may never arrive: a re-executed systemd does not
    /// know the calls to its predecessor.
    pub(crate) fn abandon(&self) {
        self.abandoned.send_replace(true);
    }

    /// Waits for a response, up to [`CALL_TIMEOUT`], unless the connection is abandoned. The
    /// timeout of the D-Bus library is not used,
    /// because it would need a kernel timer for each call.
    async fn answer(
        &self,
        reply: impl Future<Output = zbus::Result<Message>>,
    ) -> Result<Message, CallError> {
        let mut abandoned = self.abandoned.subscribe();
        tokio::select! {
            biased;
            reply = reply => reply.map_err(failed),
            _ = abandoned.wait_for(|abandoned| *abandoned) => {
                Err(CallError::Lost("the connection to systemd was lost".to_owned()))
            }
            () = self.clock.sleep(CALL_TIMEOUT) => {
                Err(CallError::Lost(format!("no response after {CALL_TIMEOUT:?}")))
            }
        }
    }
}

/// Returns the object path of a unit.
pub(crate) fn unit_path(unit: &UnitName) -> String {
    object_path(unit.systemd_name().as_str())
}

/// Returns the object path of the unit with this name in systemd.
pub(crate) fn object_path(unit: &str) -> String {
    let mut path = format!("{OBJECT}/unit/");
    for (index, byte) in unit.bytes().enumerate() {
        let plain = byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit());
        if plain {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

/// Names of D-Bus errors that come from the bus or from a lost connection, and not from systemd.
const CONNECTION_ERRORS: [&str; 8] = [
    "org.freedesktop.DBus.Error.Disconnected",
    "org.freedesktop.DBus.Error.LimitsExceeded",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.NoServer",
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.TimedOut",
    "org.freedesktop.DBus.Error.Timeout",
];

fn failed(error: zbus::Error) -> CallError {
    let (name, message) = match &error {
        zbus::Error::MethodError(name, message, _) => (name.to_string(), message.clone()),
        zbus::Error::FDO(error) => {
            (error.name().to_string(), error.description().map(str::to_owned))
        }
        other => return CallError::Lost(other.to_string()),
    };
    classify(name, message)
}

/// Distinguishes a refusal of systemd from an error of the connection, by the name of the error.
fn classify(name: String, message: Option<String>) -> CallError {
    let message = message.filter(|message| !message.is_empty()).unwrap_or_else(|| name.clone());
    // The bus cannot start systemd, which it reports with errors of a family of their own.
    let unanswered = CONNECTION_ERRORS.contains(&name.as_str()) || name.contains(".Spawn.");
    if unanswered { CallError::Lost(message) } else { CallError::Refused { name, message } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_connection_leave_the_outcome_open() {
        let of = |name: &str| classify(name.to_owned(), Some("it says so".to_owned()));
        for name in CONNECTION_ERRORS.into_iter().chain(["org.freedesktop.DBus.Error.Spawn.Failed"])
        {
            assert!(matches!(of(name), CallError::Lost(_)), "{name}");
        }
        for name in [
            "org.freedesktop.DBus.Error.AccessDenied",
            "org.freedesktop.DBus.Error.InvalidArgs",
            "org.freedesktop.systemd1.NoSuchUnit",
            "org.freedesktop.systemd1.UnitMasked",
        ] {
            assert!(matches!(of(name), CallError::Refused { .. }), "{name}");
        }
    }

    #[test]
    fn unit_names_map_to_object_paths() {
        let rows = [
            ("a.service", "/org/freedesktop/systemd1/unit/a_2eservice"),
            ("7-b@x_y.timer", "/org/freedesktop/systemd1/unit/_37_2db_40x_5fy_2etimer"),
        ];
        for (unit, path) in rows {
            assert_eq!(object_path(unit), path);
        }
        for (unit, path) in [("a.service", rows[0].1), ("a.container", rows[0].1)] {
            assert_eq!(unit_path(&unit.parse().expect("it is a name")), path);
        }
    }
}
