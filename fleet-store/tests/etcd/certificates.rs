//! A test CA and its certificates.

use std::fs;
use std::path::{Path, PathBuf};

use fleet_store::{EtcdIdentity, EtcdTls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Directory with the certificates of the CA, the members and the clients.
pub(crate) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Creates all certificates in a directory.
    pub(crate) fn make(folder: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let made = Self { folder: folder.to_owned() };
        fs::write(made.path("ca.pem"), authority.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        for name in ["member", "client"] {
            made.sign(&issuer, name);
        }
        made
    }

    /// Returns the path of `ca.pem`, `member.pem`, `member.key`, `client.pem` or `client.key`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the TLS settings of a client.
    pub(crate) fn tls(&self) -> EtcdTls {
        let read = |name| fs::read(self.path(name)).unwrap();
        let identity = EtcdIdentity { certificate: read("client.pem"), key: read("client.key") };
        EtcdTls { ca: Some(read("ca.pem")), identity: Some(identity) }
    }

    fn sign(&self, issuer: &Issuer<'_, KeyPair>, name: &str) {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
