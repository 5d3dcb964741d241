//! Reads the files that the settings of the etcd store name.

use std::path::Path;

use fleet_store::{EtcdConfig, EtcdIdentity, EtcdTls, EtcdUser};

use super::config::{EtcdSettings, Password};
use super::error::{Context as _, StartError};

/// What the store is opened with.
pub(crate) fn config(settings: &EtcdSettings) -> Result<EtcdConfig, StartError> {
    let user = settings
        .user
        .as_ref()
        .map(|(name, password)| Ok(EtcdUser { name: name.clone(), password: plain(password)? }));
    let identity = settings.identity.as_ref().map(|(certificate, key)| {
        Ok(EtcdIdentity { certificate: read(certificate)?, key: read(key)? })
    });
    let ca = settings.ca.as_deref().map(read).transpose()?;
    // By chance, so that the daemons of a cluster share its members.
    let spread = getrandom::u64().map_err(|error| StartError::new(error.to_string()))?;
    Ok(EtcdConfig {
        spread: Some(spread),
        tls: EtcdTls { ca, identity: identity.transpose()? },
        user: user.transpose()?,
        time_limit: settings.time_limit,
        ..EtcdConfig::new(settings.servers.iter().cloned())
    })
}

/// The password, without the line end of its file.
fn plain(password: &Password) -> Result<String, StartError> {
    match password {
        Password::Plain(password) => Ok(password.clone()),
        Password::File(path) => {
            let text = String::from_utf8(read(path)?);
            let text = text.context(|| format!("{} is no text", path.display()))?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path).context(|| format!("cannot read {}", path.display()))
}
