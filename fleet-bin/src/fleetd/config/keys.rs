//! Table of all configuration keys. Flags, environment variables and checks are derived from it.

/// A configuration key. In a file it is written as is, on the command line as `--key` with dashes,
/// and in the environment as `FLEET_KEY`.
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
    Key { name, value, help: "Accepted for fleet v1's sake", status: KeyStatus::Obsolete(why) }
}

#[cfg(feature = "etcd")]
const STORE_HELP: &str =
    "Where the cluster's memory is: embedded, etcd or memory [default: embedded]";
#[cfg(not(feature = "etcd"))]
const STORE_HELP: &str = "Where the cluster's memory is: embedded or memory; this fleetd was built \
                          without etcd [default: embedded]";

/// All keys, in the order of the help text.
pub(crate) const KEYS: &[Key] = &[
    key("store", "KIND", STORE_HELP),
    key("data_dir", "DIR", "Where this daemon keeps its files [default: /var/lib/fleet]"),
    key(
        "runtime_dir",
        "DIR",
        "Where it keeps what a reboot clears [default: $RUNTIME_DIRECTORY or /run/fleet]",
    ),
    key(
        "service_manager",
        "KIND",
        "What runs units on this machine: native or systemd [default: native]",
    ),
    key("systemd_user", "BOOL", "Run units by the user's systemd [default: unless root]"),
    key("systemd_private", "BOOL", "Reach systemd by its own socket, not the bus [default: false]"),
    key("units_directory", "DIR", "Where systemd finds unit files [default: /run/fleet/units]"),
    key(
        "native_socket",
        "FILE",
        "Where the fleet-init listens that runs the units of native [default: none, fleetd does]",
    ),
    key(
        "native_max_starting",
        "N",
        "How many units native may be starting at once, or none for no limit [default: 512]",
    ),
    key(
        "native_accept",
        "OPTION,...",
        "Options that native passes over instead of refusing a unit [default: none]",
    ),
    key(
        "native_external",
        "UNIT=HOW,...",
        "Units that others run, and whether they are up: up, path:FILE or tcp:HOST:PORT",
    ),
    key("listen", "URL,...", "Where the API listens [default: unix:///run/fleet.sock]"),
    key("tls_cert_file", "FILE", "The certificate that clients and daemons are shown, as PEM"),
    key("tls_key_file", "FILE", "The private key of that certificate"),
    key("client_ca_file", "FILE", "The authority whose certificates are let in at ports"),
    key("token_file", "FILE", "The tokens that are let in at ports, one a line, mode 0600"),
    key("peer_ca_file", "FILE", "The authority of other daemons [default: client_ca_file]"),
    key(
        "peer_token_file",
        "FILE",
        "Its first token is shown to other daemons [default: token_file]",
    ),
    key(
        "public_url",
        "URL",
        "Where other daemons reach the API [default: a port of listen that they can reach]",
    ),
    key("machine_id", "ID", "This machine's identity [default: what /etc/machine-id holds]"),
    key("public_ip", "ADDRESS", "The address to publish [default: that of the default route]"),
    key("metadata", "K=V,...", "The metadata that this machine publishes"),
    key("offer_cpu", "CORES", "Cores that units may reserve; -N: all but N [default: all]"),
    key("offer_memory", "SIZE", "Memory that units may reserve; -N: all but N [default: all]"),
    key(
        "offer_disk",
        "SIZE",
        "Disk that units may reserve; -N: all but N [default: the file system of data_dir]",
    ),
    key("agent_ttl", "TIME", "How long a silent machine counts as present [default: 30s]"),
    key("engine_ttl", "TIME", "How long a silent engine counts as leading [default: 10s]"),
    key("disable_engine", "BOOL", "Never lead [default: false]"),
    key("token_limit", "N", "How many entities a page of the API holds [default: 100]"),
    key("unknown_options", "refuse|warn", "What unknown [X-Fleet] options do [default: refuse]"),
    key("verbosity", "N", "Above 0 logs what is only of use in a search for errors [default: 0]"),
    key("etcd_servers", "URL,...", "etcd's endpoints; chooses the etcd store"),
    key("etcd_cafile", "FILE", "The authority of etcd's certificates [default: the system's]"),
    key("etcd_certfile", "FILE", "The certificate that etcd is shown"),
    key("etcd_keyfile", "FILE", "The private key of that certificate"),
    key("etcd_username", "NAME", "The user that etcd knows fleet by"),
    key("etcd_password", "PASSWORD", "The user's password; better in a file"),
    key("etcd_password_file", "FILE", "A file whose first line is the user's password"),
    key("etcd_key_prefix", "PREFIX", "What all keys in etcd begin with [default: /fleet/]"),
    key("etcd_request_timeout", "TIME", "How long a call to etcd may take [default: 2s]"),
    obsolete(
        "engine_reconcile_interval",
        "SECONDS",
        "the engine is woken by changes, not by a clock",
    ),
    obsolete("disable_watches", "BOOL", "all reads are served by one watch"),
    obsolete("enable_grpc", "BOOL", "daemons meet in the store alone"),
    obsolete("verify_units", "BOOL", "units are not signed"),
    obsolete("authorized_keys_file", "FILE", "units are not signed"),
];

/// Keys whose changes take effect on reload.
pub(crate) const RELOADABLE: &[&str] =
    &["metadata", "offer_cpu", "offer_disk", "offer_memory", "public_ip", "verbosity"];

/// Returns the key with that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns the key with the most similar name, if one is similar enough.
pub(crate) fn nearest(name: &str) -> Option<&'static Key> {
    let distance = |key: &Key| strsim::damerau_levenshtein(key.name, &name.replace('-', "_"));
    KEYS.iter().min_by_key(|key| distance(key)).filter(|key| distance(key) <= 3)
}
