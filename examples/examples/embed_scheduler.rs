//! Embeds the scheduler in an orchestrator of your own.
//!
//! ```text
//! cargo run -p fleet-examples --example embed_scheduler
//! ```
//!
//! The scheduler is a function: a `Snapshot` goes in, and a `Plan` comes out. It has no runtime,
//! opens nothing, reads no clock, and returns the same plan for the same snapshot. Your program
//! fills the snapshot from its own state, and executes the plan.
//!
//! `Orchestrator` shows all the code that your program needs for this. `main` shows a first plan, a
//! reason as data, an explanation, a dry run, and the loss of a machine.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use std::error::Error;

use fleet_core::{
    Epoch, Machine, MachineId, Reason, Requirements, Rule, Snapshot, Strictness, TargetState, Unit,
};
use fleet_scheduler::{Plan, StepAction, StepCause, apply, check, explain, plan};
use fleet_unitfile::{UnitFile, UnitName};

/// The machines, with their kind of disk.
const MACHINES: [(&str, &str); 4] = [("m1", "ssd"), ("m2", "hdd"), ("m3", "ssd"), ("m4", "ssd")];

/// The units, with their `[X-Fleet]` sections. The scheduler ignores the rest of a unit file.
const UNITS: [(&str, &str); 8] = [
    // Two databases that need fast disks and never share a machine.
    ("db@1.service", "[X-Fleet]\nMachineMetadata=disk=ssd\nConflicts=db@*.service\n"),
    ("db@2.service", "[X-Fleet]\nMachineMetadata=disk=ssd\nConflicts=db@*.service\n"),
    // Follows the first database.
    ("backup.service", "[X-Fleet]\nMachineOf=db@1.service\n"),
    // No machine satisfies this one.
    ("render.service", "[X-Fleet]\nMachineMetadata=gpu=yes\n"),
    // Placed on the machines with the least load.
    ("web@1.service", "[X-Fleet]\nConflicts=web@*.service\n"),
    ("web@2.service", "[X-Fleet]\nConflicts=web@*.service\n"),
    ("web@3.service", "[X-Fleet]\nConflicts=web@*.service\n"),
    // Runs on every machine, so it counts as load and is never placed.
    ("metrics.service", "[X-Fleet]\nGlobal=true\n"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut orchestrator = Orchestrator::new()?;

    println!("== A plan for an empty cluster\n");
    let first = orchestrator.decide();
    println!("{first}");
    orchestrator.carry_out(&first);
    assert!(orchestrator.decide().is_empty(), "nothing is left to do after applying the plan");

    why_not(&first)?;
    ask_about(&orchestrator.cluster, "web@1.service")?;
    try_it_out(&orchestrator.cluster)?;
    a_machine_leaves(&mut orchestrator)
}

/// Your side: knows the cluster and executes plans.
struct Orchestrator {
    cluster: Snapshot,
}

impl Orchestrator {
    fn new() -> Result<Self, Box<dyn Error>> {
        let mut cluster = Snapshot::default();
        for (id, disk) in MACHINES {
            cluster.put_machine(Machine::new(id.parse()?).with_metadata("disk", disk));
        }
        for (name, text) in UNITS {
            cluster.put_unit(unit(name, text)?);
        }
        cluster.revision = cluster.revision.next();
        Ok(Self { cluster })
    }

    /// Makes a plan and checks it. `check` finds violated rules in any plan, even one that another
    /// planner made. It is slower than `plan`, so it belongs in tests and debug builds.
    fn decide(&self) -> Plan {
        let plan = plan(&self.cluster);
        assert_eq!(check(&self.cluster, &plan), []);
        plan
    }

    /// Executes the steps of the plan in order. This example only updates its snapshot. A real
    /// orchestrator would also start and stop the units.
    fn carry_out(&mut self, plan: &Plan) {
        // A later placement has a higher epoch, so an outdated placement is recognized.
        let epoch = Epoch(plan.based_on.0);
        for step in &plan.steps {
            let unit = step.unit.clone();
            match &step.action {
                StepAction::Place { machine } => self.cluster.place(unit, machine.clone(), epoch),
                StepAction::Move { from: _, to } => self.cluster.place(unit, to.clone(), epoch),
                StepAction::Remove { from: _ } => self.cluster.unplace(unit.as_str()),
            }
        }
        // A plan is valid for the revision it was made from, so every change increments the
        // revision.
        self.cluster.revision = self.cluster.revision.next();
    }
}

/// Creates a unit from the text of its unit file. The requirements are parsed and checked only
/// here; the scheduler gets them as data.
fn unit(name: &str, text: &str) -> Result<Unit, Box<dyn Error>> {
    let (name, file) = (UnitName::parse(name)?, UnitFile::parse(text)?);
    let requirements = Requirements::parse(&name, &file, Strictness::Refuse)?.requirements;
    Ok(Unit::new(name, file, requirements, TargetState::Launched))
}

/// Prints a reason as data. Its `Display` form was printed above.
fn why_not(plan: &Plan) -> Result<(), Box<dyn Error>> {
    let reason = plan.unplaced.get("render.service").ok_or("it was placed without a GPU")?;
    let Reason::NoMachineFits { machines, tallies, .. } = reason.as_ref() else {
        return Err(format!("an unexpected reason: {reason}").into());
    };
    println!("\n== Why render.service has no machine, as data\n");
    for tally in tallies {
        println!("{} of {machines} machines refuse by {}", tally.machines, tally.refusal.rule());
    }
    assert!(tallies.iter().all(|tally| tally.refusal.rule() == Rule::MachineMetadata));
    Ok(())
}

/// Prints the answer of each machine for one unit.
fn ask_about(cluster: &Snapshot, name: &str) -> Result<(), Box<dyn Error>> {
    println!("\n== An explanation\n");
    let explanation = explain(cluster, &name.parse()?).ok_or("the unit is not known")?;
    println!("{explanation}");
    Ok(())
}

/// Does a dry run: plans for a copy of the cluster with two more units. Dry runs are cheap, because
/// the copy of a snapshot shares all unchanged data with the original.
fn try_it_out(cluster: &Snapshot) -> Result<(), Box<dyn Error>> {
    println!("\n== A dry run: what if there were five web servers?\n");
    let mut what_if = cluster.clone();
    for name in ["web@4.service", "web@5.service"] {
        what_if.put_unit(unit(name, "[X-Fleet]\nConflicts=web@*.service\n")?);
    }
    let plan = plan(&what_if);
    println!("{plan}");
    let after = apply(&what_if, &plan);
    assert!(after.placement("web@4.service").is_some());
    assert!(after.placement("web@5.service").is_none(), "the four machines cannot run five");
    assert!(cluster.unit("web@4.service").is_none(), "the cluster is unchanged");
    Ok(())
}

/// Removes a machine. Only its units move; nothing is rebalanced.
fn a_machine_leaves(orchestrator: &mut Orchestrator) -> Result<(), Box<dyn Error>> {
    println!("\n== m1 leaves\n");
    let gone: MachineId = "m1".parse()?;
    let was_there: Vec<UnitName> = orchestrator
        .cluster
        .placements()
        .filter(|(_, placement)| placement.machine == gone)
        .map(|(unit, _)| unit.clone())
        .collect();
    orchestrator.cluster.remove_machine(gone.as_str());
    orchestrator.cluster.revision = orchestrator.cluster.revision.next();

    let plan = orchestrator.decide();
    println!("{plan}");
    orchestrator.carry_out(&plan);

    let mut touched: Vec<UnitName> = plan.steps.iter().map(|step| step.unit.clone()).collect();
    touched.sort();
    assert_eq!(touched, was_there, "only the units that were on it");
    assert!(plan.steps.iter().all(|step| step.cause == StepCause::MachineGone));
    println!("\n{} units were on it, and only these were moved", touched.len());
    Ok(())
}
