//! Properties of all texts: printed text reads back, nothing panics, positions lie inside the file,
//! and all errors are found.

use std::collections::BTreeSet;

use fleet_core::graph::Timeouts;
use fleet_core::graph::format::{InitDiagnostic, print, read_central, read_stanzas};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::broken::{BROKEN, ODD, whole};
use crate::init::config::cases;

/// Lines that a unit of each type may have.
const LINES: [&str; 66] = [
    "description: two  words",
    "depends-on: t1, t2",
    "depends-on: t3,\n  t4",
    "depends-ms: t1",
    "requisite: t8",
    "waits-for: t2,t5\nwaits-for: t6",
    "pulls: t1",
    "after: t7",
    "exec-start-pre: /a 'b c'",
    "exec-start-pre: -/a \"\\\"\" \\x41",
    "exec-start-post: /bin/sh -c 'kill $$1 $MAINPID'",
    "exec-stop-post: :/a $x ${y}",
    "exec-condition: /c\n  folded\n\twords",
    "start-timeout: 5min 3s",
    "stop-timeout: 1500ms",
    "reload-timeout: none",
    "runtime-max: 2h",
    "watchdog: 0.25s",
    "notify-access: exec",
    "stop-mode: process",
    "stop-signal: SIGQUIT",
    "stop-final-signal: USR2",
    "stop-hangup: yes",
    "restart: on-abnormal",
    "restart-delay: 90s",
    "restart-max-delay: 5min",
    "restart-limit: 5 in 10s",
    "restart-reset: 20s",
    "restart-force: 7, SIGHUP",
    "restart-prevent: 0,\n TERM, 255",
    "user: u\ngroup: g\ngroups: a, b",
    "directory: -/srv",
    "env: A=b c\nenv: B=\" x\"",
    "env-file: -/etc/default/a",
    "pass-env: P",
    "unset-env: Q=r",
    "umask: 077",
    "nice: -20",
    "oom-score-adjust: -1000",
    "limit-as: 4G",
    "limit-core: 0",
    "limit-cpu: 60:none",
    "limit-data: none",
    "limit-fsize: 1M:2M\nlimit-locks: 3",
    "limit-memlock: 64K\nlimit-msgqueue: 1:1",
    "limit-nice: 20",
    "ignore-sigpipe: yes",
    "limit-nofile: 5:10",
    "limit-nproc: 18446744073709551615",
    "limit-rss: 1:none\nlimit-rtprio: 5",
    "limit-rttime: 1000",
    "limit-sigpending: 7\nlimit-stack: 8M:none",
    "output: append:/var/log/x",
    "error-output: inherit",
    "memory-max: 77M",
    "memory-high: 1.5G",
    "tasks-max: 64",
    "cpu-weight: 10000",
    "io-weight: 1",
    "cpu-quota: 12.34%",
    "assert: user 0\ncondition: |!path-exists /a b",
    "condition: kernel-command-line quiet",
    "condition: virtualization !x\nassert: |kernel-version >=5 '<7'",
    "abort-signal: QUIT\nabort-timeout: none",
    "x-note: nothing",
    "# a comment",
];

const HEADS: [&str; 8] = [
    "type: foreground-notified\nexec-start: /a -b\nexec-reload: /a\nreload-signal: HUP\n\
     restart-steps: 3",
    "type: foreground-supervised\nexec-start: /a\nready-wait: 3s\nsuccess-exit: 0, 3\n\
     clean-exit: complete",
    "type: foreground-supervised\nexec-start: /a\nready-grep: ^ready (now|soon)$\n\
     restart-factor: 1000",
    "type: background-pidfile\nexec-start: /a\npidfile: /run/a",
    "type: background-scripted\nexec-start: /a start\nexec-stop: /a stop",
    "type: oneshot\nexec-start: /a\nexec-start: /b\nremain: no",
    "type: oneshot\nexec-start: /a",
    "type: virtual",
];

/// Builds a valid stanza from these lines, as far as its type allows them.
fn valid(head: &str, lines: &[&str], early: bool) -> String {
    let is_virtual = head == "type: virtual";
    let fits = |line: &&str| {
        let graph = ["description", "depends", "waits", "pulls", "after", "x-", "#"];
        // A readiness line needs output in the log.
        let fits_readiness = !head.contains("ready-grep") || !line.starts_with("output: append");
        fits_readiness && (!is_virtual || graph.iter().any(|start| line.starts_with(start)))
    };
    let lines: Vec<&str> = lines.iter().copied().filter(fits).collect();
    let (one, other) = (head, lines.join("\n"));
    let body = if early { format!("{one}\n{other}") } else { format!("{other}\n{one}") };
    format!("unit: NAME\nprovides: NAME\n{body}\n")
}

/// Generates a valid stanza named by its number.
fn stanza() -> impl Strategy<Value = String> {
    let lines = subsequence(LINES.to_vec(), 0..10).prop_shuffle();
    (select(HEADS.to_vec()), lines, any::<bool>())
        .prop_map(|(head, lines, early)| valid(head, &lines, early))
}

fn file(stanzas: &[String]) -> String {
    let numbered = stanzas.iter().enumerate();
    numbered.map(|(index, text)| text.replace("NAME", &format!("unit{index}"))).collect()
}

/// Generates a file, valid or not, with a random mutation.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let broken = select(&BROKEN[..]).prop_map(|(text, _)| whole(text));
    let text = proptest::collection::vec(prop_oneof![stanza(), broken], 1..4);
    let bytes = select(&b":#,\n\r\t \"'\\$\0\xff\xc3ua0-{}%"[..]);
    let changes = proptest::collection::vec((any::<Index>(), 0..3_u8, bytes), 0..12);
    (text, changes).prop_map(|(text, changes)| {
        let mut text = file(&text).into_bytes();
        for (at, how, byte) in changes {
            let at = at.index(text.len());
            match how {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ if text.len() > 1 => drop(text.remove(at)),
                _ => {}
            }
        }
        text
    })
}

/// Computes the position of an offset in a simple way.
fn place(source: &[u8], offset: usize) -> (usize, usize) {
    let from = if source.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let before = &source[from.min(offset)..offset];
    let line = before.split(|byte| *byte == b'\n');
    let last = line.clone().next_back().unwrap_or_default();
    let starts = last.iter().filter(|byte| !(0x80..0xc0).contains(*byte));
    (line.count(), starts.count() + 1)
}

/// Checks that positions lie inside the file, in order, and match their excerpts.
pub(super) fn check_places(
    source: &[u8],
    diagnostics: &[InitDiagnostic],
) -> Result<(), TestCaseError> {
    let mut last = 0;
    for it in diagnostics {
        prop_assert!(it.span.start <= it.span.end && it.span.end <= source.len(), "{it:?}");
        prop_assert!(last <= it.span.start, "out of order: {it:?}");
        last = it.span.start;
        let found = (it.location.line, it.location.column);
        prop_assert_eq!(found, place(source, it.span.start), "{:?}", it);
        prop_assert!(!it.message.is_empty() && !it.help.is_empty());
        let excerpt = it.excerpt(source);
        let lines: Vec<&str> = excerpt.lines().collect();
        prop_assert_eq!(lines.len(), 2, "{}", &excerpt);
        prop_assert!(lines[1].ends_with('^') && lines[1].chars().count() < 200, "{}", &excerpt);
    }
    Ok(())
}

/// Returns the keys in the tables of the init page. A unit test checks that the page has every key.
fn documented_keys() -> BTreeSet<&'static str> {
    let page = include_str!("../../../../docs/reference/init-files.md");
    let (_, rest) = page.split_once("\n### Keys of a stanza\n").expect("the tables begin");
    let (tables, _) = rest.split_once("\n### ").expect("the tables end");
    let cells = tables.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Every key must be generated above, or no property would cover it.
// Holds: G-26
#[test]
fn every_key_is_generated_and_printed() {
    let mut printed = BTreeSet::new();
    for (head, line) in HEADS.iter().flat_map(|head| LINES.map(|line| (head, line))) {
        let text = file(&[valid(head, &[line, "env: x=\nenv: y="], true)]);
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        let unit = read.stanzas[0].unit.as_ref();
        let unit = unit.unwrap_or_else(|| panic!("{text}\n{:#?}", read.diagnostics));
        let text = print(unit, &Timeouts::default()).text;
        let keys = text.lines().filter_map(|line| line.split_once(": "));
        printed.extend(keys.map(|(key, _)| key.to_owned()).filter(|key| key != "unit"));
    }
    let known: BTreeSet<String> = documented_keys().into_iter().map(str::to_owned).collect();
    let different: Vec<&String> = printed.symmetric_difference(&known).collect();
    assert!(different.is_empty(), "{different:?}");
}

proptest! {
    #![proptest_config(cases(10))]

    /// I26; printing is also stable.
    // Holds: G-26
    #[test]
    fn printed_stanzas_read_back_unchanged(
        stanzas in proptest::collection::vec(stanza(), 1..4),
        crlf in any::<bool>(),
    ) {
        let text = file(&stanzas);
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        prop_assert_eq!(read.stanzas.len(), stanzas.len());
        for stanza in read.stanzas {
            let Some(unit) = stanza.unit else {
                return Err(TestCaseError::fail(format!("{text}\n{:#?}", read.diagnostics)));
            };
            let printed = print(&unit, &Timeouts::default());
            prop_assert_eq!(&printed.omitted, &[]);
            let again = read_stanzas(printed.text.as_bytes(), &Timeouts::default());
            let back = again.stanzas[0].unit.clone().expect("the printed stanza is valid");
            prop_assert_eq!(&back, &unit, "{}", printed.text);
            prop_assert_eq!(print(&back, &Timeouts::default()), printed);
        }
    }

    /// I27 and I28.
    // Holds: G-28
    #[test]
    fn positions_lie_inside_the_file(source in mutated()) {
        let read = read_stanzas(&source, &Timeouts::default());
        check_places(&source, &read.diagnostics)?;
        check_places(&source, &read_central(&source).diagnostics)?;
        let errors = read.diagnostics.iter().any(|it| it.code.as_str().starts_with('E'));
        let broken = read.stanzas.iter().any(|stanza| stanza.unit.is_none());
        prop_assert!(errors || !broken, "a unit is left out without a word");
    }

    /// I27 and I28 for arbitrary bytes.
    // Holds: G-27
    #[test]
    fn reader_accepts_any_bytes(source in proptest::collection::vec(any::<u8>(), 0..60)) {
        check_places(&source, &read_stanzas(&source, &Timeouts::default()).diagnostics)?;
        check_places(&source, &read_central(&source).diagnostics)?;
    }

    /// I29.
    // Holds: G-29
    #[test]
    fn all_errors_of_a_file_are_reported(
        parts in proptest::collection::vec(
            prop_oneof![
                stanza().prop_map(|text| (text, None)),
                select(&BROKEN[..]).prop_map(|(text, code)| (whole(text), Some(code))),
                select(&ODD[..]).prop_map(|(text, code)| (whole(text), Some(code))),
            ],
            1..6,
        ),
    ) {
        let (texts, codes): (Vec<String>, Vec<Option<&str>>) = parts.into_iter().unzip();
        let text = file(&texts);
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        let found = read.diagnostics.iter().map(|it| it.code.as_str());
        // Generated stanzas name a target twice and have keys of their own.
        let found: Vec<&str> = found.filter(|code| !["W02", "W07"].contains(code)).collect();
        let codes = codes.into_iter().flatten().filter(|code| !["W02", "W07"].contains(code));
        prop_assert_eq!(found, codes.collect::<Vec<_>>(), "{}", text);
    }
}
