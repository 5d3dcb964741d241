//! A certificate authority for tests.

use fleet_http::tls::PemIdentity;
use fleet_http::{ClientTls, Credentials, ServerTls};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Signed {
    pub(crate) fn identity(&self) -> PemIdentity<'_> {
        PemIdentity { certificate: self.certificate.as_bytes(), key: self.key.as_bytes() }
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("ours")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate: Certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// Signs a long-lived certificate for this host.
    pub(crate) fn sign(&self) -> Signed {
        self.sign_until(4096, "127.0.0.1")
    }

    /// Signs a certificate for `host` that is valid until the beginning of `year`.
    pub(crate) fn sign_until(&self, year: i32, host: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Returns a server configuration with a certificate of this CA, optionally verifying clients.
    pub(crate) fn server(&self, verifies_clients: bool) -> ServerTls {
        let ca = verifies_clients.then_some(self.pem.as_bytes());
        ServerTls::new(self.sign().identity(), ca).unwrap()
    }

    /// Returns client credentials that trust this CA.
    pub(crate) fn client(&self, identity: Option<&Signed>, token: Option<&str>) -> Credentials {
        let identity = identity.map(Signed::identity);
        let tls = Some(ClientTls::new(Some(self.pem.as_bytes()), identity).unwrap());
        Credentials::default().with_tls(tls).with_token(token.map(|token| token.parse().unwrap()))
    }
}
