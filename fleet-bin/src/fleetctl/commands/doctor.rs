//! `doctor`: reports problems of the cluster and of this installation.

use std::path::Path;

use fleet_http::wire::OTHER_STORE;

use crate::fleetctl::Context;
use crate::fleetctl::diagnosis::{ClusterView, Diagnosis, Severity};
use crate::fleetctl::ignored_options::{lost_sandboxing, warnings};
use crate::fleetctl::outdated::{OutdatedInstances, outdated_instances};
use crate::fleetctl::rebalance_status::rebalance_problems;
use crate::fleetd::{certificate_warning, config};
use crate::ui::error::{CliError, Exit};

/// Default configuration file of the daemon and of its service.
const CONFIG: &str = "/etc/fleet/fleet.conf";

const STORE_REMEDY: &str = "check that the store is up and has space, and the log of fleetd";

/// Runs the command. Returns the exit status of a failure if there is a problem. Warnings alone do
/// not cause a failure.
pub(super) async fn run(context: &mut Context) -> Result<Exit, CliError> {
    let mut diagnoses: Vec<Diagnosis> =
        installation_problem(Path::new(CONFIG)).into_iter().collect();
    match context.session.daemon().await {
        Ok(daemon) => {
            diagnoses.extend(version_warning(&daemon.version));
            diagnoses.extend(daemon.join_problem.as_deref().map(join_problem));
            match context.session.unready().await {
                Ok(Some(reason)) if reason == OTHER_STORE => diagnoses.push(refused_store()),
                _ => match cluster_diagnoses(context).await {
                    Ok(found) => diagnoses.extend(found),
                    Err(error) => diagnoses.push(cluster_problem(&error)),
                },
            }
        }
        Err(error) => diagnoses.push(daemon_problem(&error)),
    }
    diagnoses.sort();
    let colour = context.output.colour();
    let text: String = diagnoses.iter().map(|it| it.text(colour)).collect();
    context.output.list(&diagnoses, &text)?;
    let problems = diagnoses.iter().filter(|it| it.severity == Severity::Problem).count();
    let warnings = diagnoses.len() - problems;
    context.progress.note(&match (problems, warnings) {
        (0, 0) => "no problems found".to_owned(),
        _ => format!("{}, {}", counted(problems, "problem"), counted(warnings, "warning")),
    });
    Ok(if problems > 0 { Exit::Failure } else { Exit::Success })
}

async fn cluster_diagnoses(context: &Context) -> Result<Vec<Diagnosis>, CliError> {
    let session = &context.session;
    let (units, states, machines, absent, order) = futures_util::try_join!(
        session.units(),
        session.states(),
        session.machines(),
        session.absent_machines(),
        session.rebalancing()
    )?;
    let mut diagnoses: Vec<Diagnosis> =
        order.iter().flat_map(|order| rebalance_problems(order, &states, &machines)).collect();
    if let Some(reason) = session.unready().await? {
        let age = session.behind().map_or_else(String::new, |age| {
            format!(" (this report is at least {} s old)", age.as_secs())
        });
        diagnoses.push(Diagnosis::problem("store", format!("{reason}{age}"), STORE_REMEDY));
    }
    diagnoses.extend(warnings(&lost_sandboxing(session, &states, &machines).await?));
    let outdated = outdated_instances(session, &units).await?;
    diagnoses.extend(outdated.iter().map(OutdatedInstances::diagnosis));
    diagnoses.extend(ClusterView { units, states, machines, absent }.diagnose());
    Ok(diagnoses)
}

/// Reports that the daemon runs, but refuses its store.
fn refused_store() -> Diagnosis {
    let message = "fleetd refuses its store, which was emptied or replaced: it leaves its units \
                   running, and does nothing else";
    let remedy = "restore the store from a backup; or, if the present store is right, run \
                  \"fleetd accept-store\" on each machine; then restart fleetd";
    Diagnosis::problem("store", message.to_owned(), remedy)
}

/// Reports that the state of the cluster cannot be read, for example because the daemon has not
/// reached its store since it was started.
fn cluster_problem(error: &CliError) -> Diagnosis {
    let message = format!("{error}: {}", error.nearest_cause());
    Diagnosis::problem("store", message, STORE_REMEDY)
}

fn daemon_problem(error: &CliError) -> Diagnosis {
    let message = format!("{error}: {}", error.nearest_cause());
    let remedy = "start one (\"systemctl start fleet\" or \"fleetd dev\"), or set \
                  the --endpoint of another";
    Diagnosis::problem("fleetd", message, remedy)
}

/// Reports that the daemon waits to join the cluster. The reason names its remedy.
fn join_problem(reason: &str) -> Diagnosis {
    let message = format!("this fleetd has not joined the cluster: {reason}");
    let remedy = "remove the cause: fleetd tries again by itself, and leaves its running units \
                  alone until then";
    Diagnosis::problem("fleetd", message, remedy)
}

fn version_warning(daemon: &str) -> Option<Diagnosis> {
    let own = env!("CARGO_PKG_VERSION");
    let message = format!("fleetctl has version {own}, and fleetd {daemon}");
    let remedy = "install both from one release: they may be incompatible";
    (daemon != own).then(|| Diagnosis::warning("fleetctl", message, remedy))
}

/// Returns the problem of the local daemon configuration, if there is one.
fn installation_problem(file: &Path) -> Option<Diagnosis> {
    if !file.exists() {
        return None;
    }
    let read = config::find(Some(file), &|_| None, config::RawConfig::new());
    let remedy = format!("fix the file, then run \"fleetd check-config {}\"", file.display());
    match read.and_then(|low| config::Config::resolve(&low)) {
        Ok(config) => {
            let warning = certificate_warning(&config)?;
            let remedy = "replace the certificate, then run \"systemctl reload fleet\"";
            Some(Diagnosis::warning("configuration", warning, remedy))
        }
        Err(error) => Some(Diagnosis::problem("configuration", error.to_string(), remedy)),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_daemon_configuration_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.conf");
        assert_eq!(installation_problem(&file).into_iter().count(), 0);
        std::fs::write(&file, "store = \"embedded\"\n").unwrap();
        assert_eq!(installation_problem(&file), None);
        std::fs::write(&file, "stoer = \"embedded\"\n").unwrap();
        let problem = installation_problem(&file).unwrap();
        assert!(problem.message.contains("stoer"), "{problem:?}");
    }
}
