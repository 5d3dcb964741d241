//! Key dumps of fleet v1, in the forms that tools print.

use std::error::Error as _;

use fleet_store::transfer::ImportOrigin;

use super::{import_file, read, registry, snapshot, wrapped};

/// Text of a unit file, and its hash.
const WEB: (&str, &str) =
    ("[Service]\nExecStart=/bin/web\n", "91fedf94fc53008fc0aaced7445df2cbf4f33725");

/// A hash in the form of fleet v1: 20 numbers.
fn numbers(hash: &str) -> String {
    let numbers = (0..40).step_by(2).map(|at| u8::from_str_radix(&hash[at..at + 2], 16).unwrap());
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// Keys and values of a cluster of fleet v1, with all kinds of keys.
fn keys(prefix: &str) -> Vec<(String, String)> {
    let object = |name: &str, hash: &str| {
        let numbers = numbers(hash);
        format!("{{\"Name\":\"{name}\",\"UnitHash\":[{numbers}]}}")
    };
    let (text, web) = WEB;
    let [none, bad] = ["02", "03"].map(|it| it.repeat(20));
    let file = serde_json::json!({ "Raw": text }).to_string();
    let keys = [
        ("job/web.service/object", object("web.service", web)),
        ("job/web.service/target-state", "launched".to_owned()),
        ("job/web.service/target", "m-1".to_owned()),
        ("job/web.service/job-state", "m-1".to_owned()),
        ("job/half.service/object", object("half.service", web)),
        ("job/ghost.service/target-state", "launched".to_owned()),
        ("job/lost.service/object", object("lost.service", &none)),
        ("job/bad.service/object", object("bad.service", &bad)),
        ("job/odd.service/object", object("odd.service", web)),
        ("job/odd.service/target-state", "paused".to_owned()),
        ("job/alias.service/object", object("other.service", web)),
        ("job/name/object", object("name", web)),
        ("machines/m-1/object", "{}".to_owned()),
        ("machines/m-1/metadata/rack", "7".to_owned()),
        ("states/web.service/m-1", "{}".to_owned()),
        ("state/web.service", "{}".to_owned()),
        ("lease/engine-leader", "{}".to_owned()),
        ("engine/version", "1".to_owned()),
        ("future/a", "x".to_owned()),
        (&format!("unit/{web}"), file.clone()),
        (&format!("unit/{bad}"), file),
    ];
    keys.map(|(key, value)| (format!("{prefix}{key}"), value)).into()
}

fn flat(keys: &[(String, String)]) -> String {
    let map: serde_json::Map<_, _> =
        keys.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    serde_json::Value::Object(map).to_string()
}

/// The keys as nested directories, as in etcd's responses.
fn nested(keys: &[(String, String)]) -> String {
    let leaf = |(key, value): &(String, String)| {
        let index = 7;
        serde_json::json!({ "key": key, "value": value, "modifiedIndex": index })
    };
    let leaves: Vec<_> = keys.iter().map(leaf).collect();
    let (some, rest) = leaves.split_at(5);
    let folder = |nodes: &[_]| serde_json::json!({ "key": "/a", "dir": true, "nodes": nodes });
    let root = serde_json::json!({ "dir": true, "nodes": [folder(some), folder(rest)] });
    serde_json::json!({ "action": "get", "node": root }).to_string()
}

#[tokio::test]
async fn both_dump_forms_import_equally() {
    let keys = keys("/_coreos.com/fleet/");
    let [one, other] = [flat(&keys), nested(&keys)].map(|text| read(text.as_bytes()).unwrap());
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert_eq!(one.origin, ImportOrigin::V1 { prefix: "/_coreos.com/fleet/".to_owned() });
    let units = one.units.iter().map(|it| {
        format!("{}: {} {} {:?}\n", it.location, it.name, it.desired, it.machine.as_ref())
    });
    let refused = one.refused.iter().map(|it| format!("refused: {it:?}\n"));
    let remarks = one.remarks.iter().map(|it| format!("remark: {it}\n"));
    insta::assert_snapshot!(wrapped(&units.chain(refused).chain(remarks).collect::<String>()), @r#"
    job/half.service/object: half.service inactive None
    job/web.service/object: web.service launched Some(MachineId("m-1"))
    refused: RefusedImport { location: "job/alias.service/object", name:
      "alias.service", reasons: ["the object belongs to \"other.service\""] }
    refused: RefusedImport { location: "job/bad.service/object", name: "bad.service",
      reasons: ["its unit file unit/0303030303030303030303030303030303030303 is damaged,
      because the text has another hash: submit the unit by hand"] }
    refused: RefusedImport { location: "job/lost.service/object", name: "lost.service",
      reasons: ["its unit file unit/0202020202020202020202020202020202020202 is missing"]
      }
    refused: RefusedImport { location: "job/name/object", name: "name", reasons: ["unit
      name \"name\" has no type: add a suffix such as \".service\""] }
    refused: RefusedImport { location: "job/odd.service/target-state", name:
      "odd.service", reasons: ["unknown state \"paused\": write \"inactive\", \"loaded\"
      or \"launched\""] }
    remark: job/ghost.service has no object and is ignored: it is left over from a
      destroyed unit
    remark: job/half.service has no target-state: half.service is imported as inactive
    remark: keys that fleet v1 does not use are ignored: future/a
    "#);
}

#[tokio::test]
async fn valid_units_are_imported_with_their_machines() {
    let bad = ["lost", "bad", "odd", "alias", "name"];
    let sound = keys("x/").into_iter().filter(|(key, _)| !bad.iter().any(|it| key.contains(it)));
    let target = registry();
    let report = import_file(&target, flat(&sound.collect::<Vec<_>>()).as_bytes()).await;
    assert_eq!((report.created, report.placements_kept, report.metadata), (2, 1, 1));
    let after = snapshot(&target).await;
    assert_eq!(after.placement("web.service").unwrap().machine.as_str(), "m-1");
    assert_eq!(after.unit("half.service").unwrap().desired.as_str(), "inactive");
}

#[test]
fn invalid_dump_is_refused_with_a_remedy() {
    let two = [keys("/a/"), keys("/b/")].concat();
    let texts = [
        "/_coreos.com/fleet/job\n/_coreos.com/fleet/unit\n",
        "{\"a\": \n",
        "[]",
        r#"{"errorCode":100,"message":"Key not found","cause":"/_coreos.com","index":7}"#,
        r#"{"node":{"key":"/a","nodes":[{"key":7}]}}"#,
        r#"{"/a/job/x.service/object":7}"#,
        r#"{"/a":"b"}"#,
        &flat(&two),
    ];
    let messages = texts.iter().map(|text| {
        let error = read(text.as_bytes()).unwrap_err();
        format!("{error}: {}\n", error.source().unwrap())
    });
    insta::assert_snapshot!(wrapped(&messages.collect::<String>()), @r#"
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: line 1,
      column 1: expected value: create the dump with curl
      'http://ETCD:2379/v2/keys/_coreos.com/fleet?recursive=true'
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: line 2,
      column 0: EOF while parsing a value: create the dump with curl
      'http://ETCD:2379/v2/keys/_coreos.com/fleet?recursive=true'
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: the
      document is neither an etcd node with a key nor a text value
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: the
      input is an error response of etcd: Key not found
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: a node
      in /a is neither an etcd node with a key nor a text value
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: the
      value of "/a/job/x.service/object" is neither an etcd node with a key nor a text
      value
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: no key
      of the dump belongs to fleet: expected keys such as …/job/web.service/object
    the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1: the
      dump has the keys of several clusters, /a/ and /b/: dump the keys of one cluster
    "#);
}
