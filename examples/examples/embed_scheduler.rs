//! For whoever has an orchestrator and wants a scheduler for it.
//!
//! ```text
//! cargo run -p fleet-examples --example embed_scheduler
//! ```
//!
//! The scheduler is a function: a `Snapshot` goes in, a `Plan` comes out. It has no runtime, opens
//! nothing, reads no clock, and gives the same plan for the same snapshot. The snapshot is yours to
//! fill from wherever you keep such things, and the plan is yours to carry out.
//!
//! Look at `Orchestrator`, which is all that has to stand between the two, and then read `main`: a
//! first plan, a reason as data, an explanation, a dry run, and a machine that goes away.
#![expect(clippy::print_stdout, reason = "what the program prints is what it is for")]

use std::error::Error;

use fleet_core::{
    Epoch, Machine, MachineId, Reason, Requirements, Rule, Snapshot, Strictness, TargetState, Unit,
};
use fleet_scheduler::{Action, Cause, Plan, apply, check, explain, plan};
use fleet_unitfile::{UnitFile, UnitName};

/// The machines, each with the kind of disk that it has.
const MACHINES: [(&str, &str); 4] = [("m1", "ssd"), ("m2", "hdd"), ("m3", "ssd"), ("m4", "ssd")];

/// What is to run, and what each asks of a machine: a unit file of which only this section counts.
const UNITS: [(&str, &str); 8] = [
    // Two databases that want fast disks and never share a machine.
    ("db@1.service", "[X-Fleet]\nMachineMetadata=disk=ssd\nConflicts=db@*.service\n"),
    ("db@2.service", "[X-Fleet]\nMachineMetadata=disk=ssd\nConflicts=db@*.service\n"),
    // It goes wherever the first database goes.
    ("backup.service", "[X-Fleet]\nMachineOf=db@1.service\n"),
    // No machine has what this one wants.
    ("render.service", "[X-Fleet]\nMachineMetadata=gpu=yes\n"),
    // These go wherever there is least to do.
    ("web@1.service", "[X-Fleet]\nConflicts=web@*.service\n"),
    ("web@2.service", "[X-Fleet]\nConflicts=web@*.service\n"),
    ("web@3.service", "[X-Fleet]\nConflicts=web@*.service\n"),
    // On every machine, so it is counted as load and never placed.
    ("metrics.service", "[X-Fleet]\nGlobal=true\n"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut orchestrator = Orchestrator::new()?;

    println!("== A plan for an empty cluster\n");
    let first = orchestrator.decide();
    println!("{first}");
    orchestrator.carry_out(&first);
    assert!(orchestrator.decide().is_empty(), "once carried out, nothing is left to do");

    why_not(&first)?;
    ask_about(&orchestrator.cluster, "web@1.service")?;
    try_it_out(&orchestrator.cluster)?;
    a_machine_leaves(&mut orchestrator)
}

/// Your side: it knows the cluster, and does what a plan says.
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

    /// Decides, and makes sure of it: `check` looks for broken rules in any plan, from wherever it
    /// came. It is slower than `plan`, so it belongs in tests and debug builds.
    fn decide(&self) -> Plan {
        let plan = plan(&self.cluster);
        assert_eq!(check(&self.cluster, &plan), []);
        plan
    }

    /// Does what the plan says, in its order. Where this only keeps the books, yours would start
    /// and stop things first.
    fn carry_out(&mut self, plan: &Plan) {
        // A later placement has a higher epoch: so an order that was overtaken can be told.
        let epoch = Epoch(plan.based_on.0);
        for step in &plan.steps {
            let unit = step.unit.clone();
            match &step.action {
                Action::Place { machine } => self.cluster.place(unit, machine.clone(), epoch),
                Action::Move { from: _, to } => self.cluster.place(unit, to.clone(), epoch),
                Action::Remove { from: _ } => self.cluster.unplace(unit.as_str()),
            }
        }
        // A plan is right for the revision it was made of, so every change makes the next one.
        self.cluster.revision = self.cluster.revision.next();
    }
}

/// A unit that is to run. What its file asks for is read once, here, and refused if it makes no
/// sense; the scheduler sees requirements only.
fn unit(name: &str, text: &str) -> Result<Unit, Box<dyn Error>> {
    let (name, file) = (UnitName::parse(name)?, UnitFile::parse(text)?);
    let requirements = Requirements::parse(&name, &file, Strictness::Refuse)?.requirements;
    Ok(Unit::new(name, file, requirements, TargetState::Launched))
}

/// A reason is data first: what is printed above is its `Display`, what a program acts on is this.
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

/// What each machine says to one unit.
fn ask_about(cluster: &Snapshot, name: &str) -> Result<(), Box<dyn Error>> {
    println!("\n== An explanation\n");
    let explanation = explain(cluster, &name.parse()?).ok_or("the unit is not known")?;
    println!("{explanation}");
    Ok(())
}

/// A dry run: a copy of the snapshot shares everything with it, so trying something out is cheap.
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
    assert!(after.placement("web@5.service").is_none(), "five do not fit on four machines");
    assert!(cluster.unit("web@4.service").is_none(), "the cluster has heard nothing of it");
    Ok(())
}

/// Only what was on the machine moves. There is no rebalancing behind anyone's back.
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
    assert_eq!(touched, was_there, "those that were on it, and nobody else");
    assert!(plan.steps.iter().all(|step| step.cause == Cause::MachineGone));
    println!("\n{} units were on it, and only these were touched", touched.len());
    Ok(())
}
