//! The variables that a process of a unit is started with, and nothing else that fleet itself has.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fleet_core::graph::Surroundings;

use super::identity::User;
use super::opening::read_text;

/// How many bytes a file of variables may have.
const LONGEST: u64 = 1024 * 1024;

/// Where programs are looked for that are not named by their path, as systemd does.
pub(crate) const SEARCH_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Collects the variables for one process; each source overrides those before it.
///
/// | order | source |
/// |---|---|
/// | 1 | `PATH`, and what the service manager was told to pass to all units |
/// | 2 | `HOME`, `USER`, `LOGNAME`, `SHELL` where `User=` is set |
/// | 3 | `PassEnvironment=` from fleet's own environment |
/// | 4 | `Environment=` |
/// | 5 | `EnvironmentFile=` |
/// | 6 | what `UnsetEnvironment=` names is taken away |
/// | 7 | `INVOCATION_ID`, and those that tell a command of its service: `extra` |
pub(crate) fn collect(
    surroundings: &Surroundings,
    passed: &[(String, String)],
    user: Option<&User>,
    extra: &[(&str, String)],
) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::from([("PATH".to_owned(), SEARCH_PATH.join(":"))]);
    all.extend(passed.iter().cloned());
    if let Some(user) = user {
        all.extend(user.variables());
    }
    for name in &surroundings.pass_environment {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.clone(), value);
        }
    }
    all.extend(surroundings.environment.iter().cloned());
    for file in &surroundings.environment_files {
        match read_text(Path::new(&file.path), LONGEST) {
            Ok(text) => all.extend(parse_file(&text)),
            Err(error) if file.optional && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(format!("cannot read EnvironmentFile={}: {error}", file.path));
            }
        }
    }
    for unset in &surroundings.unset_environment {
        match unset.split_once('=') {
            Some((name, value)) if all.get(name).is_some_and(|set| set == value) => {
                all.remove(name);
            }
            Some(_) => {}
            None => {
                all.remove(unset);
            }
        }
    }
    all.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Ok(all)
}

/// Reads a file of variables: `NAME=value` lines, comments with `#` and `;`, quotes that may span
/// lines, and backslashes before what is to be taken as it is. What is no assignment is skipped.
pub(crate) fn parse_file(text: &str) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        rest = rest.trim_start();
        if rest.starts_with(['#', ';']) {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let line = rest.split('\n').next().unwrap_or("");
        let Some((name, _)) = line.split_once('=') else {
            rest = rest[line.len()..].trim_start_matches('\n');
            continue;
        };
        let (value, after) = parse_value(&rest[name.len() + 1..]);
        let name = name.trim();
        if is_variable(name) {
            variables.push((name.to_owned(), value));
        }
        rest = after;
    }
    variables
}

/// Whether a text may be the name of a variable.
fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads a value up to the end of its line, and returns what comes after.
fn parse_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // How much of the value stays when the blanks at its end are taken off.
    let mut kept = 0;
    let mut quote = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (None, '\n') => {
                value.truncate(kept);
                return (value, &text[at + 1..]);
            }
            (None, ' ' | '\t' | '\r') if value.is_empty() => {}
            (None, ' ' | '\t' | '\r') => value.push(character),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => {
                quote = None;
                kept = value.len();
            }
            (Some('\''), _) => value.push(character),
            (_, '\\') => {
                unescape(quote, characters.next().map(|(_, next)| next), &mut value);
                kept = value.len();
            }
            _ => {
                value.push(character);
                kept = value.len();
            }
        }
    }
    value.truncate(kept.max(if quote.is_some() { value.len() } else { 0 }));
    (value, "")
}

/// A backslash joins lines, and takes the next character as it is; within double quotes it does
/// so only for the few that mean something there.
fn unescape(quote: Option<char>, next: Option<char>, value: &mut String) {
    let Some(next) = next else { return };
    if next == '\n' {
        return;
    }
    if quote.is_some() && !matches!(next, '"' | '\\' | '`' | '$') {
        value.push('\\');
    }
    value.push(next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_variables() {
        for (text, expected) in [
            ("A=1\nB=two words  \n", &[("A", "1"), ("B", "two words")][..]),
            ("# A=1\n ; B=2\n\n  C = 3 ", &[("C", "3")]),
            ("A='x  $B' \nB=\"l1\nl2\"\n", &[("A", "x  $B"), ("B", "l1\nl2")]),
            ("A=a\\\nb\nB=\"\\$x \\n\"", &[("A", "ab"), ("B", "$x \\n")]),
            ("nonsense\nA=\n1B=x\nB==\n", &[("A", ""), ("B", "=")]),
            ("A=\\ x\\ ", &[("A", " x ")]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(parse_file(text), expected, "{text:?}");
        }
    }

    #[test]
    fn later_sources_win_and_unset_wins_over_all_but_the_identity() {
        let surroundings = Surroundings {
            environment: vec![("A".into(), "unit".into()), ("B".into(), "b".into())],
            unset_environment: vec!["B".into(), "A=other".into(), "INVOCATION_ID".into()],
            ..Surroundings::default()
        };
        let passed = [("A".to_owned(), "machine".to_owned())];
        let all = collect(&surroundings, &passed, None, &[("INVOCATION_ID", "7".into())]);
        let all = all.expect("no file is read");
        let of = |name: &str| all.get(name).map(String::as_str);
        assert_eq!((of("A"), of("B"), of("INVOCATION_ID")), (Some("unit"), None, Some("7")));
        assert!(of("PATH").is_some_and(|path| path.starts_with("/usr/local/sbin:")));
    }
}
