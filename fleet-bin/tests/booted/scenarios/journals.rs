//! Journals that are read through another machine's daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use fleet_http::Client;
use fleet_http::client::JournalOptions;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::cluster::{Cluster, MACHINES, print_line};
use crate::observe::{DEADLINE, wait_for};

/// Number of lines to measure.
const LINES: usize = 30;

/// Writes a line every 0.7 s: its timestamp in nanoseconds.
const TALKER: &str = "[Service]\nExecStart=/bin/sh -c 'while :; do date +%%s%%N; sleep 0.7; done'\n\
     [X-Fleet]\nMachineMetadata=name=m2\n";

/// Script that makes a daemon listen with TLS and authenticate others by a token.
const OPEN: &str = "
cat /srv/share/tls.conf /srv/share/$(hostname).conf >/etc/fleet/fleet.conf
echo 'ListenStream=0.0.0.0:4285' >>/etc/systemd/system/fleet.socket.d/share.conf
systemctl stop fleet.socket fleet.service
systemctl daemon-reload
systemctl start fleet.socket fleet.service";

#[tokio::test]
#[ignore = "boots machines: run by scripts/test --full"]
async fn journal_of_another_machine_is_followed_live() {
    let cluster = Cluster::boot("30s");
    write_tls_config(&cluster);
    for machine in MACHINES {
        cluster.kit.exec(machine, OPEN);
    }
    cluster.wait_present(&MACHINES);
    cluster.start("talker.service", TALKER);
    wait_for("the first machine returns lines of the second", || {
        let printed = cluster.fleetctl(&["journal", "--raw", "-n", "1", "talker.service"]);
        (printed.status.success() && !printed.stdout.is_empty()).then_some(())
    });
    let mut late = follow(&cluster).await;
    late.sort_unstable();
    let (median, longest) = (late[late.len() / 2], late[late.len() - 1]);
    print_line(&format!(
        "figure: delay of a journal line through another machine: median {median:.1?}, \
         longest {longest:.1?} of {LINES} lines (target: at most 100 ms)"
    ));
}

/// Follows the journal. Returns the delay of each line.
async fn follow(cluster: &Cluster) -> Vec<Duration> {
    let socket = format!("unix://{}", cluster.kit.share("m1.sock").display());
    let client = Client::new(&socket.parse().expect("the endpoint is a URL"));
    let options = JournalOptions::default().with_lines(0).with_follow(true);
    let unit = "talker.service".parse().expect("the name is valid");
    let mut journal = client.journal(&unit, &options).await.expect("the journal can be opened");
    let mut late = Vec::new();
    for _ in 0..LINES {
        let line = tokio::time::timeout(DEADLINE, journal.next_line()).await;
        let line =
            line.expect("a line in time").expect("a readable journal").expect("a further line");
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is after 1970");
        late.push(
            now.saturating_sub(Duration::from_nanos(
                line.parse().expect("the line is a timestamp"),
            )),
        );
    }
    late
}

/// Writes a certificate for all machines, a token, and the configuration that names these files.
fn write_tls_config(cluster: &Cluster) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let (issuer, own) = (Issuer::new(params, key), KeyPair::generate().unwrap());
    let names = ["10.77.0.11", "10.77.0.12", "10.77.0.13"].map(str::to_owned).to_vec();
    let signed = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap().pem();
    let files = [
        ("peer_ca_file", authority),
        ("tls_cert_file", signed),
        ("tls_key_file", own.serialize_pem()),
        ("token_file", "the-token-of-all-daemons\n".to_owned()),
    ];
    let mut config = String::new();
    for (key, text) in files {
        let path = cluster.kit.share(key);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        config += &format!("{key} = \"/srv/share/{key}\"\n");
    }
    fs::write(cluster.kit.share("tls.conf"), config).unwrap();
}
