//! Effects of units on each other.

use super::{Case, case};

const MAIN: &str = "ExecStart=<hold main>";
const DEAF: &str = "ExecStart=<trap TERM|hold main>";
const NEEDS: &str = "[Unit]\nRequires={b}\nAfter={b}\n[Service]\nExecStart=<hold main>";
const BOUND: &str = "[Unit]\nBindsTo={b}\nAfter={b}\n[Service]\nExecStart=<hold main>";
const WANTS: &str = "[Unit]\nWants={b}\nAfter={b}\n[Service]\nExecStart=<hold main>";
const PART: &str = "[Unit]\nPartOf={b}\nAfter={b}\n[Service]\nExecStart=<hold main>";
const TASK: &str = "Type=oneshot\nExecStart=<hold main>";
const STAYS: &str = "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold main>";

pub(super) const CASES: &[Case] = &[
    case(
        "required unit is started first",
        NEEDS,
        "+ b/start b/main=0 b/exited running main=0 dead . b/- b/dead",
    )
    .with_units(&[("b.service", STAYS)]),
    case("required unit fails to start", NEEDS, "+ b/start b/main=1 b/failed .")
        .with_units(&[("b.service", TASK)]),
    case("required unit is stopped", NEEDS, "+ b/running b/main? running main? . b/- dead b/dead")
        .with_units(&[("b.service", MAIN)]),
    case(
        "required unit is restarted",
        NEEDS,
        "+ b/running b/main? running main? . b/~ dead b/stop-sigterm b/main=0 b/(dead) b/running \
         b/main? running main? . - dead . b/- b/stop-sigterm b/main=0 b/dead",
    )
    .with_units(&[("b.service", DEAF)]),
    case(
        "BindsTo= unit fails",
        BOUND,
        "+ b/running b/main? running main? . b/main=1 b/failed dead",
    )
    .with_units(&[("b.service", MAIN)]),
    case(
        "BindsTo= unit completes",
        BOUND,
        "+ b/running b/main? running main? . b/main=0 b/dead dead",
    )
    .with_units(&[("b.service", MAIN)]),
    case(
        "wanted unit fails",
        WANTS,
        "+ b/running b/main? running main? . b/main=1 b/failed main=0 dead",
    )
    .with_units(&[("b.service", MAIN)]),
    case("wanted unit fails to start", WANTS, "+ b/start b/main=1 b/failed running main=0 dead")
        .with_units(&[("b.service", TASK)]),
    case(
        "wanted unit is stopped",
        WANTS,
        "+ b/running b/main? running main? . b/- b/dead main=0 dead",
    )
    .with_units(&[("b.service", MAIN)]),
    case(
        "PartOf= unit is stopped",
        PART,
        "b/+ b/running b/main? b/. + running main? . b/- dead b/dead",
    )
    .with_units(&[("b.service", MAIN)]),
    case(
        "PartOf= unit is restarted",
        PART,
        "b/+ b/running b/main? b/. + running main? . b/~ dead b/stop-sigterm b/main=0 b/(dead) \
         b/running b/main? running main? - dead . b/- b/stop-sigterm b/main=0 b/dead",
    )
    .with_units(&[("b.service", DEAF)]),
    case("PartOf= unit is started", PART, "b/+ b/running b/main? b/. b/- b/dead")
        .with_units(&[("b.service", MAIN)]),
    case(
        "Before= orders two starts",
        MAIN,
        "t/+ b/start b/main=0 b/exited running main? t/active t/. - dead . b/- b/dead t/- t/dead",
    )
    .with_units(&[
        (
            "b.service",
            "[Unit]\nBefore={a}\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
             ExecStart=<hold main>",
        ),
        ("t.target", "[Unit]\nWants={a} {b}\nAfter={a} {b}\n"),
    ]),
    case(
        "After= orders two stops",
        "ExecStart=<hold main>\nExecStop=<hold s>",
        "b/+ running main? b/running b/main? b/. b/- - b/stop b/s=0 b/dead stop s=0 dead",
    )
    .with_units(&[(
        "b.service",
        "[Unit]\nWants={a}\nAfter={a}\n[Service]\nExecStart=<hold main>\nExecStop=<hold s>",
    )]),
    case("required by a target", MAIN, "t/+ running main? t/active t/. - dead t/dead")
        .with_units(&[("t.target", "[Unit]\nRequires={a}\nAfter={a}\n")]),
    case("required by a target, fails to start", TASK, "t/+ start main=1 failed t/.")
        .with_units(&[("t.target", "[Unit]\nRequires={a}\nAfter={a}\n")]),
    case(
        "part of a target, which is stopped",
        "[Unit]\nPartOf={t}\n[Service]\nExecStart=<hold main>",
        "t/+ running main? t/active t/. t/- dead t/dead",
    )
    .with_units(&[("t.target", "[Unit]\nWants={a}\nAfter={a}\n")]),
];
