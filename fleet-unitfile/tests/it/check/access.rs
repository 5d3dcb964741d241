//! Values that grant or restrict access, compared with systemd.

use std::collections::BTreeSet;

use super::findings;
use super::verify::{lines, verify};

/// An option, with valid and invalid values.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Only architectures that no machine runs, and the word for none.
const ROWS: [Row; 6] = [
    (
        "IPAddressAllow",
        &[
            "any",
            "any localhost link-local multicast",
            "10.0.0.1",
            "10.0.0.1/8",
            "10.0.0.1/0",
            "10.0.0.1/+8",
            "10.0.0.1/-0",
            "10.0.0.1/0x8",
            "::/0",
            "::1/128",
            "::1/0b11",
            "::ffff:1.2.3.4/96",
            "1:2:3:4:5:6:7::",
            "1:2:3:4:5:6:1.2.3.4",
            "::01",
        ],
        &[
            "Any",
            "none",
            "any,localhost",
            "any/8",
            "any foo localhost",
            "\"any\"",
            "'10.0.0.1'",
            "%H",
            "10",
            "10.0.0",
            "10.0.0.256",
            "010.0.0.1",
            "10.0.0.1/",
            "10.0.0.1/33",
            "10.0.0.1/-1",
            "10.0.0.1/08",
            "10.0.0.1/24/3",
            "10.0.0.1/255.0.0.0",
            "10.0.0.1:80",
            "::1/129",
            "[::1]",
            "fe80::1%%eth0",
            "1::2::3",
            "::00001",
            "1:2:3:4:5:6:7:8:9",
        ],
    ),
    (
        "DeviceAllow",
        &[
            "/dev/null",
            "/dev/null rw",
            "/dev/null\tmmr",
            "//dev/./null r",
            "/dev",
            "/dev/x..y r",
            "/dev/%i rw",
            "/dev%i/x r",
            "char-",
            "char-* rw",
            "block-%i r",
            "/run/systemd/inaccessible/x r",
            "\"/dev/a b\" rw",
        ],
        &[
            "/dev/null x",
            "/dev/null r w",
            "/dev/null RW",
            "/dev/null %i",
            "/dev/%z rw",
            "foo",
            "dev/null r",
            "/",
            "/devx",
            "/run/systemd/x",
            "/dev/../x r",
            "/etc/../dev/null r",
            "~x r",
        ],
    ),
    (
        "CPUWeight",
        &["1", "10000", "idle", "+5", "0x10", "0b11"],
        &["0", "00", "10001", "-1", "1.5", "5%", "Idle", "infinity", "18446744073709551615"],
    ),
    ("IOWeight", &["1", "10000", "+5"], &["0", "10001", "idle", "-1", "18446744073709551615"]),
    ("StartupIOWeight", &["1", "10000"], &["0", "10001", "x"]),
    ("Personality", &[""], &["amd64", "X86", "x86 x86-64", "native", "%a", "8"]),
];

#[test]
#[expect(clippy::disallowed_methods, reason = "the test hands files to another program")]
fn systemd_accepts_and_ignores_the_same_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    let mut all = BTreeSet::new();
    for (option, taken, ignored) in ROWS {
        let mut source = "[Service]\nExecStart=/bin/true\n".to_owned();
        // An empty value in between, since an option with one value must not be set again.
        for value in taken.iter().chain(ignored) {
            source.push_str(&format!("{option}={value}\n{option}=\n"));
        }
        let name = format!("{option}.service");
        std::fs::write(folder.path().join(&name), &source).unwrap();
        let (_, findings) = findings(&name, source.as_bytes());
        let ours: BTreeSet<usize> = findings.iter().map(|it| it.location().line).collect();
        let expected = (0..ignored.len()).map(|at| 3 + 2 * (taken.len() + at)).collect();
        assert_eq!(ours, expected, "{option}: {findings:?}");
        all.extend(ours.into_iter().map(|line| (name.clone(), line)));
        names.push(name);
    }
    let Some(report) = verify(folder.path(), &names) else { return };
    assert_eq!(all, lines(&report), "{report}");
}
