//! Converts raw values to a configuration. Each value is checked once, and an error names the
//! position of the value, such as `fleet.conf:3:1`.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_core::{MachineId, Metadata, Resource, Resources, Strictness};
use fleet_http::ListenAddress;
use fleet_unitfile::values::{parse_bool, parse_timespan};

use super::auth::AuthSettings;
#[cfg(feature = "etcd")]
use super::etcd::EtcdSettings;
use super::keys::{KEYS, Key, KeyStatus};
use super::native::{NativeSettings, SystemdSettings};
use super::{ConfigError, RawConfig, RawEntry, RawValue, ValueOrigin};

/// A valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) store: StoreKind,
    pub(crate) service_manager: ServiceManagerKind,
    pub(crate) data_dir: PathBuf,
    /// Directory for files that a reboot must clear.
    pub(crate) runtime_dir: PathBuf,
    pub(crate) listen: Vec<ListenAddress>,
    /// Authentication settings.
    pub(crate) auth: AuthSettings,
    /// The configured machine ID; that of the host if `None`.
    pub(crate) machine_id: Option<MachineId>,
    pub(crate) public_ip: Option<IpAddr>,
    pub(crate) metadata: Metadata,
    pub(crate) offers: CapacitySettings,
    pub(crate) agent_ttl: Duration,
    pub(crate) engine_ttl: Duration,
    pub(crate) disable_engine: bool,
    pub(crate) token_limit: u16,
    pub(crate) strictness: Strictness,
    pub(crate) verbosity: u8,
    /// Warnings, one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Kind of store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// A file in the data directory.
    Embedded,
    /// Memory of this process; not persistent.
    Memory,
    /// An etcd cluster.
    #[cfg(feature = "etcd")]
    Etcd(Box<EtcdSettings>),
}

impl StoreKind {
    pub(crate) fn is_etcd(&self) -> bool {
        !matches!(self, Self::Embedded | Self::Memory)
    }
}

/// Kind of service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServiceManagerKind {
    /// This daemon.
    Native(NativeSettings),
    /// The fleet-init that listens on this socket.
    FleetInit(PathBuf),
    /// systemd.
    Systemd(SystemdSettings),
}

impl Config {
    /// Checks all values and sets defaults.
    pub(crate) fn resolve(raw: &RawConfig) -> Result<Self, ConfigError> {
        let values = Values { raw };
        let store = store(&values)?;
        let service_manager = service_manager(&values)?;
        let warnings = warnings(raw, &store, &service_manager);
        let (auth, listen) = AuthSettings::resolve(&values, listen(&values)?)?;
        #[cfg(feature = "etcd")]
        if let StoreKind::Etcd(settings) = &store {
            auth.check_reach(&values, &settings.servers)?;
        }
        Ok(Self {
            store,
            service_manager,
            data_dir: values.text("data_dir").unwrap_or("/var/lib/fleet").into(),
            runtime_dir: values.text("runtime_dir").map_or_else(runtime_dir, PathBuf::from),
            listen,
            auth,
            machine_id: values.parsed(
                "machine_id",
                "1 to 64 letters, digits, \".\", \"_\" or \"-\"",
                |text| text.parse().ok(),
            )?,
            public_ip: values
                .parsed("public_ip", "an IP address such as 10.0.0.1", |text| {
                    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
                })?
                .flatten(),
            metadata: metadata(&values)?,
            offers: CapacitySettings::resolve(&values)?,
            agent_ttl: values.ttl("agent_ttl", 30)?,
            engine_ttl: values.ttl("engine_ttl", 10)?,
            disable_engine: values
                .parsed("disable_engine", "true or false", parse_bool)?
                .unwrap_or(false),
            token_limit: values
                .parsed("token_limit", "a number from 1 to 65535", |text| {
                    text.parse().ok().filter(|limit| *limit > 0)
                })?
                .unwrap_or(100),
            strictness: values
                .parsed("unknown_options", "\"refuse\" or \"warn\"", strictness)?
                .unwrap_or(Strictness::Refuse),
            verbosity: values
                .parsed("verbosity", "a number from 0 to 255", |text| text.parse().ok())?
                .unwrap_or(0),
            warnings,
        })
    }

    /// Refuses settings that are unsafe for the daemon's user, such as an open port of root.
    pub(crate) fn check_user(&self, raw: &RawConfig, is_root: bool) -> Result<(), ConfigError> {
        let checked = self.auth.refuse_open_loopback(&self.listen, is_root);
        checked.map_err(|problem| contradiction(&Values { raw }, "listen", problem))
    }

    /// Returns the path of the embedded store.
    pub(crate) fn store_file(data_dir: &Path) -> PathBuf {
        data_dir.join("store.redb")
    }
}

/// The raw values, by key.
pub(super) struct Values<'a> {
    pub(super) raw: &'a RawConfig,
}

impl<'a> Values<'a> {
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match &self.raw.get(key)?.raw {
            RawValue::Text(text) => Some(text),
            RawValue::List(_) | RawValue::Table(_) => None,
        }
    }

    /// Returns the value of `key`, parsed by `read`, or `None` if the key is not set. A list is
    /// refused, and so is a text for which `read` returns `None`.
    pub(super) fn parsed<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(found) = self.raw.get(key) else { return Ok(None) };
        let value = self.text(key).and_then(|text| read(text.trim()));
        value.map(Some).ok_or_else(|| bad_value(key, found, expected, found.raw.items().join(",")))
    }

    fn ttl(&self, key: &'static str, default: u64) -> Result<Duration, ConfigError> {
        let expected = "a time of at least one second, such as 30s or 1min";
        let value = self.parsed(key, expected, |text| {
            parse_timespan(text).ok()?.as_duration().filter(|ttl| *ttl >= Duration::from_secs(1))
        })?;
        Ok(value.unwrap_or(Duration::from_secs(default)))
    }
}

pub(super) fn bad_value(
    key: &'static str,
    found: &RawEntry,
    expected: &'static str,
    value: impl Display,
) -> ConfigError {
    ConfigError::BadValue { origin: found.origin.clone(), key, found: value.to_string(), expected }
}

/// Returns the error of a key that requires another key.
pub(super) fn requires(values: &Values<'_>, key: &'static str, lacks: &str) -> ConfigError {
    contradiction(values, key, format!("{key} requires {lacks}"))
}

/// Returns the error of contradicting keys.
pub(super) fn contradiction(
    values: &Values<'_>,
    key: &'static str,
    problem: String,
) -> ConfigError {
    let origin = values.raw.get(key).map(|found| found.origin.clone());
    let origin = origin.unwrap_or_else(|| ValueOrigin::Flag(key.to_owned()));
    ConfigError::Contradiction { origin, problem }
}

fn unsupported(found: &RawEntry, problem: &str) -> ConfigError {
    ConfigError::Unsupported { origin: found.origin.clone(), problem: problem.to_owned() }
}

fn store(values: &Values<'_>) -> Result<StoreKind, ConfigError> {
    let named = values.raw.contains_key("etcd_servers");
    let unnamed = if named { "etcd" } else { "embedded" };
    let expected = "\"embedded\", \"etcd\" or \"memory\"";
    let known = |text: &str| {
        let kinds = ["embedded", "etcd", "memory"];
        kinds.into_iter().find(|kind| *kind == text)
    };
    Ok(match values.parsed("store", expected, known)?.unwrap_or(unnamed) {
        "memory" => StoreKind::Memory,
        "etcd" => etcd(values)?,
        _ => StoreKind::Embedded,
    })
}

#[cfg(feature = "etcd")]
fn etcd(values: &Values<'_>) -> Result<StoreKind, ConfigError> {
    EtcdSettings::resolve(values).map(|settings| StoreKind::Etcd(Box::new(settings)))
}

/// Returns an error, because this daemon was built without etcd. With any other store, the daemon
/// would start a cluster of its own next to the one in etcd.
#[cfg(not(feature = "etcd"))]
fn etcd(values: &Values<'_>) -> Result<StoreKind, ConfigError> {
    let chosen = ["store", "etcd_servers"].into_iter().find_map(|key| values.raw.get(key));
    let origin = chosen.map(|found| found.origin.clone());
    let origin = origin.unwrap_or_else(|| ValueOrigin::Flag("store".to_owned()));
    let problem = "this fleetd was built without the etcd store: build it with \
                   \"cargo build --release --features etcd\", which needs protoc (Debian: \
                   protobuf-compiler), or write store = \"embedded\"";
    Err(ConfigError::Unsupported { origin, problem: problem.to_owned() })
}

fn service_manager(values: &Values<'_>) -> Result<ServiceManagerKind, ConfigError> {
    let expected = "\"native\" or \"systemd\"";
    let known = |text: &str| {
        let kinds = ["native", "systemd", "fake"];
        kinds.into_iter().find(|kind| *kind == text)
    };
    let kind = values.parsed("service_manager", expected, known)?;
    match (kind, values.raw.get("service_manager")) {
        (Some("systemd"), _) => Ok(ServiceManagerKind::Systemd(SystemdSettings::resolve(values)?)),
        (Some("fake"), Some(found)) => Err(unsupported(
            found,
            "the fake service manager is only for tests: write service_manager = \"native\" or \
             \"systemd\"",
        )),
        _ => native(values),
    }
}

fn native(values: &Values<'_>) -> Result<ServiceManagerKind, ConfigError> {
    let absolute = |text: &str| Some(PathBuf::from(text)).filter(|path| path.is_absolute());
    let expected = "an absolute path such as /run/fleet/init.sock";
    let socket = values.parsed("native_socket", expected, absolute)?;
    let settings = NativeSettings::resolve(values)?;
    Ok(socket.map_or(ServiceManagerKind::Native(settings), ServiceManagerKind::FleetInit))
}

fn listen(values: &Values<'_>) -> Result<Vec<ListenAddress>, ConfigError> {
    let Some(found) = values.raw.get("listen") else {
        return Ok(vec![ListenAddress::Unix(PathBuf::from("/run/fleet.sock"))]);
    };
    let expected = "a list of URLs such as unix:///run/fleet.sock or tcp://127.0.0.1:4285";
    let read = |item: String| item.parse().map_err(|_| bad_value("listen", found, expected, item));
    found.raw.items().into_iter().map(read).collect()
}

/// Parses metadata pairs of the form `key=value`. If a key occurs twice, the later pair counts. An
/// empty key or an empty value is an error.
fn metadata(values: &Values<'_>) -> Result<Metadata, ConfigError> {
    let Some(found) = values.raw.get("metadata") else { return Ok(Metadata::new()) };
    let pair = |item: String| match item.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(bad_value("metadata", found, "pairs such as region=us-east,disk=ssd", item)),
    };
    found.raw.items().into_iter().map(pair).collect()
}

/// Returns the runtime directory that systemd created for the service (`$RUNTIME_DIRECTORY`), or
/// else `/run/fleet`.
fn runtime_dir() -> PathBuf {
    let given = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    let first = std::env::split_paths(&given).next().filter(|path| !path.as_os_str().is_empty());
    first.unwrap_or_else(|| PathBuf::from("/run/fleet"))
}

fn strictness(text: &str) -> Option<Strictness> {
    match text {
        "refuse" => Some(Strictness::Refuse),
        "warn" => Some(Strictness::Warn),
        _ => None,
    }
}

fn warnings(raw: &RawConfig, store: &StoreKind, manager: &ServiceManagerKind) -> Vec<String> {
    let of_etcd = |key: &Key| key.name.starts_with("etcd_");
    let of_systemd = |key: &Key| key.name.starts_with("systemd_") || key.name == "units_directory";
    let by_systemd = matches!(manager, ServiceManagerKind::Systemd(_));
    let of_native = |key: &Key| key.name.starts_with("native_");
    let by_init = matches!(manager, ServiceManagerKind::FleetInit(_));
    let of_init =
        |key: &Key| key.name.starts_with("native_") && key.name != "native_socket" && by_init;
    let idle = |key: &Key| match key.status {
        KeyStatus::Obsolete(why) => Some(why),
        KeyStatus::Used if of_etcd(key) && !store.is_etcd() => Some("store is not \"etcd\""),
        KeyStatus::Used if of_native(key) && by_systemd => Some("service_manager is \"systemd\""),
        KeyStatus::Used if of_systemd(key) && !by_systemd => {
            Some("service_manager is not \"systemd\"")
        }
        KeyStatus::Used if of_init(key) => {
            Some("native_socket is set: use the option of fleet-init run --fleet instead")
        }
        KeyStatus::Used => None,
    };
    let warning = |key: &Key| {
        let (found, why) = (raw.get(key.name)?, idle(key)?);
        Some(format!("{}: {} has no effect: {why}", found.origin, key.name))
    };
    KEYS.iter().filter_map(warning).collect()
}

/// Offered amount of each resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CapacitySettings {
    cpu: Capacity,
    memory: Capacity,
    disk: Capacity,
}

/// Offered amount of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Capacity {
    /// All of it.
    #[default]
    All,
    /// All but this amount.
    AllExcept(u64),
    /// This amount, regardless of the machine's total.
    Fixed(u64),
}

impl CapacitySettings {
    pub(super) fn resolve(values: &Values<'_>) -> Result<Self, ConfigError> {
        let cores = "cores such as 3.5, or -0.5 for all but half of one";
        let bytes = "a size such as 8G, or -2G for all but that";
        let read = |key, expected, resource| {
            let offer = values.parsed(key, expected, |text| offer(text, resource))?;
            Ok(offer.unwrap_or_default())
        };
        Ok(Self {
            cpu: read("offer_cpu", cores, Resource::Cpu)?,
            memory: read("offer_memory", bytes, Resource::Memory)?,
            disk: read("offer_disk", bytes, Resource::Disk)?,
        })
    }

    /// Returns the offers of a machine with these total resources.
    pub(crate) fn apply(self, total: Resources) -> Resources {
        Resources {
            cpu: self.cpu.apply(total.cpu),
            memory: self.memory.apply(total.memory),
            disk: self.disk.apply(total.disk),
        }
    }
}

impl Capacity {
    fn apply(self, total: u64) -> u64 {
        match self {
            Self::All => total,
            Self::AllExcept(held_back) => total.saturating_sub(held_back),
            Self::Fixed(amount) => amount,
        }
    }
}

fn offer(text: &str, resource: Resource) -> Option<Capacity> {
    match text.strip_prefix('-') {
        Some(held_back) => resource.parse(held_back).ok().map(Capacity::AllExcept),
        None => resource.parse(text).ok().map(Capacity::Fixed),
    }
}
