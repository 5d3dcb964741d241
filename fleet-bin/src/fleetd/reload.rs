//! Reloads the configuration, certificates and tokens, as far as possible without a restart.
//! `RELOADABLE` in `config/keys.rs` lists the keys whose changes take effect.

use std::error::Error;
use std::path::PathBuf;

use fleet_http::tls::{PemIdentity, certificate_covers};
use fleet_http::{AuthPolicy, ClientTls, Credentials, Peers, ServerTls, Tokens};
use fleet_store::registry::MachineRecord;
use rustix::process::geteuid;

use super::config::{AuthSettings, Config, FileSetting, RELOADABLE, RawConfig};
use super::run::config_error;
use super::wire_up::RunningDaemon;
use super::{StartError, config, machine};
use crate::ui::logging::Level;
use crate::ui::{error, secret};

/// Sources of the configuration, and the values last read.
pub(crate) struct ConfigSource {
    file: Option<PathBuf>,
    flags: RawConfig,
    found: RawConfig,
}

impl ConfigSource {
    /// Reads and checks the configuration.
    pub(crate) fn read(
        file: Option<PathBuf>,
        flags: RawConfig,
    ) -> Result<(Self, Config), StartError> {
        let mut source = Self { file, flags, found: RawConfig::new() };
        let config;
        (source.found, config) = source.load()?;
        Ok((source, config))
    }

    fn load(&self) -> Result<(RawConfig, Config), StartError> {
        let environment = |name: &str| std::env::var(name).ok();
        let found = config::find(self.file.as_deref(), &environment, self.flags.clone());
        let found = found.map_err(config_error)?;
        let config = Config::resolve(&found).map_err(config_error)?;
        config.check_user(&found, geteuid().is_root()).map_err(config_error)?;
        Ok((found, config))
    }

    /// Reads the configuration and the authentication files again, and applies the changes that
    /// need no restart. If anything is invalid, nothing changes.
    ///
    /// Returns a text for the daemon's status, which is empty if there is nothing to report.
    /// `machine` is the record that the machine had at startup.
    pub(crate) fn reload(
        &mut self,
        machine: &MachineRecord,
        running: &RunningDaemon,
        auth: &AuthReloader,
        level: &Level,
    ) -> String {
        let (found, config) = match self.load() {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(
                    "cannot reload the configuration, so the previous one stays in effect: {error}"
                );
                return format!("the configuration was not reloaded: {error}");
            }
        };
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        if let Err(error) = auth.reload() {
            tracing::error!(
                "cannot reload certificates and tokens, so the previous ones and the previous \
                 configuration stay in effect: {error}"
            );
            return format!("nothing was reloaded: {error}");
        }
        level.set(config.verbosity);
        let now = machine::record(&config, machine.id.clone(), &[]);
        let (started, api, manager) =
            (machine.started, machine.api.clone(), machine.manager.clone());
        running.describe(&MachineRecord { started, api, manager, ..now });
        let pending = self.restart_required(&found);
        for key in &pending {
            tracing::warn!("the new value of {key} takes effect only after a restart of fleetd");
        }
        // Keys that require a restart keep their old values, so that the next reload reports them
        // again.
        self.found.retain(|key, _| !RELOADABLE.contains(key));
        self.found.extend(found.into_iter().filter(|(key, _)| RELOADABLE.contains(key)));
        tracing::info!("reloaded the configuration");
        if pending.is_empty() {
            return String::new();
        }
        format!("reloaded; restart required: {}", pending.join(", "))
    }

    /// Returns the changed keys that require a restart.
    fn restart_required(&self, found: &RawConfig) -> Vec<&'static str> {
        let raw = |low: &RawConfig, key: &str| low.get(key).map(|found| found.raw.clone());
        let keys = config::KEYS.iter().map(|key| key.name);
        let other = keys.filter(|key| raw(found, key) != raw(&self.found, key));
        other.filter(|key| !RELOADABLE.contains(key)).collect()
    }
}

/// Contents of the authentication files.
#[derive(Debug)]
pub(crate) struct LoadedAuth {
    tls: Option<ServerTls>,
    tokens: Option<Tokens>,
    /// Credentials for other daemons.
    peers: Credentials,
}

/// Authentication of a running daemon, reloadable from its files.
pub(crate) struct AuthReloader {
    settings: AuthSettings,
    /// Authentication at ports.
    pub(crate) policy: AuthPolicy,
    /// Clients of other daemons.
    pub(crate) peers: Peers,
}

impl AuthReloader {
    /// Loads the files.
    pub(crate) fn open(settings: AuthSettings) -> Result<Self, StartError> {
        let loaded = load_auth(&settings)?;
        let policy = AuthPolicy::new(loaded.tls, loaded.tokens);
        Ok(Self { policy, peers: Peers::new(loaded.peers), settings })
    }

    /// Reloads the files. If one is invalid, nothing changes.
    pub(crate) fn reload(&self) -> Result<(), StartError> {
        let loaded = load_auth(&self.settings)?;
        self.policy.replace(loaded.tls, loaded.tokens);
        self.peers.set_credentials(loaded.peers);
        Ok(())
    }
}

/// Loads and validates the authentication files. An error names the configuration key and the file.
pub(crate) fn load_auth(settings: &AuthSettings) -> Result<LoadedAuth, StartError> {
    let (tls, peers_tls) = certificates(settings)?;
    let text = settings.tokens.as_ref().map(|file| Ok((file, secret_text(file)?))).transpose()?;
    let tokens = text
        .as_ref()
        .map(|(file, text)| Tokens::parse(text).map_err(|error| tls_error(file, &error)));
    let peer_token = match &settings.peer_token {
        Some(file) => {
            let first = secret::first_token(&secret_text(file)?);
            Some(first.ok_or_else(|| file_error(file, "the file contains no token".to_owned()))?)
        }
        None => text.as_ref().and_then(|(_, text)| secret::first_token(text)),
    };
    Ok(LoadedAuth {
        tls,
        tokens: tokens.transpose()?,
        peers: Credentials::default().with_tls(peers_tls).with_token(peer_token),
    })
}

/// Returns a warning if the certificate of this daemon lacks the host of its URL, so that other
/// daemons and clients cannot verify it. The file must be valid; otherwise returns nothing.
pub(crate) fn certificate_warning(config: &Config) -> Option<String> {
    let (file, _) = config.auth.identity.as_ref()?;
    let url = config.auth.url(&config.listen, machine::address(config))?;
    let host = url.host().filter(|_| url.is_tls())?;
    let is_covered = certificate_covers(&read(file).ok()?, host).ok()?;
    (!is_covered).then(|| {
        format!(
            "{}: {} is not valid for {host}, so other daemons and clients cannot verify {url}: \
             issue it with {host} as a subject alternative name, or write public_url with a name \
             that it has",
            file.origin,
            file.path.display()
        )
    })
}

/// Returns the TLS configurations of the server and of clients of other daemons.
fn certificates(
    settings: &AuthSettings,
) -> Result<(Option<ServerTls>, Option<ClientTls>), StartError> {
    let client_ca = settings.client_ca.as_ref().map(read).transpose()?;
    let peer_ca = settings.peer_ca.as_ref().map(read).transpose()?;
    // Each CA is validated separately, so that the error names the right file.
    for (file, ca) in [(&settings.client_ca, &client_ca), (&settings.peer_ca, &peer_ca)] {
        if let (Some(file), Some(ca)) = (file, ca) {
            ClientTls::new(Some(ca), None).map_err(|error| tls_error(file, &error))?;
        }
    }
    let trusted = peer_ca.as_deref().or(client_ca.as_deref());
    let Some((certificate_file, key_file)) = &settings.identity else {
        let peers = trusted.map(|ca| ClientTls::new(Some(ca), None)).transpose();
        return Ok((None, peers.map_err(|error| StartError::usage(error.to_string()))?));
    };
    let (certificate, key) =
        (read(certificate_file)?, secret_of(key_file, secret::OWNER_AND_GROUP)?);
    let identity = PemIdentity { certificate: &certificate, key: &key };
    let server = ServerTls::new(identity, client_ca.as_deref());
    let server = server.map_err(|error| match error {
        fleet_http::tls::TlsError::NoCertificate | fleet_http::tls::TlsError::Certificate(_) => {
            tls_error(certificate_file, &error)
        }
        error => tls_error(key_file, &error),
    })?;
    let peers = trusted.map(|ca| ClientTls::new(Some(ca), Some(identity))).transpose();
    Ok((Some(server), peers.map_err(|error| tls_error(certificate_file, &error))?))
}

fn read(file: &FileSetting) -> Result<Vec<u8>, StartError> {
    std::fs::read(&file.path).map_err(|error| file_error(file, error.to_string()))
}

/// Reads a secret file. An error names the configuration key and the file.
pub(super) fn secret_of(file: &FileSetting, may_not: u32) -> Result<Vec<u8>, StartError> {
    secret::read(&file.path, may_not).map_err(|problem| file_error(file, problem))
}

/// Reads a secret text that only its owner may access.
pub(super) fn secret_text(file: &FileSetting) -> Result<String, StartError> {
    let bytes = secret_of(file, secret::OWNER_ONLY)?;
    String::from_utf8(bytes).map_err(|_| file_error(file, "the file is not UTF-8 text".to_owned()))
}

fn tls_error(file: &FileSetting, error: &dyn Error) -> StartError {
    file_error(file, error::in_one_line(&error.to_string(), error.source()))
}

fn file_error(file: &FileSetting, problem: String) -> StartError {
    let FileSetting { key, path, origin } = file;
    StartError::usage(format!("{origin}: {key}: {}: {problem}", path.display()))
}
