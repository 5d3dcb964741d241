//! Loads units into systemd in a machine, and returns their properties.

use std::fs;
use std::path::Path;

use fleet_unitfile::UnitName;
use serde_json::{Value, json};

use crate::cases::{Case, File};
use crate::expected::Properties;
use crate::machine::Machine;

/// The state of a unit in systemd.
pub(crate) struct SystemdUnit {
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

/// Returns the state of each unit, in order.
pub(crate) fn ask(machine: &Machine, cases: &[Case], shared: &[File]) -> Vec<SystemdUnit> {
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
fn read(path: &Path) -> Vec<SystemdUnit> {
    let text = fs::read_to_string(path).expect("the machine wrote it");
    text.lines().map(answer).collect()
}

fn answer(line: &str) -> SystemdUnit {
    let mut reply: Value = serde_json::from_str(line).expect("busctl writes JSON");
    let Value::Object(all) = reply.pointer_mut("/data/0").map(Value::take).unwrap_or_default()
    else {
        let load_state = "no answer".to_owned();
        return SystemdUnit { load_state, properties: Properties::new() };
    };
    let properties: Properties =
        all.into_iter().map(|(name, mut value)| (name, value["data"].take())).collect();
    let load_state = properties["LoadState"].as_str().expect("a text").to_owned();
    SystemdUnit { load_state, properties }
}

/// Returns the D-Bus path of a unit.
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

/// Removes the parts of a property that do not come from the unit file, such as timestamps and
/// implicit dependencies.
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
            let is_shown = |it: &&Value| it.as_str().is_some_and(|it| it.starts_with("dep-"));
            let mut reported: Vec<Value> = all.iter().filter(is_shown).cloned().collect();
            reported.sort_by_key(|it| it.as_str().map(str::to_owned));
            Value::Array(reported)
        }
        _ => Value::Array(all),
    }
}
