//! Converts `RuntimeDirectory=` of systemd to commands that create and remove the directories.

use std::sync::Arc;

use fleet_unitfile::{UnitFile, split_words};

use crate::graph::systemd::CompiledUnit;
use crate::graph::{Command, InitUnit};

/// Options that these commands replace.
pub(super) const OPTIONS: [&str; 2] = ["RuntimeDirectory", "RuntimeDirectoryMode"];

/// Adds the commands to a unit. Returns `false` if commands cannot replace the option.
///
/// The commands run as the user of the unit, so they can only replace the option for a unit without
/// another user. Values with specifiers or links, and directories that outlive the unit, are not
/// converted either.
pub(super) fn convert(compiled: &mut CompiledUnit, parsed: &UnitFile) -> bool {
    let values = |name: &str| {
        let of_service = parsed.options().filter(|it| it.section() == "Service");
        of_service
            .filter(|it| it.name() == name)
            .map(|it| it.value().to_owned())
            .collect::<Vec<_>>()
    };
    let environment = &compiled.unit.run.exec_environment;
    if environment.user.is_some()
        || environment.group.is_some()
        || !values("RuntimeDirectoryPreserve").is_empty()
    {
        return false;
    }
    let mode = values("RuntimeDirectoryMode").pop().unwrap_or_else(|| "0755".to_owned());
    let is_octal = mode.len() <= 4 && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let Some(paths) = paths(&values("RuntimeDirectory")).filter(|_| is_octal) else { return false };
    add(Arc::make_mut(&mut compiled.unit), &mode, &paths);
    true
}

/// Returns the directories of these values. Returns `None` if there are none, or some cannot be
/// converted.
fn paths(values: &[String]) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for value in values {
        if value.is_empty() {
            paths.clear();
        }
        for word in split_words(value).ok()? {
            let is_plain = !word.starts_with('/') && !word.contains(['%', ':', '$']);
            let is_inside = word.split('/').all(|part| !["", ".", ".."].contains(&part));
            paths.push((is_plain && is_inside).then(|| format!("/run/{word}"))?);
        }
    }
    Some(paths).filter(|paths| !paths.is_empty())
}

fn add(unit: &mut InitUnit, mode: &str, paths: &[String]) {
    let command = |program: &str, options: &[&str], ignore_failure| Command {
        program: program.to_owned(),
        arguments: options.iter().map(|it| (*it).to_owned()).chain(paths.iter().cloned()).collect(),
        ignore_failure,
        ..Command::default()
    };
    let run = &mut unit.run;
    run.start_pre.insert(0, command("/usr/bin/install", &["-d", "-m", mode], false));
    run.stop_post.push(command("/bin/rm", &["-rf"], true));
    run.exec_environment.environment.insert(0, ("RUNTIME_DIRECTORY".to_owned(), paths.join(":")));
}
