//! `doctor`: what is wrong with this cluster and this installation.

use std::path::Path;

use crate::fleetctl::ailments::{Ailment, Patient, Severity};
use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::stalled::stalled;
use crate::fleetd::config;

/// What the daemon reads where nothing else is said, and what its service is given.
const CONFIG: &str = "/etc/fleet/fleet.conf";

/// Runs the command: 0 where nothing is wrong or only odd, 1 where something does not work.
pub(super) async fn run(context: &mut Context) -> Result<Exit, CliError> {
    let mut ailments: Vec<Ailment> = of_installation(Path::new(CONFIG)).into_iter().collect();
    match context.session.version().await {
        Ok(version) => {
            ailments.extend(of_versions(&version));
            ailments.extend(of_cluster(context).await?);
        }
        Err(error) => ailments.push(of_daemon(&error)),
    }
    ailments.sort();
    let colour = context.output.colour();
    let text: String = ailments.iter().map(|it| it.text(colour)).collect();
    context.output.list(&ailments, &text)?;
    let problems = ailments.iter().filter(|it| it.severity == Severity::Problem).count();
    let warnings = ailments.len() - problems;
    context.progress.note(&match (problems, warnings) {
        (0, 0) => "nothing is wrong".to_owned(),
        _ => format!("{}, {}", counted(problems, "problem"), counted(warnings, "warning")),
    });
    Ok(if problems > 0 { Exit::Failure } else { Exit::Success })
}

async fn of_cluster(context: &Context) -> Result<Vec<Ailment>, CliError> {
    let session = &context.session;
    let (units, states, machines, order) = futures_util::try_join!(
        session.units(),
        session.states(),
        session.machines(),
        session.rebalancing()
    )?;
    let mut ailments: Vec<Ailment> =
        order.iter().flat_map(|order| stalled(order, &states, &machines)).collect();
    if let Some(age) = session.behind() {
        let message = format!("fleetd lost its store {} s ago, and knows no more", age.as_secs());
        let remedy = "see whether the store is up, and what the log of fleetd says of it";
        ailments.push(Ailment::problem("store", message, remedy));
    }
    ailments.extend(Patient { units, states, machines }.ailments());
    Ok(ailments)
}

fn of_daemon(error: &CliError) -> Ailment {
    let message = format!("{error}: {}", error.nearest_cause());
    let remedy = "start one (\"systemctl start fleet\", \"fleetd dev\"), or say where one is: \
                  --endpoint URL";
    Ailment::problem("fleetd", message, remedy)
}

fn of_versions(daemon: &str) -> Option<Ailment> {
    let own = env!("CARGO_PKG_VERSION");
    let message = format!("fleetctl has version {own}, and fleetd {daemon}");
    let remedy = "install both from one release: what is newer may be misunderstood";
    (daemon != own).then(|| Ailment::warning("fleetctl", message, remedy))
}

/// What the configuration on this machine would say to a daemon, if there is one.
fn of_installation(file: &Path) -> Option<Ailment> {
    if !file.exists() {
        return None;
    }
    let read = config::find(Some(file), &|_| None, config::Low::new());
    let error = read.and_then(|low| config::Config::resolve(&low)).err()?;
    let remedy = format!("mend it; \"fleetd check-config {}\" checks it", file.display());
    Some(Ailment::problem("configuration", error.to_string(), remedy))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_no_daemon_takes_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.conf");
        assert_eq!(of_installation(&file).into_iter().count(), 0);
        std::fs::write(&file, "store = \"embedded\"\n").unwrap();
        assert_eq!(of_installation(&file), None);
        std::fs::write(&file, "stoer = \"embedded\"\n").unwrap();
        let told = of_installation(&file).unwrap();
        assert!(told.message.contains("stoer"), "{told:?}");
    }
}
