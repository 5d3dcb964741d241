//! `ui`: opens the web page of the cluster in a browser, through a loopback port.

use std::io;
use std::process::Stdio;

use fleet_http::ui::UiProxy;
use fleet_http::{ListenAddress, Listener, Token, serve};
use tokio::process::Command;
use tokio::signal;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::UiArgs;
use crate::ui::error::CliError;

/// Programs that open a link: those of Linux desktops, and that of macOS.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// Runs the command until Ctrl-C.
pub(super) async fn run(context: &mut Context, args: &UiArgs) -> Result<(), CliError> {
    // A wrong endpoint is reported here rather than in the browser.
    context.session.daemon().await?;
    let port = args.port.unwrap_or(0);
    let wanted = ListenAddress::Tcp(([127, 0, 0, 1], port).into());
    let cannot = |problem| CliError::failed(format!("cannot listen on {wanted}")).because(problem);
    let listener = Listener::bind(&wanted).await.map_err(cannot)?;
    let ListenAddress::Tcp(address) = *listener.local_address() else {
        return Err(CliError::failed(format!("cannot listen on {wanted}")));
    };
    let proxy = UiProxy::new(context.session.client(), address, secret()?, secret()?);
    let url = proxy.url();
    context.output.raw(format!("{url}\n").as_bytes())?;
    let is_open = !args.no_browser && open(&url);
    let hint = if is_open { "the page opens in the browser" } else { "open the link in a browser" };
    context.progress.note(&format!("{hint}; press Ctrl-C to end"));
    serve(listener, proxy.router(), interrupted()).await;
    Ok(())
}

/// Waits for Ctrl-C.
async fn interrupted() {
    // Without a handler, the signal ends the process at once.
    let _unhandled = signal::ctrl_c().await;
}

/// Returns a random secret.
fn secret() -> Result<Token, CliError> {
    let mut bytes = [0; 32];
    let cannot = |error: getrandom::Error| {
        CliError::failed("cannot get random numbers").because(io::Error::other(error.to_string()))
    };
    getrandom::fill(&mut bytes).map_err(cannot)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.parse().map_err(|error| CliError::failed("cannot make a secret").because(error))
}

/// Opens a link in the browser. Returns whether a program for it was started.
fn open(url: &str) -> bool {
    OPENERS.into_iter().any(|program| {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}
