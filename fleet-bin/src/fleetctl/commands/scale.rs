//! `scale`: sets the number of instances of a template.

use std::collections::BTreeMap;

use fleet_core::{TargetState, Verb};
use fleet_http::wire;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::{rollout, start};
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::ScaleArgs;
use crate::fleetctl::args::{CreateArgs, WaitUntil};
use crate::fleetctl::commands::stop;
use crate::fleetctl::local::read_units;
use crate::fleetctl::outdated::outdated_instances;
use crate::fleetctl::session::Session;
use crate::ui::error::{CliError, Exit};
use crate::ui::names::{UnitArg, unit_arg, unit_args};
use crate::ui::output::Record;

/// Change of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct InstanceChange {
    unit: String,
    /// `create`, `start`, `destroy` or `none`.
    change: &'static str,
}

impl Record for InstanceChange {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command: missing instances start before surplus ones are destroyed.
pub(super) async fn run(context: &mut Context, args: ScaleArgs) -> Result<Exit, CliError> {
    let template = template(&args.template)?;
    let known = context.session.instances(&template).await?;
    let changes = changes(&template, args.count, &known)?;
    note_outdated(context, &template, &known).await?;
    check_source(&context.session, &args.template, &changes).await?;
    let count = changes.iter().filter(|it| it.change != "none").count();
    let names = known.iter().map(|unit| unit.name.as_str());
    let unnumbered: Vec<&str> = names.filter(|name| number(name).is_none()).collect();
    if !unnumbered.is_empty() {
        context
            .progress
            .note(&format!("skipped, because they have no number: {}", unnumbered.join(", ")));
    }
    if args.dry_run || count == 0 {
        let lines = changes.iter().filter(|it| it.change != "none");
        let text = lines.map(|it| format!("{} {}\n", it.change, it.unit)).collect::<String>();
        context.output.list(&changes, &text)?;
        if count == 0 {
            context.progress.note("nothing to do");
            return Ok(Exit::Success);
        }
        return Ok(Exit::Changes);
    }
    context.output.defer();
    let done = carry_out(context, &changes, &args).await;
    context.output.release()?;
    done.map(|()| Exit::Success)
}

/// Notes the instances that have an earlier file of their template. They stay as they are.
async fn note_outdated(
    context: &mut Context,
    template: &UnitName,
    instances: &[wire::UnitEntity],
) -> Result<(), CliError> {
    let mut units = instances.to_vec();
    units.extend(context.session.unit(template).await?);
    for instances in outdated_instances(&context.session, &units).await? {
        let (sentence, remedy) = (instances.sentence(), instances.remedy());
        context.progress.note(&format!("{sentence}\nhelp: {remedy}"));
    }
    Ok(())
}

/// Checks that some instance can be created.
///
/// # Errors
///
/// The cluster does not have the template, and neither the template nor an instance has a file.
async fn check_source(
    session: &Session,
    template: &str,
    changes: &[InstanceChange],
) -> Result<(), CliError> {
    let created = changes.iter().filter(|it| it.change == "create");
    let created: Vec<String> = created.map(|it| it.unit.clone()).collect();
    let UnitArg { name, .. } = unit_arg(template)?;
    if created.is_empty() || session.unit(&name).await?.is_some() {
        return Ok(());
    }
    let local = read_units(unit_args(&created)?)?;
    if !local.findings.is_empty() || local.units.iter().any(|unit| unit.file.is_some()) {
        return Ok(());
    }
    let error = CliError::failed(format!(
        "no template {name}: the cluster does not know it, and there is no such file"
    ));
    Err(match session.suggestion(&name).await {
        Some(near) => error.help(near),
        None => error.help("write that file in the current folder, or submit the template"),
    })
}

async fn carry_out(
    context: &mut Context,
    changes: &[InstanceChange],
    args: &ScaleArgs,
) -> Result<(), CliError> {
    let named = |kinds: &[&str]| {
        let those = changes.iter().filter(|it| kinds.contains(&it.change));
        those.map(|it| it.unit.clone()).collect::<Vec<_>>()
    };
    let (starting, destroying) = (named(&["create", "start"]), named(&["destroy"]));
    if !starting.is_empty() {
        let rollout = args.rollout.options();
        let timeout = match rollout {
            Some(_) => rollout::wait_timeout(args.wait),
            None => args.wait.into(),
        };
        let create = CreateArgs::for_units(starting, rollout);
        start::run(context, Verb::Start, &create, WaitUntil::Active, timeout).await?;
    }
    if !destroying.is_empty() {
        stop::destroy(context, &destroying, true, args.wait.into()).await?;
    }
    Ok(())
}

fn template(arg: &str) -> Result<UnitName, CliError> {
    let name = unit_arg(arg)?.name;
    if name.is_template() {
        return Ok(name);
    }
    let error = CliError::usage(format!("{name} is not a template"));
    match name.template() {
        Some(template) => Err(error.help(format!("use its template {template}"))),
        None => Err(error.help("the name of a template ends in \"@\", as in web@.service")),
    }
}

/// Returns the change for each numbered instance (such as `web@3`). The instances to destroy come
/// last, and those with the highest numbers first among them.
fn changes(
    template: &UnitName,
    count: u32,
    known: &[wire::UnitEntity],
) -> Result<Vec<InstanceChange>, CliError> {
    let numbered: BTreeMap<u32, &wire::UnitEntity> =
        known.iter().filter_map(|unit| Some((number(&unit.name)?, unit))).collect();
    let wanted = (1..=count).map(|number| {
        let change = match numbered.get(&number) {
            None => "create",
            Some(unit) if unit.desired() == Some(TargetState::Launched) => "none",
            Some(_) => "start",
        };
        let name = template.instantiate(&number.to_string());
        let cannot = || CliError::failed(format!("cannot scale {template} to {count}"));
        let name = name.map_err(|error| cannot().because(error))?;
        Ok(InstanceChange { unit: name.to_string(), change })
    });
    let surplus = numbered.iter().rev().filter(|(number, _)| !(1..=count).contains(*number));
    let surplus =
        surplus.map(|(_, unit)| Ok(InstanceChange { unit: unit.name.clone(), change: "destroy" }));
    wanted.chain(surplus).collect()
}

/// Returns the number of an instance. Numbers with leading zeros do not count.
fn number(name: &str) -> Option<u32> {
    let name: UnitName = name.parse().ok()?;
    let text = name.instance()?;
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_number_instances_from_1() {
        let unit = |name: &str, desired: &str| wire::UnitEntity {
            name: name.into(),
            desired_state: desired.into(),
            ..wire::UnitEntity::default()
        };
        let known = [
            unit("web@1.service", "launched"),
            unit("web@2.service", "inactive"),
            unit("web@4.service", "launched"),
            unit("web@10.service", "launched"),
            unit("web@01.service", "launched"),
            unit("web@blue.service", "launched"),
            unit("web@0.service", "launched"),
        ];
        let changed_lines = |count| {
            let all = changes(&"web@.service".parse().unwrap(), count, &known).unwrap();
            let words = all.iter().filter(|it| it.change != "none");
            words.map(|it| format!("{} {}\n", it.change, it.unit)).collect::<String>()
        };
        insta::assert_snapshot!(changed_lines(3), @r"
        start web@2.service
        create web@3.service
        destroy web@10.service
        destroy web@4.service
        destroy web@0.service
        ");
        assert_eq!(changed_lines(0).matches("destroy").count(), 5);
    }

    #[test]
    fn only_templates_can_be_scaled() {
        assert_eq!(template("web@").unwrap().as_str(), "web@.service");
        let mut text = Vec::new();
        template("web@1").unwrap_err().print(&mut text).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @"
        fleetctl: web@1.service is not a template
        help: use its template web@.service
        ");
        assert_eq!(template("web").unwrap_err().exit().code(), 2);
    }
}
