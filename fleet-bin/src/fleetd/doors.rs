//! Reads the files that say who is let in at ports, and what other daemons are shown.

use std::error::Error;

use fleet_http::{ClientTls, Credentials, Guard, Peers, PemIdentity, ServerTls, Tokens};

use super::config::{DoorSettings, Named};
use super::error::StartError;
use crate::{chain, secret};

/// What the files said when they were last read.
#[derive(Debug)]
pub(crate) struct Loaded {
    tls: Option<ServerTls>,
    tokens: Option<Tokens>,
    /// What it takes to be let in by other daemons.
    peers: Credentials,
}

/// The doors of a daemon at work.
pub(crate) struct Doors {
    settings: DoorSettings,
    /// Who is let in.
    pub(crate) guard: Guard,
    /// How other daemons are asked.
    pub(crate) peers: Peers,
}

impl Doors {
    /// Reads the files.
    pub(crate) fn open(settings: DoorSettings) -> Result<Self, StartError> {
        let loaded = load(&settings)?;
        let guard = Guard::new(loaded.tls, loaded.tokens);
        Ok(Self { guard, peers: Peers::new(loaded.peers), settings })
    }

    /// Reads the files again. What is wrong leaves everything as it is.
    pub(crate) fn reload(&self) -> Result<(), StartError> {
        let loaded = load(&self.settings)?;
        self.guard.change(loaded.tls, loaded.tokens);
        self.peers.change(loaded.peers);
        Ok(())
    }
}

/// Reads and checks the files. A complaint names the place in the configuration, and the file.
pub(crate) fn load(settings: &DoorSettings) -> Result<Loaded, StartError> {
    let (tls, peers_tls) = certificates(settings)?;
    let text = settings.tokens.as_ref().map(|file| Ok((file, secret_text(file)?))).transpose()?;
    let tokens =
        text.as_ref().map(|(file, text)| Tokens::parse(text).map_err(|error| wrong(file, &error)));
    let shown = match &settings.peer_token {
        Some(file) => {
            let first = secret::first_token(&secret_text(file)?);
            Some(first.ok_or_else(|| complaint(file, "there is no token in it".to_owned()))?)
        }
        None => text.as_ref().and_then(|(_, text)| secret::first_token(text)),
    };
    Ok(Loaded {
        tls,
        tokens: tokens.transpose()?,
        peers: Credentials { tls: peers_tls, token: shown },
    })
}

/// What clients are shown, and what other daemons are.
fn certificates(
    settings: &DoorSettings,
) -> Result<(Option<ServerTls>, Option<ClientTls>), StartError> {
    let client_ca = settings.client_ca.as_ref().map(read).transpose()?;
    let peer_ca = settings.peer_ca.as_ref().map(read).transpose()?;
    // Each authority is tried for itself, so that it is clear which file is wrong.
    for (file, ca) in [(&settings.client_ca, &client_ca), (&settings.peer_ca, &peer_ca)] {
        if let (Some(file), Some(ca)) = (file, ca) {
            ClientTls::new(Some(ca), None).map_err(|error| wrong(file, &error))?;
        }
    }
    let trusted = peer_ca.as_deref().or(client_ca.as_deref());
    let Some((certificate_file, key_file)) = &settings.identity else {
        let peers = trusted.map(|ca| ClientTls::new(Some(ca), None)).transpose();
        return Ok((None, peers.map_err(|error| StartError::usage(error.to_string()))?));
    };
    let (certificate, key) = (read(certificate_file)?, secret_of(key_file, secret::GROUP_MAY)?);
    let identity = PemIdentity { certificate: &certificate, key: &key };
    let server = ServerTls::new(identity, client_ca.as_deref());
    let server = server.map_err(|error| match error {
        fleet_http::TlsError::NoCertificate | fleet_http::TlsError::Certificate(_) => {
            wrong(certificate_file, &error)
        }
        error => wrong(key_file, &error),
    })?;
    let peers = trusted.map(|ca| ClientTls::new(Some(ca), Some(identity))).transpose();
    Ok((Some(server), peers.map_err(|error| wrong(certificate_file, &error))?))
}

fn read(file: &Named) -> Result<Vec<u8>, StartError> {
    std::fs::read(&file.path).map_err(|error| complaint(file, error.to_string()))
}

fn secret_of(file: &Named, may_not: u32) -> Result<Vec<u8>, StartError> {
    secret::read(&file.path, may_not).map_err(|problem| complaint(file, problem))
}

fn secret_text(file: &Named) -> Result<String, StartError> {
    let bytes = secret_of(file, secret::OWNER_ALONE)?;
    String::from_utf8(bytes).map_err(|_| complaint(file, "it is no text".to_owned()))
}

fn wrong(file: &Named, error: &dyn Error) -> StartError {
    complaint(file, chain::in_one_line(&error.to_string(), error.source()))
}

fn complaint(file: &Named, problem: String) -> StartError {
    let Named { key, path, origin } = file;
    StartError::usage(format!("{origin}: {key}: {}: {problem}", path.display()))
}
