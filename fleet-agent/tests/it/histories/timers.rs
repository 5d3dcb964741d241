//! Timers, and the units that they start.

use super::{Case, case};

const MAIN: &str = "ExecStart=<hold main>";
const TASK: &str = "Type=oneshot\nExecStart=<hold main>";

/// Elapses once after its start.
const ONCE: &str = "t/+ t/(waiting) running t/running main=0 dead t/elapsed t/- t/dead";

/// Elapses after its start, and again after each end of its unit.
const AGAIN: &str = "t/+ t/(waiting) start t/running main=0 dead t/waiting start t/running main? \
                     t/- t/dead main=0 dead";

/// Elapses at its time, and is stopped before the next one.
const BY_CALENDAR: &str = "t/+ t/(waiting) start t/running main? t/- t/dead main=0 dead";

pub(super) const CASES: &[Case] = &[
    case("timer, OnActiveSec=", MAIN, ONCE)
        .with_units(&[("t.timer", "[Timer]\nOnActiveSec=0\nAccuracySec=1us\nUnit={a}\n")]),
    case("timer, OnBootSec= in the past", MAIN, ONCE)
        .with_units(&[("t.timer", "[Timer]\nOnBootSec=1ms\nAccuracySec=1us\nUnit={a}\n")]),
    case("timer, OnStartupSec= in the past", MAIN, ONCE)
        .with_units(&[("t.timer", "[Timer]\nOnStartupSec=1ms\nAccuracySec=1us\nUnit={a}\n")]),
    case("timer, RandomizedDelaySec=", MAIN, ONCE).with_units(&[(
        "t.timer",
        "[Timer]\nOnActiveSec=0\nRandomizedDelaySec=50ms\nFixedRandomDelay=yes\n\
         AccuracySec=1us\nUnit={a}\n",
    )]),
    case("timer, OnUnitInactiveSec=", TASK, AGAIN).with_units(&[(
        "t.timer",
        "[Timer]\nOnActiveSec=0\nOnUnitInactiveSec=2s\nAccuracySec=1us\nUnit={a}\n",
    )]),
    case("timer, OnUnitActiveSec=", TASK, AGAIN).with_units(&[(
        "t.timer",
        "[Timer]\nOnActiveSec=0\nOnUnitActiveSec=4s\nAccuracySec=1us\nUnit={a}\n",
    )]),
    case("timer, OnCalendar=", TASK, BY_CALENDAR)
        .with_units(&[("t.timer", "[Timer]\nOnCalendar=*:*:*\nAccuracySec=1us\nUnit={a}\n")]),
    case("timer, OnCalendar= and Persistent=", TASK, BY_CALENDAR).with_units(&[(
        "t.timer",
        "[Timer]\nOnCalendar=*:*:*\nPersistent=yes\nAccuracySec=1us\nUnit={a}\n",
    )]),
    case("timer, OnActiveSec= reset by an empty value", MAIN, "t/+ t/elapsed t/. t/- t/dead")
        .with_units(&[(
            "t.timer",
            "[Timer]\nOnActiveSec=0\nOnActiveSec=\nOnCalendar=2000-01-01\nUnit={a}\n",
        )]),
    case(
        "timer, RemainAfterElapse=no",
        MAIN,
        "t/+ t/(waiting) running t/running main=0 dead t/dead",
    )
    .with_units(&[(
        "t.timer",
        "[Timer]\nOnActiveSec=0\nRemainAfterElapse=no\nAccuracySec=1us\nUnit={a}\n",
    )]),
    case(
        "timer, stopped while its service runs",
        MAIN,
        "t/+ t/(waiting) running t/running main? t/- t/dead main=0 dead",
    )
    .with_units(&[("t.timer", "[Timer]\nOnActiveSec=0\nAccuracySec=1us\nUnit={a}\n")]),
    case(
        "timer, service started by a request",
        MAIN,
        "t/+ t/waiting + running main=0 dead t/- t/dead",
    )
    .with_units(&[("t.timer", "[Timer]\nOnActiveSec=1h\nUnit={a}\n")]),
];
