//! Compares the check of every directive with systemd's own library.
//!
//! Each directive gets every value that occurs in a unit file of this machine, in the corpora, in
//! the tests, or in a list of odd values. Both must agree about each line: whether systemd ignores
//! it, refuses the unit, or accepts it. [`DIFFERENCES`] lists the lines about which they differ on
//! purpose.
//!
//! `scripts/test --full` runs this on machines that have python3 and the library of systemd 252.

mod values;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fleet_unitfile::check::{FindingCode, SystemdVersion, directives};
use fleet_unitfile::{Severity, UnitFile, UnitName};

/// The version of the library.
const VERSION: SystemdVersion = SystemdVersion::new(252);

/// The most values in one file; more findings than [`check_for`] keeps would be lost.
const CHUNK: usize = 100;

/// What systemd, or the check, makes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Accepted,
    Ignored,
    Refused,
}

use Verdict::{Accepted, Ignored, Refused};

/// A difference on purpose: options, values, the verdict of the check, that of systemd, and why.
struct Difference {
    options: &'static [&'static str],
    matches: fn(&str) -> bool,
    ours: Verdict,
    theirs: Verdict,
    why: &'static str,
}

fn any(_: &str) -> bool {
    true
}

const CPU_SETS: &[&str] = &[
    "AllowedCPUs",
    "AllowedMemoryNodes",
    "CPUAffinity",
    "NUMAMask",
    "StartupAllowedCPUs",
    "StartupAllowedMemoryNodes",
];

const COMMANDS: &[&str] = &[
    "ExecCondition",
    "ExecReload",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
    "ExecStopPre",
];

const DIFFERENCES: &[Difference] = &[
    Difference {
        options: &["AmbientCapabilities", "CapabilityBoundingSet", "SecureBits"],
        matches: any,
        ours: Ignored,
        theirs: Accepted,
        why: "systemd silently skips words that it does not know",
    },
    Difference {
        options: CPU_SETS,
        matches: |value| value.contains("4294967295"),
        ours: Ignored,
        theirs: Accepted,
        why: "the number overflows in systemd, which then adds no processor",
    },
    Difference {
        options: &["CoredumpFilter"],
        matches: |value| value == "-0",
        ours: Ignored,
        theirs: Accepted,
        why: "a sign before a mask is surely a mistake",
    },
    Difference {
        options: &["ConfigurationDirectory"],
        matches: |value| value.contains("::") || value.starts_with('['),
        ours: Accepted,
        theirs: Ignored,
        why: "empty parts between colons are not looked at",
    },
    Difference {
        options: &[
            "BindPaths",
            "BindReadOnlyPaths",
            "ExtensionImages",
            "MountImages",
            "RootImageOptions",
            "TemporaryFileSystem",
        ],
        matches: |value| value.contains(['"', '\'', '\\']),
        ours: Accepted,
        theirs: Ignored,
        why: "quotes and escapes may hide colons, so only the start of the value is checked",
    },
    Difference {
        options: &["NUMAMask"],
        matches: |value| value.contains('%'),
        ours: Accepted,
        theirs: Ignored,
        why: "other options with processors expand specifiers, which may be empty",
    },
    Difference {
        options: &["PassEnvironment"],
        matches: |value| value.contains('\\'),
        ours: Accepted,
        theirs: Ignored,
        why: "names with backslashes are not checked",
    },
    Difference {
        options: &["RestrictNetworkInterfaces"],
        matches: |value| value.contains('\\'),
        ours: Accepted,
        theirs: Ignored,
        why: "names with backslashes are not checked",
    },
    Difference {
        options: &["DisableControllers"],
        matches: |value| value.contains(' '),
        ours: Ignored,
        theirs: Accepted,
        why: "systemd silently skips unknown words beside known ones",
    },
    Difference {
        options: &["Service"],
        matches: |value| value.contains("@%i"),
        ours: Accepted,
        theirs: Ignored,
        why: "in a list of units, systemd would fill in the empty instance",
    },
    Difference {
        options: &["Unit"],
        matches: |value| value == "%n",
        ours: Accepted,
        theirs: Ignored,
        why: "that a unit triggers itself is no matter of one value",
    },
    Difference {
        options: COMMANDS,
        matches: |value| value.contains('|'),
        ours: Ignored,
        theirs: Accepted,
        why: "the prefix of newer versions is a letter of the program's name for systemd 252",
    },
    Difference {
        options: &["Personality", "SystemCallArchitectures", "OnCalendar"],
        matches: any,
        ours: Accepted,
        theirs: Ignored,
        why: "the machine determines architectures and time zones",
    },
    Difference {
        options: &["SystemCallFilter", "SystemCallLog"],
        matches: any,
        ours: Accepted,
        theirs: Ignored,
        why: "the machine determines the system calls",
    },
    Difference {
        options: &["RestrictFileSystems", "TCPCongestion", "OpenFile"],
        matches: any,
        ours: Accepted,
        theirs: Ignored,
        why: "not checked: the machine determines the valid words",
    },
    Difference {
        options: &["ListenSequentialPacket"],
        matches: |value| value.starts_with("vsock:"),
        ours: Accepted,
        theirs: Ignored,
        why: "newer versions accept it, and the older address has no other name for it",
    },
    Difference {
        options: &["JobTimeoutRebootArgument", "RebootArgument"],
        matches: |value| !value.is_ascii(),
        ours: Accepted,
        theirs: Ignored,
        why: "text beyond ASCII is rare there",
    },
];

/// The process that asks the library.
struct Judge {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    count: usize,
}

impl Judge {
    #[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/full/judge.py");
        let mut process = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, questions, answers, count: 0 }
    }

    /// Returns whether systemd refuses the file, and the lines with a complaint.
    fn ask(&mut self, unit_type: &str, source: &str) -> (bool, Vec<usize>) {
        // A name that was used may still be known as that of a dependency.
        self.count += 1;
        let name = format!("full{}.{unit_type}", self.count);
        let hex = source.bytes().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(self.questions, "{name}\t{hex}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut numbers = answer.split_whitespace().map(|it| it.parse::<i64>().unwrap());
        let is_refused = numbers.next().expect("the library answers") < 0;
        (is_refused, numbers.map(|line| usize::try_from(line).unwrap()).collect())
    }

    /// Returns systemd's verdict about each value of a directive.
    fn verdicts(&mut self, directive: (&str, &str, &str), values: &[&str]) -> Vec<Verdict> {
        let (unit_type, section, option) = directive;
        let mut verdicts = Vec::new();
        while verdicts.len() < values.len() {
            let left = &values[verdicts.len()..];
            // These options take one unit in all, so each value needs a file of its own.
            let left = if option == "Unit" { &left[..1] } else { left };
            let lines = left.iter().map(|value| format!("{option}={value}\n"));
            let source = format!("[{section}]\n{}", lines.collect::<String>());
            let (is_refused, lines) = self.ask(unit_type, &source);
            let last = if is_refused { lines.last().copied().unwrap_or(2) } else { left.len() + 1 };
            for line in 2..=last {
                verdicts.push(match lines.contains(&line) {
                    _ if is_refused && line == last => Refused,
                    true => Ignored,
                    false => Accepted,
                });
            }
        }
        verdicts
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Returns the verdict of the check about one value; `None` if it only warns of text that systemd
/// accepts, or ignores for another reason.
fn ours(directive: (&str, &str, &str), value: &str) -> Option<Verdict> {
    let (unit_type, section, option) = directive;
    let name = UnitName::parse(&format!("full0.{unit_type}")).unwrap();
    let (file, _) = UnitFile::parse_collecting(format!("[{section}]\n{option}={value}\n"));
    let findings = file.check_for(&name, VERSION);
    let of_line = findings.iter().filter(|finding| finding.location().line == 2);
    let of_value = of_line.filter(|finding| finding.code() < FindingCode::NoCommand);
    let mut verdict = Some(Accepted);
    for finding in of_value {
        match (finding.severity(), finding.code()) {
            (Severity::Hint, _) => {}
            (Severity::Error, _) => return Some(Refused),
            (_, FindingCode::OutdatedKey | FindingCode::Template | FindingCode::Escape) => {
                verdict = verdict.filter(|it| *it == Ignored);
            }
            _ => verdict = Some(Ignored),
        }
    }
    verdict
}

#[test]
#[ignore = "needs the library of systemd 252: run by scripts/test --full"]
fn every_directive_agrees_with_the_library() {
    const TYPES: [(&str, &str); 9] = [
        ("Service", "service"),
        ("Unit", "service"),
        ("Socket", "socket"),
        ("Timer", "timer"),
        ("Path", "path"),
        ("Mount", "mount"),
        ("Automount", "automount"),
        ("Swap", "swap"),
        ("Slice", "slice"),
    ];
    let values = values::all();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    assert!(values.len() > 400, "{} values", values.len());
    let mut judge = Judge::start();
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut used = vec![0; DIFFERENCES.len()];
    let (mut count, mut seen) = (0, Vec::new());
    for (section, unit_type) in TYPES {
        for directive in directives().filter(|it| it.section == section && !it.is_newer) {
            // Directives that several sections share have the same rules in each.
            if seen.contains(&directive.name) && directive.name != "Priority" {
                continue;
            }
            seen.push(directive.name);
            let place = (unit_type, section, directive.name);
            for chunk in values.chunks(CHUNK) {
                let theirs = judge.verdicts(place, chunk);
                for (value, theirs) in chunk.iter().zip(theirs) {
                    count += 1;
                    let Some(ours) = ours(place, value) else { continue };
                    let is_known = |it: &Difference| {
                        let is_option = it.options.contains(&directive.name);
                        is_option && (it.matches)(value) && (it.ours, it.theirs) == (ours, theirs)
                    };
                    if ours == theirs {
                        continue;
                    }
                    match DIFFERENCES.iter().position(is_known) {
                        Some(at) => used[at] += 1,
                        None => wrong
                            .entry(directive.name)
                            .or_default()
                            .push(format!("{value:?}: {ours:?} here, {theirs:?} by systemd")),
                    }
                }
            }
        }
    }
    assert!(count > 100_000, "{count} values compared");
    let unused = DIFFERENCES.iter().zip(used).filter(|(_, count)| *count == 0);
    let unused: Vec<_> = unused.map(|(it, _)| (it.options, it.why)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unused.is_empty(), "no such difference any more: {unused:#?}");
}
