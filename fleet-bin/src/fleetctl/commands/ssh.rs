//! `ssh` and `fd-forward`: connections to machines through the system's `ssh`.

use std::path::Path;

use fleet_http::wire;
use tokio::io::{AsyncWriteExt as _, copy, stdin, stdout};
use tokio::net::UnixStream;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::SshArgs;
use crate::fleetctl::session::Session;
use crate::fleetctl::session::tunnel::{command, ssh_error};
use crate::ui::error::{CliError, Exit};
use crate::ui::names::unit_arg;

/// Runs `ssh`. The exit code is that of the remote command.
pub(super) async fn run(context: &mut Context, args: &SshArgs) -> Result<Exit, CliError> {
    let (machine, command_line) = target(&context.session, args).await?;
    if machine.primary_ip.is_empty() {
        return Err(CliError::failed(format!("machine {} has no address", machine.id))
            .help("set public_ip in the configuration of its fleetd"));
    }
    let (address, port) = (&machine.primary_ip, args.ssh_port);
    let args = context.ssh.shell(address, port, args.forward_agent, command_line);
    let ended = command(&args).status().await.map_err(ssh_error)?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(Exit::Remote(code.unwrap_or(255)))
}

/// Returns the machine and the command to run on it.
async fn target<'a>(
    session: &Session,
    args: &'a SshArgs,
) -> Result<(wire::MachineEntity, &'a [String]), CliError> {
    match (&args.machine, &args.unit, args.words.split_first()) {
        (Some(machine), _, _) => Ok((session.machine_named(machine).await?, &args.words)),
        (None, Some(unit), _) => Ok((machine_of(session, unit).await?, &args.words)),
        (None, None, None) => Err(CliError::usage("no machine or unit given")
            .help("\"fleetctl list-machines\" and \"fleetctl list-units\" list both")),
        (None, None, Some((word, rest))) => Ok((machine_or_unit(session, word).await?, rest)),
    }
}

/// Returns the machine with an ID that starts with `word`, or the machine of the unit named `word`.
/// If there are both, returns an error.
async fn machine_or_unit(session: &Session, word: &str) -> Result<wire::MachineEntity, CliError> {
    let machine = session.machine_named(word).await;
    let unit = match unit_arg(word) {
        Ok(arg) => session.unit(&arg.name).await?,
        Err(_) => None,
    };
    match (machine, unit) {
        (Ok(_), Some(_)) => Err(CliError::failed(format!("{word} is both a machine and a unit"))
            .help(format!("use --machine {word} or --unit {word}"))),
        (Ok(machine), None) => Ok(machine),
        (Err(_), Some(_)) => machine_of(session, word).await,
        (Err(error), None) => Err(match unit_arg(word) {
            Ok(arg) => match session.suggestion(&arg.name).await {
                Some(near) => error.help(near),
                None => error.help(format!("no unit is named {} either", arg.name)),
            },
            Err(_) => error,
        }),
    }
}

async fn machine_of(session: &Session, unit: &str) -> Result<wire::MachineEntity, CliError> {
    let unit = session.known_unit(&unit_arg(unit)?.name).await?;
    let name = &unit.name;
    match unit.machine_id.as_str() {
        "" if unit.global => Err(CliError::failed(format!("{name} is on many machines"))
            .help("choose a machine with --machine; \"fleetctl list-units\" shows the machines")),
        "" => Err(CliError::failed(format!("{name} is on no machine"))
            .help(format!("\"fleetctl status {name}\" shows why"))),
        id => session.machine(id).await?.ok_or_else(|| {
            CliError::failed(format!("{name} is on machine {id}, which is not present"))
                .help("\"fleetctl list-machines\" shows the present machines")
        }),
    }
}

/// Runs `fd-forward`: copies in both directions until either side ends.
pub(super) async fn fd_forward(socket: &Path) -> Result<(), CliError> {
    let cannot = |error| {
        CliError::failed(format!("cannot connect to {}", socket.display()))
            .because(error)
            .help("give the unix socket of a fleetd on this machine")
    };
    let stream = UnixStream::connect(socket).await.map_err(cannot)?;
    let (mut from, mut to) = stream.into_split();
    let upload = async {
        copy(&mut stdin(), &mut to).await?;
        to.shutdown().await
    };
    let download = async {
        let mut stdout = stdout();
        copy(&mut from, &mut stdout).await?;
        stdout.flush().await
    };
    tokio::pin!(download);
    tokio::select! {
        received = &mut download => received.map_err(CliError::from),
        // After the end of the input, the response is still read.
        sent = upload => {
            sent?;
            Ok(download.await?)
        }
    }
}
