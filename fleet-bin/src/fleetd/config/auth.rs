//! Keys for authentication at ports and to other daemons.

use std::net::SocketAddr;
use std::path::PathBuf;

use fleet_http::{Endpoint, ListenAddress};
use fleet_unitfile::values::parse_bool;

use super::resolve::{Values, bad_value, contradiction, requires};
use super::{ConfigError, ValueOrigin};

/// Key that permits root to listen on loopback without authentication.
const ALLOW_OPEN_LOOPBACK: &str = "allow_unauthenticated_loopback";

/// Authentication settings. The files are not read yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AuthSettings {
    /// A certificate and its key.
    pub(crate) identity: Option<(FileSetting, FileSetting)>,
    pub(crate) client_ca: Option<FileSetting>,
    pub(crate) tokens: Option<FileSetting>,
    pub(crate) peer_ca: Option<FileSetting>,
    pub(crate) peer_token: Option<FileSetting>,
    /// URL at which other daemons reach this one; derived from `listen` if `None`.
    pub(crate) public_url: Option<Endpoint>,
    /// Whether root may listen on loopback without authentication.
    pub(crate) allow_open_loopback: bool,
}

/// A file, with the key and position that name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSetting {
    pub(crate) key: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) origin: ValueOrigin,
}

impl AuthSettings {
    /// Resolves the authentication keys. Also checks that each port that other hosts can reach has
    /// a certificate and requires authentication.
    ///
    /// Returns the settings and the listen addresses. A port that other hosts can reach becomes a
    /// TLS port, even if its URL begins with `tcp://`.
    pub(super) fn resolve(
        values: &Values<'_>,
        listen: Vec<ListenAddress>,
    ) -> Result<(Self, Vec<ListenAddress>), ConfigError> {
        let auth = Self {
            identity: identity(values)?,
            client_ca: file_setting(values, "client_ca_file"),
            tokens: file_setting(values, "token_file"),
            peer_ca: file_setting(values, "peer_ca_file"),
            peer_token: file_setting(values, "peer_token_file"),
            public_url: public_url(values)?,
            allow_open_loopback: values
                .parsed(ALLOW_OPEN_LOOPBACK, "true or false", parse_bool)?
                .unwrap_or(false),
        };
        if auth.client_ca.is_some() && auth.identity.is_none() {
            return Err(requires(values, "client_ca_file", "tls_cert_file and tls_key_file"));
        }
        let protected = listen.into_iter().map(|listen| auth.protect(values, listen));
        let listen = protected.collect::<Result<_, _>>()?;
        Ok((auth, listen))
    }

    fn protect(
        &self,
        values: &Values<'_>,
        listen: ListenAddress,
    ) -> Result<ListenAddress, ConfigError> {
        let (address, is_tls) = match listen {
            ListenAddress::Unix(_) => return Ok(listen),
            ListenAddress::Tcp(address) => (address, false),
            ListenAddress::Tls(address) => (address, true),
        };
        let is_open = !address.ip().to_canonical().is_loopback();
        let refused = |remedy: &str| {
            let why = if is_open { "can be reached from other hosts" } else { "requires TLS" };
            Err(contradiction(values, "listen", format!("{listen} {why}: {remedy}")))
        };
        if (is_open || is_tls) && self.identity.is_none() {
            return refused(&format!(
                "write tls_cert_file and tls_key_file{}",
                if is_open {
                    ", with client_ca_file or token_file, or listen on 127.0.0.1 or a unix socket"
                } else {
                    ""
                }
            ));
        }
        if is_open && self.client_ca.is_none() && self.tokens.is_none() {
            return refused(
                "also write client_ca_file or token_file, which require authentication",
            );
        }
        Ok(if is_open { ListenAddress::Tls(address) } else { listen })
    }

    /// Returns an error for the first address that gives root's rights to every user of this
    /// machine, if the daemon runs as root: a port on loopback without authentication.
    pub(crate) fn refuse_open_loopback<'a>(
        &self,
        listen: impl IntoIterator<Item = &'a ListenAddress>,
        is_root: bool,
    ) -> Result<(), String> {
        // Client certificates protect only ports with TLS.
        let is_open = |listen: &&ListenAddress| match listen {
            ListenAddress::Unix(_) => false,
            ListenAddress::Tcp(_) => self.tokens.is_none(),
            ListenAddress::Tls(_) => self.tokens.is_none() && self.client_ca.is_none(),
        };
        match listen.into_iter().find(is_open) {
            Some(open) if is_root && !self.allow_open_loopback => Err(format!(
                "{open} lets every user of this machine run programs as root: write token_file, \
                 listen on a unix socket, or write {ALLOW_OPEN_LOOPBACK} = true"
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a public URL that only this host can reach (such as `http://localhost:4285`) if an
    /// etcd server is on another host. The cluster then probably has daemons on other hosts too.
    #[cfg(feature = "etcd")]
    pub(super) fn check_reach(
        &self,
        values: &Values<'_>,
        servers: &[String],
    ) -> Result<(), ConfigError> {
        let is_local = |url: &String| url.parse::<Endpoint>().is_ok_and(|url| url.is_local());
        match self.public_url.as_ref().filter(|url| url.is_local()) {
            Some(url) if !servers.iter().all(is_local) => {
                let problem = format!(
                    "daemons on other hosts cannot reach public_url {url}, but etcd_servers are on \
                     other hosts: write a URL such as https://node7.example.com:4285, or omit \
                     public_url"
                );
                Err(contradiction(values, "public_url", problem))
            }
            _ => Ok(()),
        }
    }

    /// Returns the URL at which other daemons reach this one: the configured `public_url`, or else
    /// the first TLS port that other hosts can reach. `address` replaces a wildcard such as
    /// `0.0.0.0`. Returns `None` if there is no such port.
    pub(crate) fn url<'a>(
        &self,
        listen: impl IntoIterator<Item = &'a ListenAddress>,
        address: Option<std::net::IpAddr>,
    ) -> Option<Endpoint> {
        if self.public_url.is_some() {
            return self.public_url.clone();
        }
        let reachable = listen.into_iter().find_map(|listen| match listen {
            ListenAddress::Tls(at) if at.ip().is_unspecified() => {
                Some(SocketAddr::new(address?, at.port()))
            }
            ListenAddress::Tls(at) if !at.ip().to_canonical().is_loopback() => Some(*at),
            _ => None,
        });
        format!("https://{}", reachable?).parse().ok()
    }
}

pub(super) fn file_setting(values: &Values<'_>, key: &'static str) -> Option<FileSetting> {
    let path = values.text(key).map(str::trim).filter(|text| !text.is_empty())?;
    let origin = values.raw.get(key)?.origin.clone();
    Some(FileSetting { key, path: path.into(), origin })
}

fn identity(values: &Values<'_>) -> Result<Option<(FileSetting, FileSetting)>, ConfigError> {
    match (file_setting(values, "tls_cert_file"), file_setting(values, "tls_key_file")) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(requires(values, "tls_cert_file", "tls_key_file")),
        (None, Some(_)) => Err(requires(values, "tls_key_file", "tls_cert_file")),
    }
}

fn public_url(values: &Values<'_>) -> Result<Option<Endpoint>, ConfigError> {
    let Some(found) = values.raw.get("public_url") else { return Ok(None) };
    let text = values.text("public_url").unwrap_or_default().trim();
    let expected = "a URL such as https://node7.example.com:4285";
    if text.is_empty() {
        return Ok(None);
    }
    let url: Endpoint = text.parse().map_err(|_| bad_value("public_url", found, expected, text))?;
    if url.is_private() {
        Ok(Some(url))
    } else {
        Err(bad_value("public_url", found, expected, text))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file;
    use super::super::resolve::Config;

    fn resolve(text: &str) -> Result<Config, String> {
        let raw = file::read(Path::new("fleet.conf"), text).map_err(|error| error.to_string())?;
        Config::resolve(&raw).map_err(|error| error.to_string())
    }

    const PROTECTED: &str = "tls_cert_file = \"/c\"\ntls_key_file = \"/k\"\ntoken_file = \"/t\"\n";

    #[test]
    fn unprotected_public_port_is_refused() {
        let cases = [
            (
                "verbosity = 0\nlisten = \"tcp://0.0.0.0:4285\"\n",
                "fleet.conf:2:1: tcp://0.0.0.0:4285 can be reached from other hosts: write \
                 tls_cert_file and tls_key_file, with client_ca_file or token_file, or listen on \
                 127.0.0.1 or a unix socket",
            ),
            (
                "listen = \"https://[::]:1\"\ntls_cert_file = \"/c\"\ntls_key_file = \"/k\"\n",
                "fleet.conf:1:1: https://[::]:1 can be reached from other hosts: also write \
                 client_ca_file or token_file, which require authentication",
            ),
            (
                "listen = \"https://127.0.0.1:1\"\n",
                "fleet.conf:1:1: https://127.0.0.1:1 requires TLS: write tls_cert_file and \
                 tls_key_file",
            ),
            ("tls_cert_file = \"/c\"\n", "fleet.conf:1:1: tls_cert_file requires tls_key_file"),
            (
                "\n\nclient_ca_file = \"/c\"\n",
                "fleet.conf:3:1: client_ca_file requires tls_cert_file and \
                 tls_key_file",
            ),
            (
                "public_url = \"http://10.0.0.1:4285\"\n",
                "fleet.conf:1:1: public_url cannot be \"http://10.0.0.1:4285\": \
                 write a URL such as https://node7.example.com:4285",
            ),
        ];
        for (text, error) in cases {
            assert_eq!(resolve(text).unwrap_err(), error, "of {text:?}");
        }
    }

    #[test]
    fn root_refuses_loopback_without_authentication() {
        let tls = "tls_cert_file = \"/c\"\ntls_key_file = \"/k\"\n";
        let with_ca = format!("{tls}client_ca_file = \"/a\"\n");
        let allowed = "allow_unauthenticated_loopback = true\n";
        let cases = [
            ("tcp://127.0.0.1:1", "", false),
            ("tcp://[::1]:1", "", false),
            ("https://127.0.0.1:1", tls, false),
            ("tcp://127.0.0.1:1", with_ca.as_str(), false),
            ("https://127.0.0.1:1", with_ca.as_str(), true),
            ("https://0.0.0.0:1", with_ca.as_str(), true),
            ("tcp://127.0.0.1:1", "token_file = \"/t\"\n", true),
            ("tcp://127.0.0.1:1", allowed, true),
            ("unix:///run/fleet.sock", "", true),
        ];
        for (listen, rest, is_accepted) in cases {
            let text = format!("{rest}listen = [\"unix:///s\", \"{listen}\"]\n");
            let raw = file::read(Path::new("fleet.conf"), &text).unwrap();
            let config = Config::resolve(&raw).unwrap();
            let of_root = config.check_user(&raw, true);
            assert_eq!(of_root.is_ok(), is_accepted, "{listen} {rest}");
            assert!(config.check_user(&raw, false).is_ok(), "{listen} {rest}");
        }
        let raw = file::read(Path::new("fleet.conf"), "listen = \"tcp://127.0.0.1:1\"\n").unwrap();
        let error = Config::resolve(&raw).unwrap().check_user(&raw, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fleet.conf:1:1: tcp://127.0.0.1:1 lets every user of this machine run programs as \
             root: write token_file, listen on a unix socket, or write \
             allow_unauthenticated_loopback = true"
        );
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn unreachable_public_url_is_refused() {
        let of = |url: &str, servers: &str| {
            resolve(&format!("public_url = \"{url}\"\netcd_servers = \"{servers}\"\n"))
        };
        let (here, there) = ("http://127.0.0.1:2379", "http://127.0.0.1:2379,http://10.0.0.1:2379");
        for url in ["unix:///run/fleet.sock", "https://127.0.0.1:4285", "http://localhost:4285"] {
            assert!(of(url, here).is_ok(), "the etcd server is local, so all daemons are: {url}");
            let refused = of(url, there).unwrap_err();
            let place =
                format!("fleet.conf:1:1: daemons on other hosts cannot reach public_url {url}, ");
            assert!(refused.starts_with(&place), "{refused}");
        }
        assert!(of("https://a.example:4285", there).is_ok());
    }

    #[test]
    fn api_url_follows_from_listen_addresses() {
        let cases = [
            ("tcp://0.0.0.0:4285", "", "https://10.0.0.7:4285"),
            ("https://10.0.0.8:1", "", "https://10.0.0.8:1"),
            ("https://127.0.0.1:1", "", ""),
            ("tcp://127.0.0.1:1", "", ""),
            ("tcp://0.0.0.0:1", "https://a.example", "https://a.example:443"),
        ];
        for (listen, public, expected) in cases {
            let config = format!("listen = \"{listen}\"\npublic_url = \"{public}\"\n{PROTECTED}");
            let config = resolve(&config).unwrap();
            let url = config.auth.url(&config.listen, Some("10.0.0.7".parse().unwrap()));
            assert_eq!(url.map_or_else(String::new, |url| url.to_string()), expected, "{listen}");
        }
    }
}
