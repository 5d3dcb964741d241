//! `ssh` and `fd-forward`: shells and sockets of machines, by the system's own `ssh`.

use std::path::Path;

use fleet_http::wire;
use tokio::io::{AsyncWriteExt as _, copy, stdin, stdout};
use tokio::net::UnixStream;

use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::look_args::SshArgs;
use crate::fleetctl::names::unit_arg;
use crate::fleetctl::session::Session;
use crate::fleetctl::tunnel::{command, no_ssh};

/// Runs `ssh`: the exit code is that of the command over there.
pub(super) async fn run(context: &mut Context, args: &SshArgs) -> Result<Exit, CliError> {
    let (machine, command_line) = target(&context.session, args).await?;
    if machine.primary_ip.is_empty() {
        return Err(CliError::failed(format!("{} has no address", machine.id))
            .help("set public_ip in the configuration of its fleetd"));
    }
    let (address, port) = (&machine.primary_ip, args.ssh_port);
    let args = context.ssh.shell(address, port, args.forward_agent, command_line);
    let ended = command(&args).status().await.map_err(no_ssh)?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(Exit::Remote(code.unwrap_or(255)))
}

/// The machine that is meant, and what to run there.
async fn target<'a>(
    session: &Session,
    args: &'a SshArgs,
) -> Result<(wire::Machine, &'a [String]), CliError> {
    match (&args.machine, &args.unit, args.words.split_first()) {
        (Some(machine), _, _) => Ok((session.machine_named(machine).await?, &args.words)),
        (None, Some(unit), _) => Ok((machine_of(session, unit).await?, &args.words)),
        (None, None, None) => Err(CliError::usage("one machine or unit must be named")
            .help("\"fleetctl list-machines\" and \"fleetctl list-units\" show them")),
        (None, None, Some((word, rest))) => Ok((either(session, word).await?, rest)),
    }
}

/// The machine whose ID begins so, or that of the unit of this name.
async fn either(session: &Session, word: &str) -> Result<wire::Machine, CliError> {
    let machine = session.machine_named(word).await;
    let unit = match unit_arg(word) {
        Ok(arg) => session.unit(&arg.name).await?,
        Err(_) => None,
    };
    match (machine, unit) {
        (Ok(_), Some(_)) => {
            Err(CliError::failed(format!("{word} is a machine and a unit as well"))
                .help("say which, with --machine or --unit"))
        }
        (Ok(machine), None) => Ok(machine),
        (Err(_), Some(_)) => machine_of(session, word).await,
        (Err(error), None) => Err(match unit_arg(word) {
            Ok(arg) => match session.near(&arg.name).await {
                Some(near) => error.help(near),
                None => error.help("there is no unit of that name either"),
            },
            Err(_) => error,
        }),
    }
}

async fn machine_of(session: &Session, unit: &str) -> Result<wire::Machine, CliError> {
    let unit = session.known_unit(&unit_arg(unit)?.name).await?;
    let name = &unit.name;
    match unit.machine_id.as_str() {
        "" if unit.global => Err(CliError::failed(format!("{name} is on many machines"))
            .help("choose one with --machine; \"fleetctl list-units\" shows them")),
        "" => Err(CliError::failed(format!("{name} is on no machine"))
            .help(format!("\"fleetctl status {name}\" tells why"))),
        id => session.machine(id).await?.ok_or_else(|| {
            CliError::failed(format!("{name} is on machine {id}, which is not present"))
                .help("\"fleetctl list-machines\" shows those that are")
        }),
    }
}

/// Runs `fd-forward`: what is read is written to the socket, and the other way, until either ends.
pub(super) async fn fd_forward(socket: &Path) -> Result<(), CliError> {
    let cannot = |error| {
        CliError::failed(format!("cannot connect to {}", socket.display()))
            .because(error)
            .help("name the unix socket of a fleetd that runs here")
    };
    let stream = UnixStream::connect(socket).await.map_err(cannot)?;
    let (mut from, mut to) = stream.into_split();
    let there = async {
        copy(&mut stdin(), &mut to).await?;
        to.shutdown().await
    };
    let back = async {
        let mut stdout = stdout();
        copy(&mut from, &mut stdout).await?;
        stdout.flush().await
    };
    tokio::pin!(back);
    tokio::select! {
        heard = &mut back => heard.map_err(CliError::from),
        // Whoever has said all may still want to hear the answer.
        said = there => {
            said?;
            Ok(back.await?)
        }
    }
}
