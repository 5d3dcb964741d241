//! Configuration keys of the etcd store. Those that fleet v1 also had keep their names and
//! meanings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fleet_http::Endpoint;
use fleet_store::{EtcdConfig, Layout};
use fleet_unitfile::values::parse_timespan;

use super::ConfigError;
use super::auth::{FileSetting, file_setting};
use super::resolve::{Values, bad_value, contradiction, requires};

/// Settings of the etcd store. The files are not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EtcdSettings {
    pub(crate) servers: Vec<String>,
    pub(crate) ca: Option<PathBuf>,
    /// A certificate and its key.
    pub(crate) identity: Option<(PathBuf, FileSetting)>,
    pub(crate) user: Option<(String, Password)>,
    pub(crate) key_prefix: String,
    pub(crate) time_limit: Duration,
}

/// A password, or the file that contains it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Password {
    Plain(String),
    File(FileSetting),
}

impl EtcdSettings {
    pub(super) fn resolve(values: &Values<'_>) -> Result<Self, ConfigError> {
        let file = |key: &str| text(values, key).map(PathBuf::from);
        let settings = Self {
            servers: servers(values)?,
            ca: file("etcd_cafile"),
            identity: match (file("etcd_certfile"), file_setting(values, "etcd_keyfile")) {
                (Some(certificate), Some(key)) => Some((certificate, key)),
                (None, None) => None,
                (Some(_), None) => return Err(requires(values, "etcd_certfile", "etcd_keyfile")),
                (None, Some(_)) => return Err(requires(values, "etcd_keyfile", "etcd_certfile")),
            },
            user: user(values)?,
            key_prefix: text(values, "etcd_key_prefix").unwrap_or(Layout::DEFAULT_PREFIX).into(),
            time_limit: time_limit(values)?,
        };
        settings.refuse_plain(values)?;
        settings.refuse_readable_password(values)?;
        Ok(settings)
    }

    /// Refuses a CA or client certificate if some server has no `https://` URL, because the
    /// certificate would have no effect there.
    fn refuse_plain(&self, values: &Values<'_>) -> Result<(), ConfigError> {
        let key = if self.ca.is_some() { "etcd_cafile" } else { "etcd_certfile" };
        let encrypts = self.ca.is_some() || self.identity.is_some();
        match self.servers.iter().find(|server| encrypts && !server.starts_with("https://")) {
            Some(server) => {
                let problem = format!(
                    "{key} has no effect for {server}: write an https:// URL in etcd_servers"
                );
                Err(contradiction(values, key, problem))
            }
            None => Ok(()),
        }
    }

    /// Refuses to send a password to another host without encryption.
    fn refuse_readable_password(&self, values: &Values<'_>) -> Result<(), ConfigError> {
        let is_private = |url: &String| url.parse::<Endpoint>().is_ok_and(|url| url.is_private());
        match self.servers.iter().find(|server| self.user.is_some() && !is_private(server)) {
            Some(server) => {
                let problem = format!(
                    "{server} is on another host, and the password of etcd_username would be sent \
                     without encryption: write an https:// URL"
                );
                Err(contradiction(values, "etcd_servers", problem))
            }
            None => Ok(()),
        }
    }
}

/// Returns the value of a key, or `None` if it is empty.
fn text<'a>(values: &Values<'a>, key: &str) -> Option<&'a str> {
    values.text(key).map(str::trim).filter(|text| !text.is_empty())
}

fn servers(values: &Values<'_>) -> Result<Vec<String>, ConfigError> {
    let key = "etcd_servers";
    let Some(found) = values.raw.get(key) else {
        return Ok(vec!["http://127.0.0.1:2379".to_owned()]);
    };
    let expected = "URLs such as https://10.0.0.1:2379,https://10.0.0.2:2379";
    let items = found.raw.items();
    let is_url = |item: &String| {
        let rest = item.strip_prefix("http://").or_else(|| item.strip_prefix("https://"));
        rest.is_some_and(|rest| !rest.is_empty())
    };
    match items.iter().find(|item| !is_url(item)) {
        Some(wrong) => Err(bad_value(key, found, expected, wrong)),
        None if items.is_empty() => Err(bad_value(key, found, expected, "")),
        None => Ok(items),
    }
}

fn user(values: &Values<'_>) -> Result<Option<(String, Password)>, ConfigError> {
    let (name, plain, file) = ("etcd_username", "etcd_password", "etcd_password_file");
    let password = match (text(values, plain), file_setting(values, file)) {
        (Some(_), Some(_)) => {
            let problem = format!("{plain} and {file} cannot be combined: write one of them");
            return Err(contradiction(values, plain, problem));
        }
        (Some(password), None) => Some((plain, Password::Plain(password.to_owned()))),
        (None, Some(setting)) => Some((file, Password::File(setting))),
        (None, None) => None,
    };
    match (text(values, name), password) {
        (Some(user), Some((_, password))) => Ok(Some((user.to_owned(), password))),
        (Some(_), None) => Err(requires(values, name, file)),
        (None, Some((key, _))) => Err(requires(values, key, name)),
        (None, None) => Ok(None),
    }
}

fn time_limit(values: &Values<'_>) -> Result<Duration, ConfigError> {
    let expected = "a time from 10ms to 1min, such as 2s";
    let sensible = Duration::from_millis(10)..=Duration::from_secs(60);
    let limit = values.parsed("etcd_request_timeout", expected, |text| {
        parse_timespan(text).ok()?.as_duration().filter(|limit| sensible.contains(limit))
    })?;
    Ok(limit.unwrap_or(EtcdConfig::DEFAULT_TIME_LIMIT))
}

impl fmt::Debug for Password {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain"),
            Self::File(file) => f.debug_tuple("File").field(&file.path).finish(),
        }
    }
}
