//! Credentials for a daemon, and trust in its certificate.

use std::path::{Path, PathBuf};

use fleet_http::tls::{PemIdentity, TlsError};
use fleet_http::{ClientTls, Credentials, Token};

use crate::ui::error::CliError;
use crate::ui::global_args::CredentialArgs;
use crate::ui::secret;

/// Paths of credential files, which are not read yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CredentialFiles {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    token: Option<PathBuf>,
    unverified: bool,
}

impl CredentialFiles {
    /// Takes each value from the command line, or else from the environment.
    pub(crate) fn new(args: &CredentialArgs, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let file = |given: &Option<PathBuf>, name: &str| {
            let given = given.clone().filter(|path| !path.as_os_str().is_empty());
            given.or_else(|| variable(name).map(PathBuf::from))
        };
        let word = variable("FLEETCTL_INSECURE_SKIP_TLS_VERIFY");
        let by_variable =
            word.and_then(|word| fleet_unitfile::values::parse_bool(&word)).unwrap_or(false);
        Self {
            ca: file(&args.ca_file, "FLEETCTL_CA_FILE"),
            certificate: file(&args.cert_file, "FLEETCTL_CERT_FILE"),
            key: file(&args.key_file, "FLEETCTL_KEY_FILE"),
            token: file(&args.token_file, "FLEETCTL_TOKEN_FILE"),
            unverified: args.insecure_skip_tls_verify || by_variable,
        }
    }

    /// Reads the credential files. If `by_tls` is `false`, only the token file is read, because the
    /// connection uses no certificates.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is invalid, or the token file is readable by other users.
    pub(crate) fn credentials(&self, by_tls: bool) -> Result<Credentials, CliError> {
        let token = self.token.as_deref().map(token).transpose()?;
        // The environment may set TLS files for all endpoints, including unix sockets.
        let tls = if by_tls { self.tls()? } else { None };
        Ok(Credentials::default().with_tls(tls).with_token(token))
    }

    fn tls(&self) -> Result<Option<ClientTls>, CliError> {
        let files = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some((bytes("--cert-file", certificate)?, bytes("--key-file", key)?))
            }
            (None, None) => None,
            (Some(_), None) => return Err(requires("--cert-file", "--key-file")),
            (None, Some(_)) => return Err(requires("--key-file", "--cert-file")),
        };
        let ca = self.ca.as_deref().map(|path| bytes("--ca-file", path)).transpose()?;
        let identity = files.as_ref().map(|(certificate, key)| PemIdentity { certificate, key });
        // The CA is checked separately, so that the error names the right file.
        if let (false, Some(path), Some(ca)) = (self.unverified, &self.ca, &ca) {
            ClientTls::new(Some(ca), None).map_err(|error| unusable("--ca-file", path, error))?;
        }
        let tls = match (self.unverified, ca, identity) {
            (true, _, identity) => ClientTls::without_server_verification(identity),
            (false, None, None) => return Ok(None),
            (false, ca, identity) => ClientTls::new(ca.as_deref(), identity),
        };
        tls.map(Some).map_err(|error| self.unusable(error))
    }

    /// Describes why the certificate, the key or the CAs of this host cannot be used.
    fn unusable(&self, error: TlsError) -> CliError {
        let file = match error {
            TlsError::NoCertificate | TlsError::Certificate(_) => {
                self.certificate.as_deref().map(|path| ("--cert-file", path))
            }
            TlsError::NoKey | TlsError::Key(_) => {
                self.key.as_deref().map(|path| ("--key-file", path))
            }
            _ => None,
        };
        match file {
            Some((flag, path)) => unusable(flag, path, error),
            None => CliError::usage("cannot verify the certificate of fleetd").because(error),
        }
    }
}

fn unusable(flag: &str, path: &Path, error: TlsError) -> CliError {
    CliError::usage(format!("{flag}: cannot use {}", path.display())).because(error)
}

fn bytes(flag: &str, path: &Path) -> Result<Vec<u8>, CliError> {
    let cannot = || CliError::usage(format!("{flag}: cannot read {}", path.display()));
    let help = || format!("{flag} requires the path of a readable PEM file");
    std::fs::read(path).map_err(|error| cannot().because(error).help(help()))
}

fn token(path: &Path) -> Result<Token, CliError> {
    let refused =
        |problem: &str| CliError::usage(format!("--token-file: {}: {problem}", path.display()));
    let bytes = secret::read(path, secret::OWNER_ONLY).map_err(|problem| {
        refused(&problem).help("give a file of mode 0600 that contains a token")
    })?;
    let first = secret::first_token(&String::from_utf8_lossy(&bytes));
    first.ok_or_else(|| {
        refused(
            "the file contains no token to present: write one of 16 characters or more; a \
             hash only serves the daemon",
        )
    })
}

fn requires(flag: &str, other: &str) -> CliError {
    CliError::usage(format!("{flag} requires {other}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::fleetctl::args::Cli;

    fn credentials(line: &str, variables: &[(&str, &str)]) -> CredentialFiles {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned())
        };
        CredentialFiles::new(&cli.global.credentials, &find)
    }

    #[test]
    fn command_line_overrides_the_environment() {
        let variables = [("FLEETCTL_CA_FILE", "/ca"), ("FLEETCTL_TOKEN_FILE", "/token")];
        let read = credentials("fleetctl list-units --ca-file /other", &variables);
        let expected = CredentialFiles {
            ca: Some("/other".into()),
            token: Some("/token".into()),
            ..CredentialFiles::default()
        };
        assert_eq!(read, expected);
        assert!(!read.unverified);
        assert!(credentials("fleetctl --insecure-skip-tls-verify list-units", &[]).unverified);
        let variables = [("FLEETCTL_INSECURE_SKIP_TLS_VERIFY", "1")];
        assert!(credentials("fleetctl list-units", &variables).unverified);
    }

    #[test]
    fn unusable_credentials_are_refused_with_the_flag() {
        let refused = |line: &str| {
            let mut text = Vec::new();
            let error = credentials(line, &[]).credentials(true).unwrap_err();
            error.print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        insta::assert_snapshot!(refused("fleetctl --cert-file /a list-units"), @"
        fleetctl: --cert-file requires --key-file
        ");
        for (flag, beginning) in [
            ("--ca-file", "fleetctl: --ca-file: cannot read /nowhere: No such file"),
            ("--token-file", "fleetctl: --token-file: /nowhere: No such file"),
        ] {
            let message = refused(&format!("fleetctl {flag} /nowhere list-units"));
            assert!(message.starts_with(beginning), "{message}");
        }
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let empty = empty.display();
        let message = refused(&format!("fleetctl --ca-file {empty} list-units"));
        let expected =
            format!("fleetctl: --ca-file: cannot use {empty}: no readable PEM certificate");
        assert!(message.starts_with(&expected), "{message}");
        let both = format!("--insecure-skip-tls-verify --cert-file {empty} --key-file {empty}");
        let message = refused(&format!("fleetctl {both} list-units"));
        let expected = format!("fleetctl: --key-file: cannot use {empty}: no readable PEM");
        assert!(message.starts_with(&expected), "{message}");
        // Without TLS, only the token is used.
        let unused = credentials("fleetctl --cert-file /a list-units", &[]).credentials(false);
        assert!(unused.is_ok());
    }
}
