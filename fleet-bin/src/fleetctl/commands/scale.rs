//! `scale`: so many instances of a template, numbered from 1 on.

use std::collections::BTreeMap;

use fleet_core::{TargetState, Verb};
use fleet_http::wire;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::{bring_up, take_down};
use crate::fleetctl::args::{CreateArgs, Until, WaitArgs};
use crate::fleetctl::change_args::ScaleArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::names::unit_arg;
use crate::fleetctl::output::Record;

/// What becomes of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Scaled {
    unit: String,
    /// `create`, `start`, `destroy` or `none`.
    change: &'static str,
}

impl Record for Scaled {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command: first come those that are missing, then go those that are too many.
pub(super) async fn run(context: &mut Context, args: ScaleArgs) -> Result<Exit, CliError> {
    let template = template(&args.template)?;
    let known = context.session.instances(&template).await?;
    let scaled = scaled(&template, args.count, &known)?;
    let changes = scaled.iter().filter(|it| it.change != "none").count();
    let names = known.iter().map(|unit| unit.name.as_str());
    let odd: Vec<&str> = names.filter(|name| number(name).is_none()).collect();
    if !odd.is_empty() {
        context.progress.note(&format!("without a number, and left alone: {}", odd.join(", ")));
    }
    if args.dry_run || changes == 0 {
        let lines = scaled.iter().filter(|it| it.change != "none");
        let text = lines.map(|it| format!("{} {}\n", it.change, it.unit)).collect::<String>();
        context.output.list(&scaled, &text)?;
        if changes == 0 {
            context.progress.note("nothing to do");
            return Ok(Exit::Success);
        }
        return Ok(Exit::Changes);
    }
    context.output.hold();
    let done = carry_out(context, &scaled, args.wait).await;
    context.output.release()?;
    done.map(|()| Exit::Success)
}

async fn carry_out(
    context: &mut Context,
    scaled: &[Scaled],
    wait: WaitArgs,
) -> Result<(), CliError> {
    let named = |changes: &[&str]| {
        let those = scaled.iter().filter(|it| changes.contains(&it.change));
        those.map(|it| it.unit.clone()).collect::<Vec<_>>()
    };
    let (coming, going) = (named(&["create", "start"]), named(&["destroy"]));
    if !coming.is_empty() {
        let args = CreateArgs::of(coming);
        bring_up::run(context, Verb::Start, &args, Until::Active, wait.into()).await?;
    }
    if !going.is_empty() {
        take_down::run(context, Verb::Destroy, &going, wait.into()).await?;
    }
    Ok(())
}

fn template(arg: &str) -> Result<UnitName, CliError> {
    let name = unit_arg(arg)?.name;
    if name.is_template() {
        return Ok(name);
    }
    let error = CliError::usage(format!("{name} is no template"));
    match name.template() {
        Some(template) => Err(error.help(format!("write {template}"))),
        None => Err(error.help("the name of a template has nothing after its \"@\": write web@")),
    }
}

/// What becomes of each instance that has a number or is to have one; those that are too many in
/// the order in which they go, the last first.
fn scaled(template: &UnitName, count: u32, known: &[wire::Unit]) -> Result<Vec<Scaled>, CliError> {
    let numbered: BTreeMap<u32, &wire::Unit> =
        known.iter().filter_map(|unit| Some((number(&unit.name)?, unit))).collect();
    let wanted = (1..=count).map(|number| {
        let change = match numbered.get(&number) {
            None => "create",
            Some(unit) if unit.desired() == Some(TargetState::Launched) => "none",
            Some(_) => "start",
        };
        let name = template.instantiate(&number.to_string());
        let name = name.map_err(|error| CliError::failed("it cannot be scaled").because(error))?;
        Ok(Scaled { unit: name.to_string(), change })
    });
    let surplus = numbered.iter().rev().filter(|(number, _)| !(1..=count).contains(*number));
    let surplus =
        surplus.map(|(_, unit)| Ok(Scaled { unit: unit.name.clone(), change: "destroy" }));
    wanted.chain(surplus).collect()
}

/// The number of an instance that has one, written without zeros in front.
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
    fn instances_are_numbered_from_1_on() {
        let unit = |name: &str, desired: &str| wire::Unit {
            name: name.into(),
            desired_state: desired.into(),
            ..wire::Unit::default()
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
        let told = |count| {
            let all = scaled(&"web@.service".parse().unwrap(), count, &known).unwrap();
            let words = all.iter().filter(|it| it.change != "none");
            words.map(|it| format!("{} {}\n", it.change, it.unit)).collect::<String>()
        };
        insta::assert_snapshot!(told(3), @r"
        start web@2.service
        create web@3.service
        destroy web@10.service
        destroy web@4.service
        destroy web@0.service
        ");
        assert_eq!(told(0).matches("destroy").count(), 5);
    }

    #[test]
    fn only_a_template_can_be_scaled() {
        assert_eq!(template("web@").unwrap().as_str(), "web@.service");
        let mut text = Vec::new();
        template("web@1").unwrap_err().print(&mut text).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r"
        fleetctl: web@1.service is no template
        help: write web@.service
        ");
        assert_eq!(template("web").unwrap_err().exit().code(), 2);
    }
}
