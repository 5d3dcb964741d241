//! A TCP port that requires TLS and a bearer token, with the real programs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustix::process::Signal;

use crate::daemon::{output_text, wait_for};
use crate::run::Machine;

/// Writes `ca.pem`, and `node.pem` and `node.key` for this host, signed by that CA.
fn make_certificates(machine: &Machine) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    std::fs::write(machine.path("ca.pem"), authority.pem()).unwrap();
    let (issuer, own) = (Issuer::new(params, key), KeyPair::generate().unwrap());
    let names = vec!["127.0.0.1".to_owned()];
    let signed = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
    std::fs::write(machine.path("node.pem"), signed.pem()).unwrap();
    write_secret(&machine.path("node.key"), &own.serialize_pem());
}

fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Adds a TCP port with TLS and tokens to the configuration, and returns its endpoint.
fn add_protected_port(machine: &Machine) -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = machine.path("");
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let (listen, rest) = config.split_once("]\n").unwrap();
    let text = format!(
        "{listen}, \"https://{free}\"]\n\
         tls_cert_file = \"{at}node.pem\"\ntls_key_file = \"{at}node.key\"\n\
         token_file = \"{at}tokens\"\n{rest}",
        at = at.display()
    );
    std::fs::write(machine.path("fleet.conf"), text).unwrap();
    format!("https://{free}")
}

fn list_machines(machine: &Machine, endpoint: &str, token: &str) -> Output {
    let token_file = machine.path("client-token");
    write_secret(&token_file, token);
    let mut fleetctl = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    fleetctl.args(["--endpoint", endpoint, "list-machines", "--no-legend"]);
    fleetctl.arg("--ca-file").arg(machine.path("ca.pem")).arg("--token-file").arg(token_file);
    fleetctl.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn port_accepts_only_current_tokens() {
    let mut machine = Machine::new();
    make_certificates(&machine);
    let (first, second) = ("the-first-of-the-tokens", "the-second-of-the-tokens");
    write_secret(&machine.path("tokens"), first);
    let endpoint = add_protected_port(&machine);
    machine.start();
    let accepted = list_machines(&machine, &endpoint, first);
    assert!(accepted.status.success(), "{}", output_text(&accepted));
    let refused = list_machines(&machine, &endpoint, second);
    assert_eq!(refused.status.code(), Some(1), "{}", output_text(&refused));
    assert!(output_text(&refused).contains("--token-file"), "{}", output_text(&refused));
    let mut untrusting = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    let untrusting = untrusting.args(["--endpoint", &endpoint, "list-machines"]).output().unwrap();
    assert!(output_text(&untrusting).contains("--ca-file"), "{}", output_text(&untrusting));
    write_secret(&machine.path("tokens"), second);
    machine.signal(Signal::HUP);
    wait_for("the new token is accepted", || {
        list_machines(&machine, &endpoint, second).status.success().then_some(())
    });
    assert_eq!(list_machines(&machine, &endpoint, first).status.code(), Some(1));
    machine.end();
}

#[test]
fn unprotected_port_is_refused_at_startup() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("fleet.conf");
    let at = home.path().display();
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut errors = Vec::new();
        for flag in ["check-config", "--config"] {
            let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
            let output = fleetd.arg(flag).arg(&path).stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
            errors.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        assert_eq!(errors[0], errors[1]);
        errors.remove(0)
    };
    let error = refused("listen = [\"tcp://0.0.0.0:0\"]\n");
    assert!(error.contains("fleet.conf:1:1:") && error.contains("tls_cert_file"), "{error}");
    if rustix::process::geteuid().is_root() {
        let error = refused("listen = [\"tcp://127.0.0.1:0\"]\n");
        assert!(error.contains("fleet.conf:1:1: tcp://127.0.0.1:0 lets every user"), "{error}");
    }
    std::fs::write(home.path().join("tokens"), "the-token-of-the-tests").unwrap();
    let tokens = home.path().join("tokens");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
    let config = format!("\ntoken_file = \"{at}/tokens\"\n");
    let error = refused(&config);
    let position = "fleet.conf:2:1: token_file: ";
    assert!(error.contains(position) && error.contains("chmod 0600"), "{error}");
    write_secret(&tokens, "# unused\nshort\n");
    let error = refused(&config);
    assert!(
        error.contains(position) && error.contains("line 2 is not a valid token: a token has 16"),
        "{error}"
    );
}

#[test]
fn check_config_warns_of_a_certificate_without_the_public_name() {
    let machine = Machine::new();
    make_certificates(&machine);
    write_secret(&machine.path("tokens"), "the-token-of-the-tests");
    add_protected_port(&machine);
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    for (url, is_covered) in [
        ("https://127.0.0.1:4285", true),
        ("https://node7.example.com:4285", false),
        ("https://10.0.0.7:4285", false),
    ] {
        let text = format!("public_url = \"{url}\"\n{config}");
        std::fs::write(machine.path("fleet.conf"), text).unwrap();
        let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
        let output = fleetd.arg("check-config").arg(machine.path("fleet.conf")).output().unwrap();
        let text = output_text(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.contains("node.pem is not valid for"), !is_covered, "{url}: {text}");
    }
}
