//! The small vocabularies of generated clusters.

use proptest::prelude::*;
use proptest::sample::select;

/// The possible units of a cluster, including a template.
pub(super) const UNITS: [&str; 13] = [
    "a1.service",
    "a2.service",
    "a3.service",
    "b1.service",
    "b2.service",
    "b3.service",
    "c1.service",
    "c2.socket",
    "d@.service",
    "d@1.service",
    "d@2.service",
    "d@3.service",
    "e@1.service",
];

/// The possible machines of a cluster.
pub(super) const MACHINES: [&str; 5] = ["m1", "m2", "m3", "m4", "m5"];

const PATTERNS: [&str; 10] = [
    "a1.service",
    "b2.service",
    "a*",
    "?2.s*",
    "d@*.service",
    "e@*",
    "*",
    "[ab]1.service",
    "c[!1]*",
    "unknown.service",
];

const PEER_PATTERNS: [&str; 6] = ["a*", "b[12].service", "d@*", "c?.*", "?1.service", "unknown*"];

const EXPRESSIONS: [&str; 7] = [
    "disk = x",
    "zone != x",
    "exists disk",
    "not exists zone",
    "disk in (x, y) and zone = y",
    "not (disk = y or zone = y)",
    "cores >= 2",
];

pub(super) fn pattern() -> impl Strategy<Value = &'static str> {
    select(&PATTERNS[..])
}

pub(super) fn peer_pattern() -> impl Strategy<Value = &'static str> {
    select(&PEER_PATTERNS[..])
}

pub(super) fn expression() -> impl Strategy<Value = &'static str> {
    select(&EXPRESSIONS[..])
}

/// Generates a key and a value of a machine's metadata.
pub(super) fn pair() -> impl Strategy<Value = (&'static str, &'static str)> {
    let pairs = vec![
        ("disk", "x"),
        ("disk", "y"),
        ("zone", "x"),
        ("zone", "y"),
        ("cores", "1"),
        ("cores", "2"),
    ];
    select(pairs)
}
