//! The keys that say who is let in at ports, and how other daemons are spoken to.

use std::net::SocketAddr;
use std::path::PathBuf;

use fleet_http::{Endpoint, Listen};

use super::error::ConfigError;
use super::resolve::{Values, alone, bad, contradiction};
use super::value::Origin;

/// Who is let in at ports, and how other daemons are spoken to; the files are not read yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DoorSettings {
    /// A certificate and its key.
    pub(crate) identity: Option<(Named, Named)>,
    pub(crate) client_ca: Option<Named>,
    pub(crate) tokens: Option<Named>,
    pub(crate) peer_ca: Option<Named>,
    pub(crate) peer_token: Option<Named>,
    /// Where other daemons reach this one; nothing to find it out.
    pub(crate) public_url: Option<Endpoint>,
}

/// A file, with the place that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) key: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) origin: Origin,
}

impl DoorSettings {
    /// Checks the keys, and that every port that other hosts can reach is kept. Such a port is
    /// spoken to by TLS, however it is written.
    pub(super) fn resolve(
        values: &Values<'_>,
        listen: Vec<Listen>,
    ) -> Result<(Self, Vec<Listen>), ConfigError> {
        let doors = Self {
            identity: identity(values)?,
            client_ca: named(values, "client_ca_file"),
            tokens: named(values, "token_file"),
            peer_ca: named(values, "peer_ca_file"),
            peer_token: named(values, "peer_token_file"),
            public_url: public_url(values)?,
        };
        if doors.client_ca.is_some() && doors.identity.is_none() {
            return Err(alone(values, "client_ca_file", "tls_cert_file and tls_key_file"));
        }
        let kept = listen.into_iter().map(|listen| doors.kept(values, listen));
        let listen = kept.collect::<Result<_, _>>()?;
        Ok((doors, listen))
    }

    fn kept(&self, values: &Values<'_>, listen: Listen) -> Result<Listen, ConfigError> {
        let (address, asks_tls) = match listen {
            Listen::Unix(_) => return Ok(listen),
            Listen::Tcp(address) => (address, false),
            Listen::Tls(address) => (address, true),
        };
        let is_open = !address.ip().to_canonical().is_loopback();
        let refused = |remedy: &str| {
            let why = if is_open { "other hosts can reach it" } else { "it is for TLS" };
            Err(contradiction(values, "listen", format!("{listen}: {why}: {remedy}")))
        };
        if (is_open || asks_tls) && self.identity.is_none() {
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
                "anybody there would be let in: write client_ca_file or token_file, too",
            );
        }
        Ok(if is_open { Listen::Tls(address) } else { listen })
    }

    /// Checks that other daemons reach the URL, which meet this one in etcd at these servers. Where
    /// those are of this host alone, so are all daemons.
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
                    "{url}: daemons on other hosts, as etcd_servers are, do not reach it: write \
                     a URL such as https://node7.example.com:4285, or leave public_url out"
                );
                Err(contradiction(values, "public_url", problem))
            }
            _ => Ok(()),
        }
    }

    /// Where other daemons reach one that listens there, at an address of its own.
    pub(crate) fn url<'a>(
        &self,
        listen: impl IntoIterator<Item = &'a Listen>,
        address: Option<std::net::IpAddr>,
    ) -> Option<Endpoint> {
        if self.public_url.is_some() {
            return self.public_url.clone();
        }
        let reachable = listen.into_iter().find_map(|listen| match listen {
            Listen::Tls(at) if at.ip().is_unspecified() => {
                Some(SocketAddr::new(address?, at.port()))
            }
            Listen::Tls(at) if !at.ip().to_canonical().is_loopback() => Some(*at),
            _ => None,
        });
        format!("https://{}", reachable?).parse().ok()
    }
}

fn named(values: &Values<'_>, key: &'static str) -> Option<Named> {
    let path = values.text(key).map(str::trim).filter(|text| !text.is_empty())?;
    let origin = values.low.get(key)?.origin.clone();
    Some(Named { key, path: path.into(), origin })
}

fn identity(values: &Values<'_>) -> Result<Option<(Named, Named)>, ConfigError> {
    match (named(values, "tls_cert_file"), named(values, "tls_key_file")) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(alone(values, "tls_cert_file", "tls_key_file")),
        (None, Some(_)) => Err(alone(values, "tls_key_file", "tls_cert_file")),
    }
}

fn public_url(values: &Values<'_>) -> Result<Option<Endpoint>, ConfigError> {
    let Some(found) = values.low.get("public_url") else { return Ok(None) };
    let text = values.text("public_url").unwrap_or_default().trim();
    let expected = "a URL such as https://node7.example.com:4285";
    if text.is_empty() {
        return Ok(None);
    }
    let url: Endpoint = text.parse().map_err(|_| bad("public_url", found, expected, text))?;
    if url.is_private() { Ok(Some(url)) } else { Err(bad("public_url", found, expected, text)) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file;
    use super::super::resolve::Config;

    fn resolve(text: &str) -> Result<Config, String> {
        let low = file::read(Path::new("fleet.conf"), text).map_err(|error| error.to_string())?;
        Config::resolve(&low).map_err(|error| error.to_string())
    }

    const KEPT: &str = "tls_cert_file = \"/c\"\ntls_key_file = \"/k\"\ntoken_file = \"/t\"\n";

    #[test]
    fn a_port_for_other_hosts_is_kept_or_refused_with_the_remedy() {
        let cases = [
            (
                "verbosity = 0\nlisten = \"tcp://0.0.0.0:4285\"\n",
                "fleet.conf:2:1: tcp://0.0.0.0:4285: other hosts can reach it: write \
                 tls_cert_file and tls_key_file, with client_ca_file or token_file, or listen on \
                 127.0.0.1 or a unix socket",
            ),
            (
                "listen = \"https://[::]:1\"\ntls_cert_file = \"/c\"\ntls_key_file = \"/k\"\n",
                "fleet.conf:1:1: https://[::]:1: other hosts can reach it: anybody there would be \
                 let in: write client_ca_file or token_file, too",
            ),
            (
                "listen = \"https://127.0.0.1:1\"\n",
                "fleet.conf:1:1: https://127.0.0.1:1: it is for TLS: write tls_cert_file and \
                 tls_key_file",
            ),
            (
                "tls_cert_file = \"/c\"\n",
                "fleet.conf:1:1: tls_cert_file is of no use alone: write tls_key_file, too",
            ),
            (
                "\n\nclient_ca_file = \"/c\"\n",
                "fleet.conf:3:1: client_ca_file is of no use alone: write tls_cert_file and \
                 tls_key_file, too",
            ),
            (
                "public_url = \"http://10.0.0.1:4285\"\n",
                "fleet.conf:1:1: public_url cannot be \"http://10.0.0.1:4285\": \
                 write a URL such as https://node7.example.com:4285",
            ),
        ];
        for (text, complaint) in cases {
            assert_eq!(resolve(text).unwrap_err(), complaint, "of {text:?}");
        }
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn a_url_that_other_daemons_do_not_reach_is_refused() {
        let of = |url: &str, servers: &str| {
            resolve(&format!("public_url = \"{url}\"\netcd_servers = \"{servers}\"\n"))
        };
        let (here, there) = ("http://127.0.0.1:2379", "http://127.0.0.1:2379,http://10.0.0.1:2379");
        for url in ["unix:///run/fleet.sock", "https://127.0.0.1:4285", "http://localhost:4285"] {
            assert!(of(url, here).is_ok(), "all daemons are on this host: {url}");
            let refused = of(url, there).unwrap_err();
            let place = format!("fleet.conf:1:1: {url}: daemons on other hosts");
            assert!(refused.starts_with(&place), "{refused}");
        }
        assert!(of("https://a.example:4285", there).is_ok());
    }

    #[test]
    fn where_others_reach_a_daemon_follows_from_where_it_listens() {
        let cases = [
            ("tcp://0.0.0.0:4285", "", "https://10.0.0.7:4285"),
            ("https://10.0.0.8:1", "", "https://10.0.0.8:1"),
            ("https://127.0.0.1:1", "", ""),
            ("tcp://127.0.0.1:1", "", ""),
            ("tcp://0.0.0.0:1", "https://a.example", "https://a.example:443"),
        ];
        for (listen, public, expected) in cases {
            let config = format!("listen = \"{listen}\"\npublic_url = \"{public}\"\n{KEPT}");
            let config = resolve(&config).unwrap();
            let url = config.doors.url(&config.listen, Some("10.0.0.7".parse().unwrap()));
            assert_eq!(url.map_or_else(String::new, |url| url.to_string()), expected, "{listen}");
        }
    }
}
