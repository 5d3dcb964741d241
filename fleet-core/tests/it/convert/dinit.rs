//! Conversion of service descriptions of dinit.

use fleet_core::graph::convert::InitSystem;

use super::output;

/// A service of each type.
const SERVICES: [(&str, &str); 5] = [
    (
        "/etc/dinit.d/web",
        "# The site\ntype = process\ncommand = /usr/bin/web --name \"a b\" # served\n\
             command += --fast\ndescription = A web server\ndepends-on = net\ndepends-ms: db\n\
             waits-for = cache\nbefore = proxy\nrestart = on-failure\nrestart-delay = 0.5\n\
             restart-limit-count = 5\nrestart-limit-interval = 30\nstop-timeout = 0\n\
             run-as = www:web\nworking-dir = /srv\nenv-file = /etc/web.env\n\
             logfile = /var/log/web.log\nterm-signal = INT\nnice = 5\nrlimit-nofile = 1024:-\n\
             options = signal-process-only starts-rwfs\n",
    ),
    (
        "/etc/dinit.d/db",
        "type = bgprocess\ncommand = /bin/db $$HOME \\\n  --daemon\npid-file = /run/db.pid\n\
             restart = true\n",
    ),
    ("/etc/dinit.d/net", "type = scripted\ncommand = /bin/up\nstop-command = /bin/down\n"),
    ("/etc/dinit.d/cache", "type = scripted\ncommand = /bin/fill\nrestart = true\n"),
    ("/etc/dinit.d/proxy", "type = internal\nafter = cache\n@meta enable-via boot\n"),
];

#[test]
fn services_of_each_type_become_stanzas() {
    // The defaults of dinit.
    let output = output(InitSystem::Dinit, &SERVICES)
        .replace("start-timeout: 1min\nstop-timeout: 10s\n", "");
    insta::assert_snapshot!(output, @r#"
    # from /etc/dinit.d/cache
    unit: cache
    type: oneshot
    provides: cache
    exec-start: /bin/fill
    restart: never

    # from /etc/dinit.d/db
    unit: db
    type: background-pidfile
    provides: db
    pidfile: /run/db.pid
    exec-start: :/bin/db $HOME --daemon
    clean-exit: complete
    restart: always
    restart-delay: 200ms
    restart-max-delay: 200ms
    restart-factor: 1
    restart-limit: 4 in 10s

    # from /etc/dinit.d/net
    unit: net
    type: background-scripted
    provides: net
    exec-start: /bin/up
    exec-stop: /bin/down
    restart: never

    # from /etc/dinit.d/proxy
    unit: proxy
    type: virtual
    provides: proxy
    after: cache, web

    # from /etc/dinit.d/web
    unit: web
    type: foreground-supervised
    description: A web server
    provides: web
    depends-on: net
    depends-ms: db
    waits-for: cache
    exec-start: /usr/bin/web --name "a b" --fast
    clean-exit: complete
    start-timeout: 1min
    stop-timeout: none
    stop-mode: process
    stop-signal: SIGINT
    restart-delay: 500ms
    restart-max-delay: 500ms
    restart-factor: 1
    restart-limit: 6 in 30s
    user: www
    group: web
    directory: /srv
    env-file: /etc/web.env
    nice: 5
    output: append:/var/log/web.log
    limit-nofile: 1024:none
    ---
    + /etc/dinit.d/cache:3:1 `restart` has no effect on a unit of type scripted
    + /etc/dinit.d/web:22:1 option `starts-rwfs` has no effect here
    "#);
}

#[test]
fn settings_without_equivalent_are_reported() {
    let rows = [
        ("ready-notification = pipefd:3", "`ready-notification` is not converted"),
        ("chain-to = rest", "`chain-to` is not converted"),
        ("waits-for.d = boot.d", "`waits-for.d` is not converted: the directory is not read"),
        ("socket-listen = /run/web", "`socket-listen` is not converted"),
        ("inittab-id = 1", "`inittab-id` is not converted"),
        ("smooth-recovery = yes", "a restart also stops the units that depend on this one"),
        ("options = runs-on-console", "`option runs-on-console` has no equivalent"),
        ("load-options = export-passwd-vars", "`option export-passwd-vars` has no equivalent"),
        ("options = starts-log", "option `starts-log` has no effect here"),
        ("log-type = pipe", "`log-type` passes the output on"),
        ("term-signal = none", "`term-signal` names no known signal"),
        ("rlimit-core = 5:", "`rlimit-core` needs both limits here"),
        ("rlimit-cpu = 5", "`rlimit-cpu` is unknown"),
        ("start-timeout = soon", "`start-timeout` is `soon`"),
        ("working-dir = /srv/$1", "`working-dir` has a variable"),
        ("run-as = \"www", "`run-as` has a quote or an escape without an end"),
        ("restart = maybe", "`restart` is `maybe`"),
        ("smooth-recovery = maybe", "`smooth-recovery` is neither true nor false"),
        ("working-dir =", "`working-dir` has no value"),
        ("colour = red", "`colour` is an unknown setting"),
        ("depends-on = a b", "`a b` is not a valid target name"),
        ("@include other", "`@include other` is not converted"),
        ("nonsense", "`nonsense` is no setting"),
        ("type = daemon", "the unit is left out: `daemon` is no type of a service"),
        ("type = bgprocess", "the unit is left out: a bgprocess needs a pid-file"),
        ("type = triggered", "the unit is active at once"),
    ];
    for (setting, expected) in rows {
        let text = format!("type = process\ncommand = /bin/web\n{setting}\n");
        let output = output(InitSystem::Dinit, &[("web", &text)]).replace("\n    ", " ");
        assert!(output.contains(&format!("web:3:1 {expected}")), "{setting}\n{output}");
    }
}

#[test]
fn dinit_comments_do_not_continue_on_the_next_line() {
    let text = "# a comment \\\ntype = process\ncommand = /bin/web \\\n  --all\n";
    let output = output(InitSystem::Dinit, &[("web", text)]);
    assert!(output.contains("exec-start: /bin/web --all"), "{output}");
}

#[test]
fn dinit_discards_output_in_any_order_of_settings() {
    for settings in ["log-type = none\nlogfile = /l\n", "logfile = /l\nlog-type = none\n"] {
        let text = format!("type = process\ncommand = /bin/web\n{settings}");
        let output = output(InitSystem::Dinit, &[("web", &text)]);
        assert!(output.contains("output: null"), "{settings}\n{output}");
    }
}
