//! Pure: hints for commands of other init systems, which fleet-init does not have.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::ui::names::nearest;

/// Commands of other inits with the commands that serve their purpose here.
const HINTS: [(&[&str], &str); 6] = [
    (
        &["start", "stop", "enable", "disable", "add", "delete"],
        "fleet-init runs what the goal needs: see `set-target --with`, `mask` and `unmask` in \
         `fleet-init --help`",
    ),
    (&["isolate", "change"], "choose another goal with `fleet-init set-target GOAL`"),
    (&["daemon-reload", "update"], "read the files again with `fleet-init reload`"),
    (&["list", "list-units", "is-active", "is-failed", "show"], "see `fleet-init status`"),
    (&["journal", "catlog"], "see `fleet-init logs UNIT`"),
    (&["verify", "lint"], "check the files with `fleet-init check PATH`"),
];

/// Replaces the suggestions of clap for an unknown command, whose measure of similarity suggests
/// `restart` for `start`.
pub(super) fn with_hint(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let hint = HINTS.iter().find(|(commands, _)| commands.contains(&wrong.as_str()));
    let names = command.get_subcommands().map(clap::Command::get_name);
    if let Some((_, hint)) = hint {
        let hint = ContextValue::StyledStrs(vec![StyledStr::from(*hint)]);
        error.insert(ContextKind::Suggested, hint);
    } else if let Some(near) = nearest(&wrong, names) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::fleet_init::args::Cli;

    #[test]
    fn commands_of_other_inits_get_a_hint() {
        let all = HINTS.iter().flat_map(|(commands, _)| *commands);
        let hints = all.map(|command| (*command, "fleet-init "));
        let others = [("statsu", "'status'"), ("start", "set-target --with"), ("frobnicate", "")];
        for (command, hint) in hints.chain(others) {
            let error = Cli::command().try_get_matches_from(["fleet-init", command]).unwrap_err();
            let text = with_hint(error, &Cli::command()).to_string();
            let tip = text.lines().find(|line| line.contains("tip:")).unwrap_or_default();
            assert!(tip.contains(hint) && tip.is_empty() == hint.is_empty(), "{command}: {text}");
            assert!(!tip.contains("'restart'"), "{command}: {text}");
        }
    }
}
