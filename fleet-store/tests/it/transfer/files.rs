//! The export file: its form, and the refusal of damaged ones.

use std::error::Error as _;

use fleet_store::transfer::ExportReader;

use super::{cluster, file, read, registry, wrapped};

#[tokio::test]
async fn export_is_readable_lines() {
    let text = String::from_utf8(file(&cluster().await).await).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    insta::assert_snapshot!(wrapped(&text.replace(version, "VERSION")), @r#"
    {"kind":"header","format":"fleet-export","version":2,"fleet":"VERSION",
      "lineage":"first","revision":11,"epochs":11,"units":3}
    {"kind":"metadata","machine":"m-2","key":"rack","value":"7"}
    {"kind":"intent","machine":"m-2","intent":"drained","keepUp":2}
    {"kind":"intent","machine":"m-3","intent":"cordoned"}
    {"kind":"unit","unit":"db.service",
      "hash":"8072333359afeb9ecbbc303892fcb4c32e4f42f8","desired":"loaded","generation":0,
      "sourceBase64":"IyBjYWbpCltTZXJ2aWNlXQpFeGVjU3RhcnQ9L2Jpbi9kYgo="}
    {"kind":"unit","unit":"w@.service",
      "hash":"254eba51e3b1329ed8fb0c932d49ad69a19a6b8a","desired":"inactive",
      "generation":0,"source":"[Service]\nExecStart=/bin/w %i\n"}
    {"kind":"unit","unit":"web.service",
      "hash":"91fedf94fc53008fc0aaced7445df2cbf4f33725","desired":"launched",
      "generation":4,"machine":"m-1","source":"[Service]\nExecStart=/bin/web\n"}
    {"kind":"end","units":3,"metadata":1,"intents":2,"faults":0,
      "content":"747432ceaf88a87e475d2f98b2cedf0f27b39c62670de1be418d807c5cd2ab9b",
      "sha256":"9348d54b9730f42f58c6ff320f95e17cc658da464357aab934d22eaefb964cf4"}
    "#);
}

#[tokio::test]
async fn export_is_readable_in_any_chunks() {
    let file = file(&cluster().await).await;
    for size in [1, 2, 100, file.len()] {
        let (mut reader, mut items) = (ExportReader::new(), Vec::new());
        for piece in file.chunks(size) {
            reader.push(piece, &mut |item, line| items.push((item, line))).unwrap();
        }
        let (header, end) = reader.finish().unwrap();
        assert_eq!((items.len(), header.units, end.units, end.metadata), (6, 3, 3, 1));
        assert_eq!((items.last().unwrap().1, end.intents), (7, 2));
    }
}

/// A kind of damage: its name, and the change to the file.
type Damage = (&'static str, fn(&str) -> String);

const DAMAGES: [Damage; 15] = [
    ("emptied", |_| String::new()),
    ("cut within a line", |text| text[..text.len() - 9].to_owned()),
    ("cut between lines", |text| lines(text, |at| at < 4)),
    ("without its header", |text| lines(text, |at| at != 0)),
    ("without a unit", |text| lines(text, |at| at != 5)),
    ("with a letter changed", |text| text.replace("/bin/web", "/bin/wab")),
    ("with a state changed", |text| text.replace("launched", "inactive")),
    ("with a state of its own", |text| text.replace("launched", "perhaps")),
    ("with an intent of its own", |text| text.replace("cordoned", "spared")),
    ("with a machine changed", |text| text.replace("m-1", "m-3")),
    ("with a line twice", |text| format!("{}{text}", lines(text, |at| at == 0))),
    ("with something after it", |text| format!("{text}more\n")),
    ("of a newer format", |text| text.replace("\"version\":2", "\"version\":3")),
    ("of an older format", |text| text.replace("\"version\":2", "\"version\":1")),
    ("with a field that is not known", |text| text.replace("\"hash\"", "\"more\":1,\"hash\"")),
];

fn lines(text: &str, keep: fn(usize) -> bool) -> String {
    let lines = text.lines().enumerate().filter(|(at, _)| keep(*at));
    lines.map(|(_, line)| format!("{line}\n")).collect()
}

#[tokio::test]
async fn damaged_file_is_refused_with_its_location() {
    let text = String::from_utf8(file(&cluster().await).await).unwrap();
    let messages = |(what, damage): &Damage| {
        let damaged = damage(&text);
        assert_ne!(damaged, text, "{what}: nothing was done");
        let error = read(damaged.as_bytes()).expect_err(what);
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{what}: {error}{cause}\n")
    };
    let messages: String = DAMAGES.iter().map(messages).collect();
    insta::assert_snapshot!(wrapped(&messages), @r#"
    emptied: the input is neither a fleetctl export nor an etcd dump (JSON) of fleet
      v1: the input is empty
    cut within a line: the export cannot be used: the export is cut off after line 7:
      its last line is missing
    cut between lines: the export cannot be used: the export is cut off after line 4:
      its last line is missing
    without its header: the export cannot be used: line 1 is not the header of a
      fleetctl export
    without a unit: the export cannot be used: line 7: the checksum does not match the
      lines above: the file was changed after the export
    with a letter changed: the export cannot be used: line 7: hash: the source of
      web.service has hash 1079023bf7bcaf0c02fab80c15cdf9c806014b79, not
      91fedf94fc53008fc0aaced7445df2cbf4f33725
    with a state changed: the export cannot be used: line 8: the checksum does not
      match the lines above: the file was changed after the export
    with a state of its own: the export cannot be used: line 7: desired: unknown state
      "perhaps": write "inactive", "loaded" or "launched"
    with an intent of its own: the export cannot be used: line 4: intent: expected
      "cordoned", or "drained" with keepUp
    with a machine changed: the export cannot be used: line 8: the checksum does not
      match the lines above: the file was changed after the export
    with a line twice: the export cannot be used: line 2: there is a second header
    with something after it: the export cannot be used: line 9: there is data after the
      end
    of a newer format: the export cannot be used: the export has format 3, but this
      version of fleet reads format 2: upgrade fleet
    of an older format: the export cannot be used: the export has format 1, but this
      version of fleet reads format 2: export the cluster again with this version
    with a field that is not known: the export cannot be used: line 5: unknown field
      `more`, expected one of `unit`, `hash`, `desired`, `generation`, `machine`,
      `source`, `sourceBase64`
    "#);
}

/// An unreadable unit affects no other unit, and is reported.
#[tokio::test]
async fn export_names_unreadable_units() {
    let registry = registry();
    let key =
        registry.layout().key(&fleet_store::registry::Key::Unit("bad.service".parse().unwrap()));
    let damage = fleet_store::Transaction::new().put(key, "damage");
    registry.store().commit(damage).await.unwrap();
    let import = read(&file(&registry).await).unwrap();
    assert!(import.units.is_empty());
    assert!(import.remarks[0].starts_with("line 2: bad.service is not in the export"));
}
