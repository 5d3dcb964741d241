//! The variables that a process of a unit is started with, and nothing else that fleet itself has.

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fleet_core::graph::Surroundings;

use self::file::parse_file;
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
        match read_text(Path::new(&file.path), LONGEST).and_then(without_zero) {
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

/// No variable can have a zero byte.
fn without_zero(text: String) -> io::Result<String> {
    if text.contains('\0') { Err(io::Error::other("it has a zero byte")) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
