//! Every key of the configuration, in one table: it makes the flags, the variables and the checks.

/// A key of the configuration. It is written so in a file, as `--key` (with `-` for `_`) on the
/// command line, and as `FLEET_KEY` in the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What stands for the value in help texts.
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
    pub(crate) standing: Standing,
}

/// Whether a key does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does what its help says.
    Used,
    /// fleet v1 had it; it is accepted and changes nothing, for this reason.
    Inert(&'static str),
}

impl Key {
    /// The flag's name, without its dashes.
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The variable's name.
    pub(crate) fn variable(&self) -> String {
        format!("FLEET_{}", self.name.to_ascii_uppercase())
    }
}

const fn used(name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key { name, value, help, standing: Standing::Used }
}

const fn inert(name: &'static str, value: &'static str, why: &'static str) -> Key {
    Key { name, value, help: "Accepted for fleet v1's sake", standing: Standing::Inert(why) }
}

#[cfg(feature = "etcd")]
const STORE_HELP: &str =
    "Where the cluster's memory is: embedded, etcd or memory [default: embedded]";
#[cfg(not(feature = "etcd"))]
const STORE_HELP: &str = "Where the cluster's memory is: embedded or memory; this fleetd was built \
                          without etcd [default: embedded]";

/// All keys, in the order in which help shows them.
pub(crate) const KEYS: &[Key] = &[
    used("store", "KIND", STORE_HELP),
    used("data_dir", "DIR", "Where this daemon keeps its files [default: /var/lib/fleet]"),
    used(
        "runtime_dir",
        "DIR",
        "Where it keeps what a reboot clears [default: $RUNTIME_DIRECTORY or /run/fleet]",
    ),
    used(
        "service_manager",
        "KIND",
        "What runs units on this machine: native or systemd [default: native]",
    ),
    used("systemd_user", "BOOL", "Run units by the user's systemd [default: unless root]"),
    used(
        "systemd_private",
        "BOOL",
        "Reach systemd by its own socket, not the bus [default: false]",
    ),
    used("units_directory", "DIR", "Where systemd finds unit files [default: /run/fleet/units]"),
    used(
        "native_socket",
        "FILE",
        "Where the fleet-init listens that runs the units of native [default: none, fleetd does]",
    ),
    used(
        "native_max_starting",
        "N",
        "How many units native may be starting at once, or none for no limit [default: 512]",
    ),
    used(
        "native_accept",
        "OPTION,...",
        "Options that native passes over instead of refusing a unit [default: none]",
    ),
    used(
        "native_external",
        "UNIT=HOW,...",
        "Units that others run, and whether they are up: up, path:FILE or tcp:HOST:PORT",
    ),
    used("listen", "URL,...", "Where the API listens [default: unix:///run/fleet.sock]"),
    used("tls_cert_file", "FILE", "The certificate that clients and daemons are shown, as PEM"),
    used("tls_key_file", "FILE", "The private key of that certificate"),
    used("client_ca_file", "FILE", "The authority whose certificates are let in at ports"),
    used("token_file", "FILE", "The tokens that are let in at ports, one a line, mode 0600"),
    used("peer_ca_file", "FILE", "The authority of other daemons [default: client_ca_file]"),
    used(
        "peer_token_file",
        "FILE",
        "Its first token is shown to other daemons [default: token_file]",
    ),
    used(
        "public_url",
        "URL",
        "Where other daemons reach the API [default: a port of listen that they can reach]",
    ),
    used("machine_id", "ID", "This machine's identity [default: what /etc/machine-id holds]"),
    used("public_ip", "ADDRESS", "The address to publish [default: that of the default route]"),
    used("metadata", "K=V,...", "The metadata that this machine publishes"),
    used("offer_cpu", "CORES", "Cores that units may reserve; -N: all but N [default: all]"),
    used("offer_memory", "SIZE", "Memory that units may reserve; -N: all but N [default: all]"),
    used(
        "offer_disk",
        "SIZE",
        "Disk that units may reserve; -N: all but N [default: the file system of data_dir]",
    ),
    used("agent_ttl", "TIME", "How long a silent machine counts as present [default: 30s]"),
    used("engine_ttl", "TIME", "How long a silent engine counts as leading [default: 10s]"),
    used("disable_engine", "BOOL", "Never lead [default: false]"),
    used("token_limit", "N", "How many entities a page of the API holds [default: 100]"),
    used("unknown_options", "refuse|warn", "What unknown [X-Fleet] options do [default: refuse]"),
    used("verbosity", "N", "Above 0 logs what is only of use in a search for errors [default: 0]"),
    used("etcd_servers", "URL,...", "etcd's endpoints; chooses the etcd store"),
    used("etcd_cafile", "FILE", "The authority of etcd's certificates [default: the system's]"),
    used("etcd_certfile", "FILE", "The certificate that etcd is shown"),
    used("etcd_keyfile", "FILE", "The private key of that certificate"),
    used("etcd_username", "NAME", "The user that etcd knows fleet by"),
    used("etcd_password", "PASSWORD", "The user's password; better in a file"),
    used("etcd_password_file", "FILE", "A file whose first line is the user's password"),
    used("etcd_key_prefix", "PREFIX", "What all keys in etcd begin with [default: /fleet/]"),
    used("etcd_request_timeout", "TIME", "How long a call to etcd may take [default: 2s]"),
    inert("engine_reconcile_interval", "SECONDS", "the engine is woken by changes, not by a clock"),
    inert("disable_watches", "BOOL", "all reads are served by one watch"),
    inert("enable_grpc", "BOOL", "daemons meet in the store alone"),
    inert("verify_units", "BOOL", "units are not signed"),
    inert("authorized_keys_file", "FILE", "units are not signed"),
];

/// The keys of which a change counts at once when the configuration is read again.
pub(crate) const LIVE: &[&str] =
    &["metadata", "offer_cpu", "offer_disk", "offer_memory", "public_ip", "verbosity"];

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The key whose name is nearest to `name`, if one is near.
pub(crate) fn nearest(name: &str) -> Option<&'static Key> {
    let distance = |key: &Key| strsim::damerau_levenshtein(key.name, &name.replace('-', "_"));
    KEYS.iter().min_by_key(|key| distance(key)).filter(|key| distance(key) <= 3)
}
