//! The table of commands and target states.

use fleet_core::TargetState::{self, Inactive, Launched, Loaded};
use fleet_core::unit::{LoadState, Transition};
use fleet_core::{ActiveState, Verb};

const FROM: [Option<TargetState>; 4] = [None, Some(Inactive), Some(Loaded), Some(Launched)];

/// Returns the effect of a command: `same`, `refused`, or the new state.
fn outcome(verb: Verb, from: Option<TargetState>) -> &'static str {
    match verb.apply(from) {
        Err(_) => "refused",
        Ok(Transition::Unchanged) => "same",
        Ok(Transition::Change(None)) => "none",
        Ok(Transition::Change(Some(state))) => state.as_str(),
    }
}

#[test]
fn commands_apply_to_documented_states_only() {
    let table = [
        // from:       none        inactive    loaded      launched
        (Verb::Submit, ["inactive", "same", "refused", "refused"]),
        (Verb::Load, ["loaded", "loaded", "same", "refused"]),
        (Verb::Start, ["launched", "launched", "launched", "same"]),
        (Verb::Stop, ["refused", "refused", "same", "loaded"]),
        (Verb::Unload, ["refused", "same", "inactive", "inactive"]),
        (Verb::Destroy, ["same", "none", "none", "none"]),
    ];
    for (verb, expected) in table {
        let found = FROM.map(|from| outcome(verb, from));
        assert_eq!(found, expected, "{}", verb.as_str());
    }
}

#[test]
fn invalid_transition_states_a_remedy() {
    let verbs = [Verb::Submit, Verb::Load, Verb::Start, Verb::Stop, Verb::Unload, Verb::Destroy];
    let pairs = verbs.iter().flat_map(|verb| FROM.map(|from| verb.apply(from)));
    let refusals: Vec<String> = pairs.filter_map(|r| Some(r.err()?.to_string())).collect();
    insta::assert_snapshot!(refusals.join("\n"), @"
cannot submit a unit whose desired state is loaded: use unload to take it down to inactive
cannot submit a unit whose desired state is launched: use unload to take it down to inactive
cannot load a unit whose desired state is launched: use stop to take it down to loaded
cannot stop a unit that is not known: submit it first
cannot stop a unit whose desired state is inactive: it is not started
cannot unload a unit that is not known: submit it first
");
}

#[test]
fn steps_pass_every_state_between() {
    let table: [(TargetState, TargetState, &[TargetState]); 9] = [
        (Inactive, Inactive, &[]),
        (Inactive, Loaded, &[Loaded]),
        (Inactive, Launched, &[Loaded, Launched]),
        (Loaded, Inactive, &[Inactive]),
        (Loaded, Loaded, &[]),
        (Loaded, Launched, &[Launched]),
        (Launched, Inactive, &[Loaded, Inactive]),
        (Launched, Loaded, &[Loaded]),
        (Launched, Launched, &[]),
    ];
    for (from, to, expected) in table {
        assert_eq!(from.steps_to(to).collect::<Vec<_>>(), expected, "{from} to {to}");
    }
}

#[test]
fn target_states_parse_back() {
    for state in LoadState::ALL {
        assert_eq!(state.as_str().parse(), Ok(*state));
    }
    for state in ActiveState::ALL {
        assert_eq!(state.as_str().parse(), Ok(*state));
    }
    let error = "asleep".parse::<ActiveState>().unwrap_err();
    insta::assert_snapshot!(error, @r#""asleep" is not a value of ActiveState in systemd"#);
    for state in TargetState::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
    }
    let error = "Launched".parse::<TargetState>().unwrap_err();
    insta::assert_snapshot!(error, @r#"
unknown state "Launched": write "inactive", "loaded" or "launched"
"#);
}
