//! A port that is kept: by TLS, with a token, by the real programs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustix::process::Signal;

use crate::daemon::{told, wait_for};
use crate::run::Machine;

/// Writes `ca.pem`, and `node.pem` and `node.key` for this host, which it signed.
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

fn keep_port(machine: &Machine) -> String {
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

fn ask(machine: &Machine, endpoint: &str, token: &str) -> Output {
    let token_file = machine.path("shown");
    write_secret(&token_file, token);
    let mut fleetctl = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    fleetctl.args(["--endpoint", endpoint, "list-machines", "--no-legend"]);
    fleetctl.arg("--ca-file").arg(machine.path("ca.pem")).arg("--token-file").arg(token_file);
    fleetctl.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_port_lets_in_who_shows_a_token_that_counts_now() {
    let mut machine = Machine::new();
    make_certificates(&machine);
    let (first, second) = ("the-first-of-the-tokens", "the-second-of-the-tokens");
    write_secret(&machine.path("tokens"), first);
    let endpoint = keep_port(&machine);
    machine.start();
    let let_in = ask(&machine, &endpoint, first);
    assert!(let_in.status.success(), "{}", told(&let_in));
    let refused = ask(&machine, &endpoint, second);
    assert_eq!(refused.status.code(), Some(1), "{}", told(&refused));
    assert!(told(&refused).contains("--token-file"), "{}", told(&refused));
    let mut strange = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    let strange = strange.args(["--endpoint", &endpoint, "list-machines"]).output().unwrap();
    assert!(told(&strange).contains("--ca-file"), "{}", told(&strange));
    write_secret(&machine.path("tokens"), second);
    machine.signal(Signal::HUP);
    wait_for("the new token counts", || {
        ask(&machine, &endpoint, second).status.success().then_some(())
    });
    assert_eq!(ask(&machine, &endpoint, first).status.code(), Some(1));
    machine.end();
}

#[test]
fn a_door_that_would_stand_open_is_refused_before_anything_starts() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("fleet.conf");
    let at = home.path().display();
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut said = Vec::new();
        for flag in ["check-config", "--config"] {
            let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
            let output = fleetd.arg(flag).arg(&path).stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}", told(&output));
            said.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        assert_eq!(said[0], said[1]);
        said.remove(0)
    };
    let said = refused("listen = [\"tcp://0.0.0.0:0\"]\n");
    assert!(said.contains("fleet.conf:1:1:") && said.contains("tls_cert_file"), "{said}");
    std::fs::write(home.path().join("tokens"), "the-token-of-the-tests").unwrap();
    let tokens = home.path().join("tokens");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
    let named = format!("\ntoken_file = \"{at}/tokens\"\n");
    let said = refused(&named);
    let place = "fleet.conf:2:1: token_file: ";
    assert!(said.contains(place) && said.contains("chmod 0600"), "{said}");
    write_secret(&tokens, "# of nobody\nshort\n");
    let said = refused(&named);
    assert!(
        said.contains(place) && said.contains("line 2 is not a valid token: a token has 16"),
        "{said}"
    );
}
