//! What systemd makes of units: their files go into a machine, their properties come out.

use std::fs;
use std::path::Path;

use fleet_unitfile::UnitName;
use serde_json::{Value, json};

use crate::cases::{Case, File};
use crate::expected::Properties;
use crate::machine::Machine;

/// What systemd says of a unit.
pub(crate) struct Answer {
    pub(crate) load_state: String,
    pub(crate) properties: Properties,
}

/// Two loops, since the machine has to start a program for each unit.
const ASK: &str = r#"
rm -rf /run/systemd/system /etc/systemd/system/q* /usr/local/lib/systemd/system
rm -rf /etc/systemd/system/service.d /etc/systemd/system/timer.d /etc/systemd/system/target.d
cp -r /srv/share/batch/. /
systemctl daemon-reload
ask() {
    while read -r unit; do
        busctl --json=short call org.freedesktop.systemd1 "$unit" \
            org.freedesktop.DBus.Properties GetAll s "" || echo null
    done <"/srv/share/$1" >"/srv/share/$1.out"
}
ask odd &
ask even
wait $!
"#;

/// The answers to each unit, in order.
pub(crate) fn ask(machine: &Machine, cases: &[Case], shared: &[File]) -> Vec<Answer> {
    let share = machine.share();
    let batch = share.join("batch");
    let files = cases.iter().flat_map(|case| &case.files).chain(shared);
    for (path, source) in files {
        write(&batch.join(path.trim_start_matches('/')), source);
    }
    write(&batch.join("run/systemd/system/.keep"), b"");
    let (mut odd, mut even) = (String::new(), String::new());
    for (at, case) in cases.iter().enumerate() {
        let list = if at % 2 == 0 { &mut even } else { &mut odd };
        list.push_str(&bus_path(&case.name));
        list.push('\n');
    }
    write(&share.join("odd"), odd.as_bytes());
    write(&share.join("even"), even.as_bytes());
    machine.shell(ASK);
    fs::remove_dir_all(&batch).expect("the batch was read");
    let [odd, even] = ["odd", "even"].map(|list| read(&share.join(format!("{list}.out"))));
    let (mut odd, mut even) = (odd.into_iter(), even.into_iter());
    let each = (0..cases.len()).map(|at| if at % 2 == 0 { even.next() } else { odd.next() });
    each.map(|answer| answer.expect("systemd answered for each unit")).collect()
}

#[expect(clippy::disallowed_methods, reason = "the machine reads the files")]
fn write(path: &Path, source: &[u8]) {
    let folder = path.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).expect("the machine's folder can be written");
    fs::write(path, source).expect("the machine's folder can be written");
}

#[expect(clippy::disallowed_methods, reason = "the machine wrote the file")]
fn read(path: &Path) -> Vec<Answer> {
    let text = fs::read_to_string(path).expect("the machine wrote it");
    text.lines().map(answer).collect()
}

fn answer(line: &str) -> Answer {
    let mut reply: Value = serde_json::from_str(line).expect("busctl writes JSON");
    let Value::Object(all) = reply.pointer_mut("/data/0").map(Value::take).unwrap_or_default()
    else {
        let load_state = "no answer".to_owned();
        return Answer { load_state, properties: Properties::new() };
    };
    let properties: Properties =
        all.into_iter().map(|(name, mut value)| (name, value["data"].take())).collect();
    let load_state = properties["LoadState"].as_str().expect("a text").to_owned();
    Answer { load_state, properties }
}

/// Where the bus has a unit.
fn bus_path(name: &UnitName) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    for byte in name.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => path.push(byte.into()),
            _ => path.push_str(&format!("_{byte:02x}")),
        }
    }
    path
}

/// A property without what a file does not say: when things happened, and what all units have.
pub(crate) fn comparable(property: &str, value: Value) -> Value {
    let Value::Array(all) = value else { return value };
    let first = |count: usize| {
        let cut = |it: &Value| json!(it.as_array().map(|it| &it[..count]));
        Value::Array(all.iter().map(cut).collect())
    };
    match property {
        "Conditions" | "Asserts" => first(4),
        "TimersCalendar" => json!(all.len()),
        "TimersMonotonic" => first(2),
        _ if property.starts_with("Exec") => first(3),
        "After" | "Before" | "BindsTo" | "Conflicts" | "OnFailure" | "OnSuccess" | "PartOf"
        | "PropagatesReloadTo" | "Requires" | "Requisite" | "Wants" => {
            let is_told = |it: &&Value| it.as_str().is_some_and(|it| it.starts_with("dep-"));
            let mut told: Vec<Value> = all.iter().filter(is_told).cloned().collect();
            told.sort_by_key(|it| it.as_str().map(str::to_owned));
            Value::Array(told)
        }
        _ => Value::Array(all),
    }
}
