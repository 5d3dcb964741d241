//! Tests of both configuration formats and of all errors.

use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleet_agent::native::External;
use fleet_core::Resources;
use fleet_core::graph::systemd::AcceptedOptions;

use super::*;

fn resolve(text: &str) -> Result<Config, String> {
    let raw = file::read(Path::new("fleet.conf"), text).map_err(|error| error.to_string())?;
    Config::resolve(&raw).map_err(|error| error.to_string())
}

#[test]
fn toml_file_is_read() {
    let config = resolve(
        r#"
        store = "memory"
        listen = ["unix:///tmp/f.sock", "tcp://127.0.0.1:4285"]
        agent_ttl = "1min"
        token_limit = 7
        disable_engine = true
        [metadata]
        region = "eu"
        rack = 4
        "#,
    )
    .unwrap();
    assert_eq!(config.store, StoreKind::Memory);
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.agent_ttl.as_secs(), 60);
    assert_eq!(config.token_limit, 7);
    assert!(config.disable_engine);
    assert_eq!(config.metadata["rack"], "4");
    assert_eq!(config.warnings, [] as [String; 0]);
}

#[test]
fn v1_file_is_read() {
    let config = resolve(
        "# format of v1\n\
         METADATA=region=us-west,az=us-west-1 ; a comment\n\
         public_ip = '10.0.0.7'\n\
         agent_ttl=45s\n\
         engine_reconcile_interval=2.5\n\
         verbosity=1\n\
         [ignored]\n\
         nonsense=1\n",
    )
    .unwrap();
    assert_eq!(config.metadata["az"], "us-west-1");
    assert_eq!(config.public_ip, Some("10.0.0.7".parse().unwrap()));
    assert_eq!(config.agent_ttl.as_secs(), 45);
    assert_eq!(config.verbosity, 1);
    let warning = "fleet.conf:5:1: engine_reconcile_interval has no effect: \
                  the engine reacts to changes instead of polling";
    assert_eq!(config.warnings, [warning]);
}

#[test]
fn offers_all_part_or_a_fixed_amount() {
    let has = Resources { cpu: 4000, memory: 8 << 30, disk: 100 << 30 };
    let offers = |text: &str| resolve(text).unwrap().offers.apply(has);
    assert_eq!(offers(""), has);
    let text = "offer_cpu = \"-0.5\"\noffer_memory = \"2G\"\noffer_disk = 0\n";
    assert_eq!(offers(text), Resources { cpu: 3500, memory: 2 << 30, disk: 0 });
    assert_eq!(offers("offer_memory = \"-9G\"\n").memory, 0);
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_uses_the_keys_of_v1() {
    let config = resolve(
        "etcd_servers=[\"https://10.0.0.1:2379\", \"https://10.0.0.2:2379\"]\n\
         etcd_cafile=/ca.pem\n\
         etcd_certfile=/cert.pem\n\
         etcd_keyfile=/key.pem\n\
         etcd_username=fleet\n\
         etcd_password=secret\n\
         etcd_key_prefix=/_coreos.com/fleet/\n\
         etcd_request_timeout=1.5\n",
    )
    .unwrap();
    let origin = ValueOrigin::File { path: "fleet.conf".into(), line: 4, column: 1 };
    let key = FileSetting { key: "etcd_keyfile", path: "/key.pem".into(), origin };
    let settings = EtcdSettings {
        servers: ["https://10.0.0.1:2379", "https://10.0.0.2:2379"].map(str::to_owned).to_vec(),
        ca: Some("/ca.pem".into()),
        identity: Some(("/cert.pem".into(), key)),
        user: Some(("fleet".to_owned(), Password::Plain("secret".to_owned()))),
        key_prefix: "/_coreos.com/fleet/".to_owned(),
        time_limit: std::time::Duration::from_millis(1500),
    };
    assert!(!format!("{config:?}").contains("secret"));
    assert_eq!(config.store, StoreKind::Etcd(Box::new(settings)));
    assert_eq!(config.warnings, [] as [String; 0]);
}

#[test]
fn invalid_toml_with_tables_is_not_read_as_v1() {
    for mistake in ["name \"m3\"", "name = m3", "name = \"m3", "name = 1\nname = 2"] {
        let error = resolve(&format!("verbosity = 1\n[metadata]\n{mistake}\n")).unwrap_err();
        assert!(error.starts_with("fleet.conf:"), "{mistake}: {error}");
    }
    let error = resolve("etcd_servers = [\"http://e:2379\"]\n[metadata\n").unwrap_err();
    assert!(error.starts_with("fleet.conf:2:10: unclosed table"), "{error}");
    assert_eq!(resolve("verbosity=1\nengine_ttl=5s\n[other]\nname m3\n").unwrap().verbosity, 1);
}

#[test]
fn systemd_uses_the_keys_of_v1() {
    let config = resolve(
        "service_manager = \"systemd\"\nsystemd_user = true\nunits_directory = \"/run/f/\"\n",
    );
    let settings = SystemdSettings { user: Some(true), directory: Some("/run/f".into()) };
    assert_eq!(config.unwrap().service_manager, ServiceManagerKind::Systemd(settings));
    let config = resolve("systemd_user = true\n").unwrap();
    let warning = "fleet.conf:1:1: systemd_user has no effect: service_manager is not \"systemd\"";
    assert_eq!(config.warnings, [warning]);
}

#[test]
fn native_units_run_in_daemon_or_fleet_init() {
    use ServiceManagerKind::{FleetInit, Native};
    let defaults =
        || NativeSettings { runtime_dir: default_runtime_dir(), ..NativeSettings::default() };
    let starting = |max_starting| Native(NativeSettings { max_starting, ..defaults() });
    let refused = |text: &str| format!("native_unsupported = \"refuse\"\n{text}");
    let mut accept = AcceptedOptions::default();
    ["PrivateTmp", "lifecycle"].iter().for_each(|name| accept.add(name).unwrap());
    let unit = |name: &str| name.parse().unwrap();
    let docker = External::Path("/run/docker.sock".into());
    let external = [(unit("a.target"), External::Up), (unit("docker.service"), docker)].into();
    let path = "/run/fleet/init.sock";
    let rows = [
        ("", Ok(Native(defaults()))),
        ("native_max_starting = 7\n", Ok(starting(NonZeroU32::new(7)))),
        ("native_max_starting = \"none\"\n", Ok(starting(None))),
        ("native_max_starting = 0\n", Err("cannot be \"0\": write a number from 1 on")),
        ("native_max_starting = \"few\"\n", Err("a number from 1 on, or none")),
        (
            &refused("native_accept = [\"PrivateTmp\", \"lifecycle\"]\n"),
            Ok(Native(NativeSettings { accept, ..defaults() })),
        ),
        ("native_accept = \"PrivatTmp\"\n", Err("native_accept: \"PrivatTmp\" is neither an")),
        ("native_unsupported = \"no\"\n", Err("write \"refuse\" or \"warn\"")),
        (
            "native_external = [\"docker.service=path:/run/docker.sock\", \"a.target=up\"]\n",
            Ok(Native(NativeSettings { external, ..defaults() })),
        ),
        ("native_external = \"docker.service\"\n", Err("pairs such as network-online.target=up")),
        ("native_external = \"docker.service=path:docker.sock\"\n", Err("pairs such as")),
        ("native_external = \"docker=up\"\n", Err("cannot be \"docker=up\": write pairs")),
        ("native_socket = \"/run/fleet/init.sock\"\n", Ok(FleetInit(path.into()))),
        ("native_socket = \"init.sock\"\n", Err("an absolute path")),
        ("native_socket = \"\"\n", Err("an absolute path")),
        ("native_runtime_dir = \"run\"\n", Err("an absolute path")),
    ];
    for (text, expected) in rows {
        match (resolve(text), expected) {
            (Ok(config), Ok(expected)) => assert_eq!(config.service_manager, expected),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (resolved, _) => panic!("{text}: {resolved:?}"),
        }
    }
    let both = "service_manager = \"systemd\"\nnative_socket = \"/run/fleet/init.sock\"\n";
    let warning = "fleet.conf:2:1: native_socket has no effect: service_manager is \"systemd\"";
    assert_eq!(resolve(both).unwrap().warnings, [warning]);
    let both = "native_max_starting = 7\nnative_socket = \"/run/fleet/init.sock\"\n";
    let warning = "fleet.conf:1:1: native_max_starting has no effect: \
                  native_socket is set: use the option of fleet-init run --fleet instead";
    assert_eq!(resolve(both).unwrap().warnings, [warning]);
}

#[test]
fn unused_etcd_keys_are_warned_about() {
    let config = resolve("store = \"memory\"\netcd_username = \"fleet\"\n").unwrap();
    let warning = "fleet.conf:2:1: etcd_username has no effect: store is not \"etcd\"";
    assert_eq!(config.warnings, [warning]);
}

#[cfg(not(feature = "etcd"))]
#[test]
fn missing_etcd_feature_error_has_build_advice() {
    let cases = [
        ("store = \"etcd\"\n", "fleet.conf:1:1"),
        ("verbosity = 1\netcd_servers = [\"http://127.0.0.1:2379\"]\n", "fleet.conf:2:1"),
        ("etcd_servers = [\"http://127.0.0.1:2379\"]\nstore = \"etcd\"\n", "fleet.conf:2:1"),
    ];
    for (text, place) in cases {
        let error = format!(
            "{place}: this fleetd was built without the etcd store: build it with \
             \"cargo build --release --features etcd\", which needs protoc (Debian: \
             protobuf-compiler), or write store = \"embedded\""
        );
        assert_eq!(resolve(text).unwrap_err(), error, "of {text:?}");
    }
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_errors_name_position_and_remedy() {
    let cases = [
        (
            "etcd_servers=10.0.0.1:2379\n",
            "fleet.conf:1:1: etcd_servers cannot be \"10.0.0.1:2379\": \
             write URLs such as https://10.0.0.1:2379,https://10.0.0.2:2379",
        ),
        (
            "store = \"etcd\"\netcd_keyfile = \"/k\"\n",
            "fleet.conf:2:1: etcd_keyfile requires etcd_certfile",
        ),
        (
            "store = \"etcd\"\netcd_cafile = \"/ca\"\n",
            "fleet.conf:2:1: etcd_cafile has no effect for http://127.0.0.1:2379: write an \
             https:// URL in etcd_servers",
        ),
        (
            "store = \"etcd\"\netcd_username = \"fleet\"\n",
            "fleet.conf:2:1: etcd_username requires etcd_password_file",
        ),
        (
            "store = \"etcd\"\netcd_password_file = \"/p\"\netcd_password = \"p\"\n",
            "fleet.conf:3:1: etcd_password and etcd_password_file cannot be combined: \
             write one of them",
        ),
        (
            "etcd_servers = \"http://localhost:1,http://10.0.0.1:1\"\netcd_username = \"fleet\"\n\
             etcd_password_file = \"/p\"\n",
            "fleet.conf:1:1: http://10.0.0.1:1 is on another host, and the password of \
             etcd_username would be sent without encryption: write an https:// URL",
        ),
        (
            "store = \"etcd\"\netcd_request_timeout = 0\n",
            "fleet.conf:2:1: etcd_request_timeout cannot be \"0\": \
             write a time from 10ms to 1min, such as 2s",
        ),
    ];
    for (text, error) in cases {
        assert_eq!(resolve(text).unwrap_err(), error, "of {text:?}");
    }
}

// Holds: D-44
#[test]
fn errors_name_position_and_remedy() {
    let cases = [
        (
            "store = \"memory\"\nagent_tll = 3\n",
            "fleet.conf:2:1: unknown key \"agent_tll\": did you mean \"agent_ttl\"?",
        ),
        ("zebra = 3\n", "fleet.conf:1:1: unknown key \"zebra\""),
        (
            "token_limit = 0\n",
            "fleet.conf:1:1: token_limit cannot be \"0\": write a number from 1 to 65535",
        ),
        (
            "  agent_ttl=soon\n",
            "fleet.conf:1:3: agent_ttl cannot be \"soon\": \
             write a time of at least one second, such as 30s or 1min",
        ),
        (
            "machine_id = \"a b\"\n",
            "fleet.conf:1:1: machine_id cannot be \"a b\": \
             write 1 to 64 letters, digits, \".\", \"_\" or \"-\"",
        ),
        (
            "store = \"consul\"\n",
            "fleet.conf:1:1: store cannot be \"consul\": \
             write \"embedded\", \"etcd\" or \"memory\"",
        ),
        (
            "service_manager = \"fake\"\n",
            "fleet.conf:1:1: the fake service manager is only for tests: \
             write service_manager = \"native\" or \"systemd\"",
        ),
        (
            "service_manager = \"systemd\"\nunits_directory = \"units\"\n",
            "fleet.conf:2:1: units_directory cannot be \"units\": \
             write an absolute path such as /run/fleet/units",
        ),
        (
            "metadata = \"region\"\n",
            "fleet.conf:1:1: metadata cannot be \"region\": \
             write pairs such as region=us-east,disk=ssd",
        ),
        (
            "offer_cpu = \"-some\"\n",
            "fleet.conf:1:1: offer_cpu cannot be \"-some\": \
             write cores such as 3.5, or -0.5 for all but half of one",
        ),
        (
            "offer_memory = \"much\"\n",
            "fleet.conf:1:1: offer_memory cannot be \"much\": \
             write a size such as 8G, or -2G for all but that",
        ),
        (
            "listen = [\"/run/fleet.sock\"]\n",
            "fleet.conf:1:1: listen cannot be \"/run/fleet.sock\": \
             write a list of URLs such as unix:///run/fleet.sock or tcp://127.0.0.1:4285",
        ),
    ];
    for (text, error) in cases {
        assert_eq!(resolve(text).unwrap_err(), error, "of {text:?}");
    }
}

#[test]
fn password_in_readable_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fleet.conf");
    let find_with = |text: &str, mode: u32| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        find(Some(&path), &|_| None, RawConfig::new()).map_err(|error| error.to_string())
    };
    for text in ["verbosity=1\netcd_password=p\n", "verbosity = 1\netcd_password = \"p\"\n"] {
        let at = path.display();
        let error = format!(
            "{at}:2:1: etcd_password: {at}: other users can access it (mode 0644): run \
             \"chmod 0600 {at}\""
        );
        assert_eq!(find_with(text, 0o644).unwrap_err(), error);
        assert!(find_with(text, 0o640).is_ok(), "{text}");
    }
    assert!(find_with("verbosity = 1\n", 0o644).is_ok());
}

#[test]
fn unparsable_line_is_a_syntax_error() {
    let error = resolve("store = \"memory\"\nnot a setting\n").unwrap_err();
    assert!(error.starts_with("fleet.conf:2:"), "{error}");
}

#[test]
fn flags_override_environment_and_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fleet.conf");
    std::fs::write(&path, "token_limit = 1\nverbosity = 1\ndata_dir = \"/one\"\n").unwrap();
    let environment = |name: &str| match name {
        "FLEET_TOKEN_LIMIT" | "FLEET_VERBOSITY" => Some("2".to_owned()),
        _ => None,
    };
    let origin = ValueOrigin::Flag("token-limit".to_owned());
    let flags = RawConfig::from([(
        "token_limit",
        RawEntry { raw: RawValue::Text("3".to_owned()), origin },
    )]);
    let raw = find(Some(&path), &environment, flags).unwrap();
    let config = Config::resolve(&raw).unwrap();
    assert_eq!(config.token_limit, 3);
    assert_eq!(config.verbosity, 2);
    assert_eq!(config.data_dir, Path::new("/one"));
}

#[cfg(feature = "etcd")]
#[test]
fn reference_lists_all_keys() {
    let mut table = String::from("| key | value | meaning |\n|---|---|---|\n");
    for key in KEYS {
        let live = if RELOADABLE.contains(&key.name) { " (*live*)" } else { "" };
        let meaning = match key.status {
            KeyStatus::Used => key.help.to_owned(),
            KeyStatus::Obsolete(why) => format!("{}: {why}", key.help),
        };
        let row = format!("| `{}`{live} | `{}` | {meaning} |\n", key.name, key.value);
        table.push_str(&row.replace("|warn`", "\\|warn`"));
    }
    let page = include_str!("../../../../docs/reference/fleetd.md");
    let (_, rest) = page.split_once("<!-- keys: begin -->\n").expect("the table begins");
    let (written, _) = rest.split_once("<!-- keys: end -->").expect("the table ends");
    assert!(written == table, "write this into docs/reference/fleetd.md:\n{table}");
}
