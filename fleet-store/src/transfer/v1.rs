//! Pure: a dump of the keys of fleet v1 in an etcd of version 2.
//!
//! Two forms are accepted: the response of `/v2/keys/…?recursive=true` with nested nodes, and one
//! flat object of keys and values. The keys of units reveal the prefix of the cluster's keys.
//!
//! | key, after the prefix | meaning for the import |
//! |---|---|
//! | `job/<unit>/object` | the unit exists; the hash of its content |
//! | `job/<unit>/target-state` | its desired state |
//! | `job/<unit>/target` | its machine |
//! | `unit/<hash>` | the text of a unit file |
//! | `machines/<id>/metadata/<key>` | run-time metadata |
//!
//! A unit file is refused together with its units if its text does not match the hash in its key.
//! All other keys of fleet v1 hold transient state and are ignored.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Generation, MachineId, TargetState};
use fleet_unitfile::UnitName;
use serde::Deserialize;
use serde_json::Value;
use sha1::{Digest as _, Sha1};

use super::import::{Import, ImportMetadata, ImportOrigin, ImportUnit, RefusedImport};

/// Error of a text that is not a dump of fleet v1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum V1DumpError {
    /// The text is empty.
    #[error("the input is empty")]
    Empty,
    /// The text is not JSON.
    #[error(
        "line {line}, column {column}: {problem}: create the dump with curl \
         'http://ETCD:2379/v2/keys/_coreos.com/fleet?recursive=true'"
    )]
    Json {
        /// Line number, from 1.
        line: usize,
        /// Column number, from 1.
        column: usize,
        /// Problem at that position.
        problem: String,
    },
    /// The JSON does not consist of keys with values.
    #[error("{location} is neither an etcd node with a key nor a text value")]
    Shape {
        /// Location in the text.
        location: String,
    },
    /// The text is an error response of etcd.
    #[error("the input is an error response of etcd: {0}")]
    Refused(String),
    /// There is no unit, so the prefix of fleet's keys is unknown.
    #[error("no key of the dump belongs to fleet: expected keys such as …/job/web.service/object")]
    NoUnits {
        /// Number of keys.
        keys: usize,
    },
    /// There are keys of several clusters.
    #[error(
        "the dump has the keys of several clusters, {}: dump the keys of one cluster",
        .prefixes.join(" and ")
    )]
    Several {
        /// Prefixes of the clusters.
        prefixes: Vec<String>,
    },
    /// The text is too large.
    #[error("the input is larger than {} MiB", .most >> 20)]
    TooLarge {
        /// Maximum size in bytes.
        most: u64,
    },
}

type Keys = BTreeMap<String, String>;

/// Reads the keys of a cluster.
pub(super) fn read(text: &[u8]) -> Result<Import, V1DumpError> {
    if text.is_empty() {
        return Err(V1DumpError::Empty);
    }
    let value: Value = serde_json::from_slice(text).map_err(|error| bad_json(&error))?;
    let mut keys = Keys::new();
    collect(value, &mut keys)?;
    let prefix = prefix(&keys)?;
    let mut cluster = Cluster::default();
    for (key, value) in keys {
        match key.strip_prefix(&prefix) {
            Some(rest) => cluster.take(rest, value),
            None => cluster.unknown.push(key),
        }
    }
    Ok(cluster.into_import(prefix))
}

fn bad_json(error: &serde_json::Error) -> V1DumpError {
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or_default().to_owned();
    V1DumpError::Json { line: error.line(), column: error.column(), problem }
}

/// Collects keys and values from any of the forms.
fn collect(value: Value, keys: &mut Keys) -> Result<(), V1DumpError> {
    let Value::Object(mut object) = value else {
        return Err(V1DumpError::Shape { location: "the document".to_owned() });
    };
    if object.contains_key("errorCode") {
        let message = object.get("message").and_then(Value::as_str).unwrap_or_default();
        return Err(V1DumpError::Refused(message.to_owned()));
    }
    if let Some(node) = object.remove("node") {
        return collect_node(node, "node", keys);
    }
    if object.contains_key("nodes") {
        return collect_node(Value::Object(object), "the document", keys);
    }
    for (key, value) in object {
        let Value::String(value) = value else {
            return Err(V1DumpError::Shape { location: format!("the value of {key:?}") });
        };
        keys.insert(key, value);
    }
    Ok(())
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    key: String,
    value: Option<String>,
    #[serde(default)]
    nodes: Vec<Value>,
}

fn collect_node(node: Value, location: &str, keys: &mut Keys) -> Result<(), V1DumpError> {
    let shape = |_| V1DumpError::Shape { location: location.to_owned() };
    let node: Node = serde_json::from_value(node).map_err(shape)?;
    let within = if node.key.is_empty() { location } else { &node.key };
    for inner in node.nodes {
        collect_node(inner, &format!("a node in {within}"), keys)?;
    }
    if let Some(value) = node.value {
        keys.insert(node.key, value);
    }
    Ok(())
}

/// Returns the common prefix of the cluster's keys.
fn prefix(keys: &Keys) -> Result<String, V1DumpError> {
    let of_unit = |key: &String| {
        let (job, last) = key.rsplit_once('/')?;
        let (above, _) = job.rsplit_once('/')?;
        let known = ["object", "target-state", "target", "job-state"].contains(&last);
        let prefix = above.strip_suffix("job")?;
        (known && (prefix.is_empty() || prefix.ends_with('/'))).then(|| prefix.to_owned())
    };
    let prefixes: BTreeSet<String> = keys.keys().filter_map(of_unit).collect();
    let mut prefixes: Vec<String> = prefixes.into_iter().collect();
    match prefixes.len() {
        0 => Err(V1DumpError::NoUnits { keys: keys.len() }),
        1 => Ok(prefixes.remove(0)),
        _ => Err(V1DumpError::Several { prefixes }),
    }
}

/// Values of the keys by kind.
#[derive(Default)]
struct Cluster {
    jobs: BTreeMap<String, Job>,
    /// Text of each content by its hash.
    contents: Keys,
    metadata: Vec<(String, String, String)>,
    unknown: Vec<String>,
}

/// Keys of a unit.
#[derive(Default)]
struct Job {
    object: Option<String>,
    target_state: Option<String>,
    target: Option<String>,
}

/// Value of `job/<unit>/object`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Object {
    name: String,
    unit_hash: [u8; 20],
}

/// Value of `unit/<hash>`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    raw: String,
}

impl Cluster {
    fn take(&mut self, key: &str, value: String) {
        let parts: Vec<&str> = key.split('/').collect();
        match parts[..] {
            ["job", unit, what] => {
                let job = self.jobs.entry(unit.to_owned()).or_default();
                match what {
                    "object" => job.object = Some(value),
                    "target-state" => job.target_state = Some(value),
                    "target" => job.target = Some(value),
                    "job-state" => {}
                    _ => self.unknown.push(key.to_owned()),
                }
            }
            ["unit", hash] => drop(self.contents.insert(hash.to_owned(), value)),
            ["machines", id, "metadata", key] => {
                self.metadata.push((id.to_owned(), key.to_owned(), value));
            }
            ["machines", _, "object"]
            | ["states", _, _]
            | ["state", _]
            | ["lease", _]
            | ["engine", "version"] => {}
            _ => self.unknown.push(key.to_owned()),
        }
    }

    fn into_import(self, prefix: String) -> Import {
        let mut import = Import::empty(ImportOrigin::V1 { prefix });
        for (name, job) in &self.jobs {
            self.import_job(name, job, &mut import);
        }
        for (machine, key, value) in self.metadata {
            let location = format!("machines/{machine}/metadata/{key}");
            match machine.parse() {
                Ok(machine) => {
                    import.metadata.push(ImportMetadata { location, machine, key, value });
                }
                Err(error) => import.refused.push(RefusedImport::new(location, machine, error)),
            }
        }
        if let Some(remark) = unknown_keys_remark(&self.unknown) {
            import.remarks.push(remark);
        }
        import
    }

    fn import_job(&self, name: &str, job: &Job, import: &mut Import) {
        let Some(object) = &job.object else {
            let rest = "it is left over from a destroyed unit";
            import.remarks.push(format!("job/{name} has no object and is ignored: {rest}"));
            return;
        };
        let location = format!("job/{name}/object");
        match self.unit(name, object) {
            Ok((name, source)) => {
                let desired = match desired(&name, job, &mut import.remarks) {
                    Ok(desired) => desired,
                    Err(reason) => {
                        let location = format!("job/{name}/target-state");
                        let refused = RefusedImport::new(location, name.to_string(), reason);
                        return import.refused.push(refused);
                    }
                };
                let machine = machine(&name, job, &mut import.remarks);
                let generation = Generation::ZERO;
                let unit = ImportUnit { location, name, source, desired, generation, machine };
                import.units.push(unit);
            }
            Err(reason) => {
                import.refused.push(RefusedImport::new(location, name.to_owned(), reason));
            }
        }
    }

    /// Returns the name of a unit and the bytes of its file.
    fn unit(&self, name: &str, object: &str) -> Result<(UnitName, Vec<u8>), String> {
        let object: Object = serde_json::from_str(object)
            .map_err(|error| format!("the object cannot be read: {error}"))?;
        if object.name != name {
            return Err(format!("the object belongs to {:?}", object.name));
        }
        let parsed: UnitName = name.parse().map_err(|error| format!("{error}"))?;
        let hash: String = object.unit_hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let content = self.contents.get(&hash);
        let content = content.ok_or_else(|| format!("its unit file unit/{hash} is missing"))?;
        let content: Content = serde_json::from_str(content)
            .map_err(|error| format!("its unit file unit/{hash} cannot be read: {error}"))?;
        // The hash is computed from the text, which fleet v1 stored in canonical form.
        let own: [u8; 20] = Sha1::digest(&content.raw).into();
        if own != object.unit_hash {
            return Err(format!(
                "its unit file unit/{hash} is damaged, because the text has another hash: submit \
                 the unit by hand"
            ));
        }
        Ok((parsed, content.raw.into_bytes()))
    }
}

/// Returns the desired state of a unit, which is inactive if none is stored. The stored state is
/// missing if fleet v1 was interrupted while it created the unit.
fn desired(name: &UnitName, job: &Job, remarks: &mut Vec<String>) -> Result<TargetState, String> {
    let Some(state) = &job.target_state else {
        remarks.push(format!("job/{name} has no target-state: {name} is imported as inactive"));
        return Ok(TargetState::Inactive);
    };
    state.parse().map_err(|error| format!("{error}"))
}

fn machine(name: &UnitName, job: &Job, remarks: &mut Vec<String>) -> Option<MachineId> {
    let target = job.target.as_deref().filter(|target| !target.is_empty())?;
    let machine = target.parse();
    if let Err(error) = &machine {
        remarks.push(format!("job/{name}/target is ignored: {error}"));
    }
    machine.ok()
}

/// Returns a remark about keys that fleet v1 does not use.
fn unknown_keys_remark(keys: &[String]) -> Option<String> {
    const SHOWN: usize = 3;
    let shown = keys.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let rest = match keys.len() {
        0 => return None,
        count if count > SHOWN => format!(" and {} more", count - SHOWN),
        _ => String::new(),
    };
    Some(format!("keys that fleet v1 does not use are ignored: {shown}{rest}"))
}
