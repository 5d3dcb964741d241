//! Loads the files named by the settings of the etcd store.

use std::path::Path;

use fleet_store::{EtcdConfig, EtcdIdentity, EtcdTls, EtcdUser};

use super::config::{EtcdSettings, Password};
use super::reload::{secret_of, secret_text};
use super::{Context as _, StartError};
use crate::ui::secret;

/// Returns the configuration of the etcd store.
pub(crate) fn config(settings: &EtcdSettings) -> Result<EtcdConfig, StartError> {
    let user = settings
        .user
        .as_ref()
        .map(|(name, password)| Ok(EtcdUser { name: name.clone(), password: plain(password)? }));
    let identity = settings.identity.as_ref().map(|(certificate, key)| {
        let certificate = read(certificate)?;
        Ok(EtcdIdentity { certificate, key: secret_of(key, secret::OWNER_AND_GROUP)? })
    });
    let ca = settings.ca.as_deref().map(read).transpose()?;
    // A random seed spreads the daemons of a cluster over the etcd members.
    let spread = getrandom::u64().map_err(|error| StartError::new(error.to_string()))?;
    Ok(EtcdConfig {
        shuffle_seed: Some(spread),
        tls: EtcdTls { ca, identity: identity.transpose()? },
        user: user.transpose()?,
        time_limit: settings.time_limit,
        ..EtcdConfig::new(settings.servers.iter().cloned())
    })
}

/// Returns the password, without the newline of its file.
fn plain(password: &Password) -> Result<String, StartError> {
    match password {
        Password::Plain(password) => Ok(password.clone()),
        Password::File(file) => {
            Ok(secret_text(file)?.lines().next().unwrap_or_default().to_owned())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path).context(|| format!("cannot read {}", path.display()))
}
