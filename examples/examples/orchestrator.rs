//! Orchestrates containers: executes commands, and prints the calls of `docker` that follow.
//!
//! ```text
//! cargo run -p fleet-examples --example orchestrator
//! ```
#![expect(clippy::print_stdout, reason = "the result of the program is its output")]

use std::collections::BTreeMap;
use std::error::Error;

use fleet_scheduler::prelude::*;

const COMMANDS: &str = "\
    machine m1 4 16
    machine m2 4 16
    run web@1 nginx 2 4 web@*
    run web@2 nginx 2 4 web@*
    run cache redis 3 8
    why cache
    stop web@1
    lost m1";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut cluster, mut images) = (Cluster::new(), BTreeMap::new());
    for line in COMMANDS.lines() {
        println!("> {}", line.trim());
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["machine", id, cores, memory] => {
                cluster.add_machine(Machine::named(id)?.with_offers(amounts(cores, memory)?));
            }
            ["lost", id] => cluster.remove_machine(id),
            ["run", name, image, cores, memory, ref apart @ ..] => {
                let demand = Demand::new(name)?.reserves(amounts(cores, memory)?);
                images.insert(demand.name().clone(), image.to_owned());
                cluster
                    .add(apart.iter().try_fold(demand, |demand, other| demand.conflicts(other))?);
            }
            ["stop", name] => cluster.remove(name),
            ["why", name] => println!("# {}", cluster.explain(name).ok_or("no such container")?),
            _ => return Err(format!("{line:?} is not a command").into()),
        }
        let plan = cluster.plan();
        for step in &plan.steps {
            let (name, image) = (step.unit.stem(), &images[&step.unit]);
            if let Some(machine) = step.from() {
                println!("docker --host ssh://{machine} rm --force {name}");
            }
            if let Some(machine) = step.to() {
                println!("docker --host ssh://{machine} run --detach --name {name} {image}");
            }
        }
        plan.unplaced.iter().for_each(|(unit, why)| println!("# {} waits: {why}", unit.stem()));
        cluster.apply(&plan);
    }
    assert!(cluster.plan().is_empty(), "every plan was carried out");
    Ok(())
}

fn amounts(cores: &str, gibibytes: &str) -> Result<Resources, std::num::ParseIntError> {
    Ok(cpu(cores.parse()?) + memory(gib(gibibytes.parse()?)))
}
