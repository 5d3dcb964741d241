//! Stanzas with one mistake each, and the expected codes.

/// Lines that [`whole`] completes to a stanza, with the expected code.
pub(super) const BROKEN: [(&str, &str); 52] = [
    ("VIRTUALdepends-on a\n", "E01"),
    ("VIRTUALDescription: a\n", "E02"),
    ("unit: NAME\ntype: virtual\nprovide: NAME\n", "E02"),
    ("VIRTUALcolour: red\n", "E02"),
    ("VIRTUALtype: virtual\n", "E04"),
    (
        "unit: NAME\ntype: foreground-notified\nprovides: NAME\nexec-start: /a\nexec-start: /b\n",
        "E04",
    ),
    ("unit: NAME\ntype: virtual\nprovides:\n", "E05"),
    ("unit: NAME\ntype: virtual\nprovides: NAME,\n", "E05"),
    ("VIRTUALwaits-for: a,,b\n", "E05"),
    ("unit:\ntype: virtual\nprovides: NAME\n", "E05"),
    ("unit: a b\ntype: virtual\nprovides: NAME\n", "E06"),
    ("VIRTUALwaits-for: a b\n", "E06"),
    ("VIRTUALwaits-for: gr\u{fc}n\n", "E06"),
    ("unit: NAME\ntype: forground-supervised\nprovides: NAME\nexec-start: /a\n", "E07"),
    ("ONESHOTstart-timeout: soon\n", "E08"),
    ("ONESHOTstart-timeout: -5s\n", "E08"),
    ("ONESHOTstart-timeout: 0\n", "E08"),
    ("ONESHOTrestart-delay: 99999999999999h\n", "E08"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a \"b\n", "E09"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a b\\\n", "E09"),
    ("ONESHOTenv: A='b\n", "E09"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: a\n", "E10"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: ./a b\n", "E10"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a $HOME\n", "E11"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a 5$\n", "E11"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a$MAINPID\n", "E11"),
    ("unit: NAME\ntype: virtual\nprovides: NAME, NAME\n", "E14"),
    ("VIRTUALuser: root\n", "E18"),
    ("ONESHOTpidfile: /b\n", "E18"),
    ("unit: NAME\ntype: virtual\n", "E19"),
    ("unit: NAME\nprovides: NAME\n", "E19"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\n", "E19"),
    ("unit: NAME\ntype: background-pidfile\nprovides: NAME\nexec-start: /a\n", "E19"),
    ("unit: NAME\ntype: background-scripted\nprovides: NAME\nexec-start: /a\n", "E19"),
    (
        "unit: NAME\ntype: foreground-supervised\nprovides: NAME\nexec-start: /a\n\
         ready-wait: 5\nready-grep: b\n",
        "E20",
    ),
    (
        "unit: NAME\ntype: foreground-supervised\nprovides: NAME\nexec-start: /a\n\
         ready-grep: a(?=b)\n",
        "E21",
    ),
    ("ONESHOTsuccess-exit: 256\n", "E22"),
    ("ONESHOTsuccess-exit: 1, SIGTREM\n", "E22"),
    ("VIRTUALexec-start: /a\n", "E23"),
    ("ONESHOTrestart: always\n", "E24"),
    ("VIRTUALdescription: a\n b\n", "E25"),
    ("VIRTUAL\n waits-for: a\n", "E25"),
    ("VIRTUALdescription: a\0b\n", "E26"),
    ("VIRTUALdescription: a\rb\n", "E26"),
    ("ONESHOTnice: 20\n", "E29"),
    ("ONESHOTgroups: wheel docker\n", "E29"),
    ("ONESHOTgroups: wheel,\n  audio\tdocker\n", "E29"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a ; /b\n", "E29"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a && /b > /c\n", "E30"),
    ("unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a; /b\n", "E30"),
    ("ONESHOTexec-stop: /a 2>&1\n", "E30"),
    (
        "unit: NAME\ntype: foreground-supervised\nprovides: NAME\nexec-start: /a\n\
         ready-grep: b\noutput: null\n",
        "E31",
    ),
];

/// The same for warnings.
pub(super) const ODD: [(&str, &str); 6] = [
    ("name: NAME\ntype: virtual\nprovides: NAME\n", "W01"),
    ("VIRTUALwaits-for: a\ndepends-on: a\n", "W02"),
    ("VIRTUALwaits-for: a, b, a\n", "W02"),
    ("ONESHOTstop-timeout: none\n", "W06"),
    ("VIRTUALx-colour: red\n", "W07"),
    ("ONESHOTremain: no\nclean-exit: remain\n", "W10"),
];

/// Completes a stanza; `NAME` stands for its name and target.
pub(super) fn whole(text: &str) -> String {
    text.replace("VIRTUAL", "unit: NAME\ntype: virtual\nprovides: NAME\n")
        .replace("ONESHOT", "unit: NAME\ntype: oneshot\nprovides: NAME\nexec-start: /a\n")
}
