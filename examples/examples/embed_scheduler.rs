//! Embeds the scheduler in a program of your own: a first plan, a reason as data, an explanation, a
//! question, and the loss of a machine.
//!
//! ```text
//! cargo run -p fleet-examples --example embed_scheduler
//! ```
//!
//! The scheduler has no runtime, opens nothing, reads no clock, and makes the same plan for the
//! same state. Your program reports its state to a `Cluster`, and executes the plans.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use std::error::Error;

use fleet_scheduler::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let mut cluster = cluster()?;

    println!("== A plan for an empty cluster\n");
    let plan = cluster.plan();
    println!("{plan}");
    carry_out(&mut cluster, &plan);
    assert!(cluster.plan().is_empty(), "nothing is left to do after applying the plan");

    println!("\n== Why render has no machine, as data\n");
    let Reason::NoMachineFits { machines, tallies, .. } = &*plan.unplaced["render.service"] else {
        return Err("an unexpected reason".into());
    };
    for tally in tallies {
        println!("{} of {machines} machines refuse by {}", tally.machines, tally.refusal.rule());
    }
    assert!(tallies.iter().all(|tally| tally.refusal.rule() == Rule::MachineMetadata));

    println!("\n== An explanation\n");
    println!("{}", cluster.explain("web@1").ok_or("the unit is not known")?);

    println!("\n== A question: what if there were five web servers?\n");
    let plan = cluster.what_if(&[Change::Add(web("web@4")?), Change::Add(web("web@5")?)]);
    println!("{plan}");
    assert!(plan.unplaced.contains_key("web@5.service"), "the four machines cannot run five");
    assert!(cluster.explain("web@4").is_none(), "the cluster is unchanged");

    println!("\n== m1 leaves\n");
    cluster.remove_machine("m1");
    let plan = cluster.plan();
    println!("{plan}");
    assert!(plan.steps.iter().all(|step| step.cause == StepCause::MachineGone));
    carry_out(&mut cluster, &plan);
    println!("\n{} units were on it, and only these were moved", plan.steps.len());
    Ok(())
}

/// Creates a cluster of four machines with their kind of disk, and of eight units.
fn cluster() -> Result<Cluster, Box<dyn Error>> {
    let mut cluster = Cluster::new();
    for (id, disk) in [("m1", "ssd"), ("m2", "hdd"), ("m3", "ssd"), ("m4", "ssd")] {
        cluster.add_machine(Machine::named(id)?.with_metadata("disk", disk));
    }
    // Two databases that need fast disks and never share a machine.
    for name in ["db@1", "db@2"] {
        cluster.add(Demand::new(name)?.requires("disk", "ssd").conflicts("db@*")?);
    }
    // Follows the first database.
    cluster.add(Demand::new("backup")?.same_machine_as("db@1")?);
    // No machine satisfies this one. Its demands come from a unit file.
    cluster.add(Demand::from_unit("render", "[X-Fleet]\nMachineMetadata=gpu=yes\n")?);
    // Placed on the machines with the least load.
    for name in ["web@1", "web@2", "web@3"] {
        cluster.add(web(name)?);
    }
    // Runs on every machine, so it counts as load and is never placed.
    cluster.add(Demand::new("metrics")?.everywhere());
    Ok(cluster)
}

fn web(name: &str) -> Result<Demand, Box<dyn Error>> {
    Ok(Demand::new(name)?.conflicts("web@*")?)
}

/// Executes the steps of a plan in order. This example only records them. An orchestrator would
/// also stop the unit at `step.from()` and start it at `step.to()`.
fn carry_out(cluster: &mut Cluster, plan: &Plan) {
    cluster.apply(plan);
}
