//! Table of all configuration keys. The command-line flags, the environment variables, and the
//! check for unknown keys are derived from this table.

use fleet_unitfile::spelling::suggest;

/// A configuration key. For example, the key `agent_ttl` of a file is the flag `--agent-ttl` and
/// the environment variable `FLEET_AGENT_TTL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Placeholder of the value in help texts.
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
    pub(crate) status: KeyStatus,
}

/// Whether a key has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyStatus {
    /// The key has the effect described by its help text.
    Used,
    /// A key of fleet v1 that is accepted without effect, with the reason.
    Obsolete(&'static str),
}

impl Key {
    /// Returns the flag's name without leading dashes.
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the name of the environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("FLEET_{}", self.name.to_ascii_uppercase())
    }
}

const fn key(name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key { name, value, help, status: KeyStatus::Used }
}

const fn obsolete(name: &'static str, value: &'static str, why: &'static str) -> Key {
    Key {
        name,
        value,
        help: "Accepted for fleet v1; has no effect",
        status: KeyStatus::Obsolete(why),
    }
}

#[cfg(feature = "etcd")]
const STORE_HELP: &str = "Kind of store: embedded, etcd or memory [default: embedded]";
#[cfg(not(feature = "etcd"))]
const STORE_HELP: &str = "Kind of store: embedded or memory; this fleetd was built without \
                          etcd [default: embedded]";

/// All keys, in the order of the help text.
pub(crate) const KEYS: &[Key] = &[
    key("store", "KIND", STORE_HELP),
    key("data_dir", "DIR", "Directory for the daemon's files [default: /var/lib/fleet]"),
    key(
        "runtime_dir",
        "DIR",
        "Directory for files that a reboot must clear [default: $RUNTIME_DIRECTORY or /run/fleet]",
    ),
    key(
        "service_manager",
        "KIND",
        "Service manager that runs units: native or systemd [default: native]",
    ),
    key(
        "systemd_user",
        "BOOL",
        "Use the user's systemd, not the system's [default: false for root, else true]",
    ),
    key("units_directory", "DIR", "Directory for systemd's unit files [default: /run/fleet/units]"),
    key(
        "native_socket",
        "FILE",
        "Socket of a fleet-init that runs native units [default: fleetd runs them]",
    ),
    key(
        "native_runtime_dir",
        "DIR",
        "Directory in memory for records and sockets of units [default for root: /run/fleet-init]",
    ),
    key(
        "native_max_starting",
        "N",
        "Maximum number of native units that start at once, or none [default: 512]",
    ),
    key(
        "native_unsupported",
        "refuse|warn",
        "Handling of native units with unsupported options [default: refuse as root, else warn; \
         fleetd dev: warn]",
    ),
    key(
        "native_accept",
        "OPTION,...",
        "Unsupported options to ignore, or groups: sandboxing, environment, lifecycle",
    ),
    key(
        "native_external",
        "UNIT=HOW,...",
        "External units, and when each is active: up, path:FILE or tcp:HOST:PORT",
    ),
    key("listen", "URL,...", "Addresses of the API [default: unix:///run/fleet.sock]"),
    key(
        "allow_unauthenticated_loopback",
        "BOOL",
        "Let root serve ports on loopback without authentication [default: false]",
    ),
    key("tls_cert_file", "FILE", "Certificate for clients and other daemons, as PEM"),
    key("tls_key_file", "FILE", "Private key of that certificate"),
    key("client_ca_file", "FILE", "CA of the client certificates that ports accept"),
    key("token_file", "FILE", "File of mode 0600 with the tokens that ports accept, one per line"),
    key(
        "peer_ca_file",
        "FILE",
        "CA of the certificates of other daemons [default: client_ca_file]",
    ),
    key(
        "peer_token_file",
        "FILE",
        "File whose first token is sent to other daemons [default: token_file]",
    ),
    key("public_url", "URL", "URL at which other daemons reach the API [default: from listen]"),
    key("machine_id", "ID", "Machine ID [default: content of /etc/machine-id]"),
    key("public_ip", "ADDRESS", "IP address to publish [default: that of the default route]"),
    key("metadata", "K=V,...", "Metadata to publish, such as region=eu,disk=ssd"),
    key("offer_cpu", "CORES", "Cores that units can reserve; -N: all but N [default: all]"),
    key("offer_memory", "SIZE", "Memory that units can reserve; -N: all but N [default: all]"),
    key(
        "offer_disk",
        "SIZE",
        "Disk that units can reserve; -N: all but N [default: file system of data_dir]",
    ),
    key("agent_ttl", "TIME", "Time after which a silent machine counts as absent [default: 30s]"),
    key("engine_ttl", "TIME", "Time after which a silent engine loses leadership [default: 10s]"),
    key("disable_engine", "BOOL", "Never become leader [default: false]"),
    key("token_limit", "N", "Maximum number of items on a page of the API [default: 100]"),
    key(
        "unknown_options",
        "refuse|warn",
        "Handling of unknown [X-Fleet] options [default: refuse]",
    ),
    key("verbosity", "N", "Log level: 0 for info, above 0 for debug [default: 0]"),
    key("etcd_servers", "URL,...", "Endpoints of etcd; selects the etcd store"),
    key("etcd_cafile", "FILE", "CAs for etcd's certificates [default: those of the system]"),
    key("etcd_certfile", "FILE", "Client certificate for etcd"),
    key("etcd_keyfile", "FILE", "Private key of that certificate"),
    key("etcd_username", "NAME", "User name for etcd"),
    key("etcd_password", "PASSWORD", "Password of that user; prefer etcd_password_file"),
    key("etcd_password_file", "FILE", "File whose first line is the password"),
    key("etcd_key_prefix", "PREFIX", "Prefix of all keys in etcd [default: /fleet/]"),
    key("etcd_request_timeout", "TIME", "Timeout of calls to etcd [default: 2s]"),
    obsolete(
        "engine_reconcile_interval",
        "SECONDS",
        "the engine reacts to changes instead of polling",
    ),
    obsolete("disable_watches", "BOOL", "fleetd always watches the store for changes"),
    obsolete("enable_grpc", "BOOL", "daemons communicate only through the store"),
    obsolete("verify_units", "BOOL", "units are not signed"),
    obsolete("authorized_keys_file", "FILE", "units are not signed"),
];

/// Keys with changes that take effect on reload.
pub(crate) const RELOADABLE: &[&str] =
    &["metadata", "offer_cpu", "offer_disk", "offer_memory", "public_ip", "verbosity"];

/// Returns the key with that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns the key with the most similar name, if one is similar enough.
pub(crate) fn nearest(name: &str) -> Option<&'static Key> {
    suggest(&name.replace('-', "_"), KEYS.iter().map(|key| key.name)).and_then(find)
}
