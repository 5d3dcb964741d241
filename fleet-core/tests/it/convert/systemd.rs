//! Conversion of systemd unit files.

use fleet_core::graph::convert::{ConvertOptions, InitSystem, SourceFile, convert, convert_with};
use fleet_unitfile::SpecifierContext;
use fleet_unitfile::specifier::Specifier;

use super::{converted, output, sources, words};

#[test]
fn expressible_services_convert_exactly() {
    let web = "[Unit]\nDescription=Web\nRequires=db.service\nAfter=db.service\nWants=x.service\n\
               [Service]\nExecStart=/usr/bin/web -p 80\nRestart=always\n[Install]\n\
               Alias=http.service\n";
    let db = "[Service]\nType=notify\nExecStart=/usr/bin/db\n[Install]\nWantedBy=all.target\n";
    let x = "[Unit]\nBindsTo=db.service\n[Service]\nExecStart=/usr/bin/x\n";
    let files = [("web.service", web), ("db.service", db), ("x.service", x), ("all.target", "#\n")];
    insta::assert_snapshot!(output(InitSystem::Systemd, &files), @"
    # from all.target
    unit: all.target
    type: virtual
    provides: all.target
    waits-for: db.service

    # from db.service
    unit: db.service
    type: foreground-notified
    provides: db.service
    exec-start: /usr/bin/db
    clean-exit: complete
    reload-timeout: 1min 30s
    restart: never
    ignore-sigpipe: yes

    # from web.service
    unit: web.service
    type: foreground-supervised
    description: Web
    provides: web.service, http.service
    depends-ms: db.service
    pulls: x.service
    exec-start: /usr/bin/web -p 80
    clean-exit: complete
    notify-access: none
    restart: always
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s
    ignore-sigpipe: yes

    # from x.service
    unit: x.service
    type: foreground-supervised
    provides: x.service
    depends-on: db.service
    exec-start: /usr/bin/x
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ---
    + x.service:2:1 Unit.BindsTo also orders the unit after db.service
    ");
}

#[test]
fn unsupported_options_are_reported_with_position() {
    let web = "[Unit]\nRequires=db.service\nAfter=network.target\nPartOf=db.service\n\
               Wants=cache.service\n[Service]\nExecStart=/usr/bin/web\nProtectHome=yes\n\
               PrivateTmp=yes\nTypo=1\nLogRateLimitBurst=5\n[Install]\n\
               WantedBy=multi-user.target\n[Socket]\nListenStream=80\n";
    let db = "[Unit]\nPartOf=web.service\n[Service]\nExecStart=/bin/db\n";
    let output = output(InitSystem::Systemd, &[("a/web.service", web), ("db.service", db)]);
    insta::assert_snapshot!(output, @r"
    # from db.service
    unit: db.service
    type: foreground-supervised
    provides: db.service
    exec-start: /bin/db
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes

    # from a/web.service
    unit: web.service
    type: foreground-supervised
    provides: web.service
    pulls: db.service
    exec-start: /usr/bin/web
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ---
    + a/web.service:3:1 Unit.After names network.target, which is not among the files
    - a/web.service:4:1 Unit.PartOf is not converted: web.service does not stop
        together with db.service
    - a/web.service:5:1 Unit.Wants names cache.service, which is not among the files
    - a/web.service:8:1 Service.ProtectHome has no key in a stanza
    - a/web.service:9:1 Service.PrivateTmp has no key in a stanza
    - a/web.service:10:1 Service.Typo is not a systemd option in [Service]
    + a/web.service:11:1 Service.LogRateLimitBurst has no effect, because there is no
        journal
    + a/web.service:13:1 Install.WantedBy: multi-user.target, which starts web.service,
        is not among the files
    - a/web.service:15:1 Socket.ListenStream is in [Socket], which has no meaning in a
        .service unit
    - db.service:2:1 Unit.PartOf is not converted: db.service does not stop together
        with web.service
    ");
}

#[test]
fn requisites_and_upheld_units_become_dependencies() {
    let web = "[Unit]\nRequisite=db.service\nUpholds=log.service\n[Service]\nExecStart=/bin/web\n";
    let db = "[Unit]\nStopWhenUnneeded=yes\n[Service]\nExecStart=/bin/db\n";
    let log = "[Service]\nExecStart=/bin/log\n[Install]\nUpheldBy=db.service\n";
    let files = [("web.service", web), ("db.service", db), ("log.service", log)];
    let output = output(InitSystem::Systemd, &files);
    insta::assert_snapshot!(output, @r"
    # from db.service
    unit: db.service
    type: foreground-supervised
    provides: db.service
    pulls: log.service
    exec-start: /bin/db
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes

    # from log.service
    unit: log.service
    type: foreground-supervised
    provides: log.service
    exec-start: /bin/log
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes

    # from web.service
    unit: web.service
    type: foreground-supervised
    provides: web.service
    requisite: db.service
    pulls: log.service
    exec-start: /bin/web
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ---
    + db.service:2:1 Unit.StopWhenUnneeded has no equivalent: each unit stops once no
        needed unit depends on it
    - log.service:4:1 Install.UpheldBy becomes a dependency, which does not start an
        ended unit again
    + web.service:2:1 Unit.Requisite also orders the unit after db.service
    - web.service:3:1 Unit.Upholds becomes a dependency, which does not start an ended
        unit again
    ");
}

#[test]
fn effects_on_other_units_are_losses() {
    let web = "[Unit]\nOnFailure=mail@%n.service\nOnSuccess=db.service\n\
               PropagatesReloadTo=db.service\nStopPropagatedFrom=db.service\n\
               [Service]\nExecStart=/usr/bin/web\n";
    let output = output(InitSystem::Systemd, &[("web.service", web)]);
    let (_, report) = output.split_once("---\n").expect("it has a report");
    insta::assert_snapshot!(report, @r"
    - web.service:2:1 Unit.OnFailure is not converted: the result of web.service does
        not start mail@web.service.service
    - web.service:3:1 Unit.OnSuccess is not converted: the result of web.service does
        not start db.service
    - web.service:4:1 Unit.PropagatesReloadTo is not converted: web.service and
        db.service do not reload together
    - web.service:5:1 Unit.StopPropagatedFrom is not converted: web.service and
        db.service do not stop together
    ");
}

#[test]
fn ambiguous_units_are_left_out() {
    let value = "[Service]\nExecStart=/bin/x\nType=forging\nProtectHome=yes\n";
    let needs = "[Unit]\nBindsTo=bad.service\nAfter=bad.service\n[Service]\nExecStart=/bin/n\n";
    let bound = "[Unit]\nBindsTo=late.service\n[Service]\nExecStart=/bin/b\n";
    let late = "[Unit]\nAfter=bound.service\n[Service]\nExecStart=/bin/l\n";
    let files = [
        ("a.socket", "[Socket]\nListenStream=80\n"),
        ("b.timer", "[Timer]\nOnBootSec=1\n"),
        ("bad.service", "[Service]\nType=oneshot\nExitType=cgroup\nExecStart=/bin/x\n"),
        ("bound.service", bound),
        ("empty.service", ""),
        ("home.service", "[Service]\nExecStart=/bin/x $HOME\n"),
        ("late.service", late),
        ("needs.service", needs),
        ("value.service", value),
        ("y.service", "[Service]\nExecStart\n"),
    ];
    insta::assert_snapshot!(output(InitSystem::Systemd, &files), @r#"
    # from late.service
    unit: late.service
    type: foreground-supervised
    provides: late.service
    exec-start: /bin/l
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes

    # from needs.service
    unit: needs.service
    type: foreground-supervised
    provides: needs.service
    exec-start: /bin/n
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ---
    - a.socket:1:1 the unit is left out: units of this format have no sockets and paths
    - b.timer:1:1 the unit is left out: units of this format have no timers
    - bad.service:3:1 the unit is left out: Service.ExitType cannot be cgroup with
        Type=oneshot
    - bound.service:2:1 the unit is left out: Unit.BindsTo names late.service, which is
        ordered after this unit, but BindsTo= needs the opposite order
    - empty.service:1:1 the unit is left out: an empty file masks the unit
    - home.service:1:1 the unit is left out: exec-start is missing, which a unit of
        type foreground-supervised needs
    - home.service:2:1 `exec-start: /bin/x $HOME` cannot be expressed: no variable
        `HOME` is given to the command
    + late.service:2:1 Unit.After names bound.service, which is not among the files
    - needs.service:2:1 Unit.BindsTo names bad.service, which is not among the files
    + needs.service:3:1 Unit.After names bad.service, which is not among the files
    - value.service:3:1 the unit is left out: Service.Type is "forging"
    - value.service:4:1 Service.ProtectHome has no key in a stanza
    - y.service:2:1 the unit is left out: missing "=" in "ExecStart"
    "#);
}

#[test]
fn units_without_a_unique_name_are_left_out() {
    let it = "[Service]\nExecStart=/bin/it\n";
    let files = [("b@.service", it), ("text", it), ("x/c.service", ""), ("y/c.service", it)];
    insta::assert_snapshot!(output(InitSystem::Systemd, &files), @r#"
    # from y/c.service
    unit: c.service
    type: foreground-supervised
    provides: c.service
    exec-start: /bin/it
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ---
    - b@.service:1:1 the unit is left out: a template cannot run
    - text:1:1 the unit is left out: unit name "text" has no type: add a suffix such as
        ".service"
    - x/c.service:1:1 the unit is left out: an empty file masks the unit
    "#);
}

#[test]
fn invalid_text_is_left_out() {
    let files = [("a.service", vec![b'\n', 0xff]), ("b.service", vec![b'\n'; (1 << 20) + 1])];
    let files = files.map(|(path, source)| SourceFile {
        path: path.to_owned(),
        source,
        ..SourceFile::default()
    });
    let converted = convert(InitSystem::Systemd, files.into());
    let losses: Vec<_> = converted.notes.iter().map(|it| (it.line, it.message.as_str())).collect();
    let expected = [
        (2, "the unit is left out: the file is not UTF-8 text"),
        (1, "the unit is left out: the file has more than 1048576 bytes"),
    ];
    assert_eq!((converted.units.len(), losses.as_slice()), (0, &expected[..]));
}

#[test]
fn unsupported_value_drops_only_the_option() {
    let web = "[Unit]\nConflicts=other.service\nConflicts=shutdown.target\n[Service]\n\
               ExecStart=/bin/web\nMemoryMax=101%\nMemoryMax=1G\nRestart=often\nNice=none\n\
               Environment=A=%H B=2\n";
    let whom = "[Service]\nExecStart=/bin/x\nUser=%b\nNice=none\n";
    let files = [("web.service", web), ("whom.service", whom)];
    insta::assert_snapshot!(output(InitSystem::Systemd, &files), @r#"
    # from web.service
    unit: web.service
    type: foreground-supervised
    provides: web.service
    exec-start: /bin/web
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    memory-max: 1G
    ---
    - web.service:2:1 Unit.Conflicts is not converted: the start of web.service does
        not stop other.service
    - web.service:6:1 Service.MemoryMax cannot be read: size is too large
    - web.service:8:1 Service.Restart is "often"
    - web.service:9:1 Service.Nice is "none"
    - web.service:10:1 Service.Environment cannot be read: specifier "%H" cannot be
        expanded, because the host name is not known
    - whom.service:3:1 the unit is left out: Service.User cannot be read: specifier
        "%b" cannot be expanded, because the boot id is not known
    - whom.service:4:1 Service.Nice is "none"
    "#);
}

/// A conflict of several options remains if one of them is dropped.
#[test]
fn conflict_of_several_options_refuses_the_unit() {
    let both = "[Service]\nType=oneshot\nExecStart=/bin/x\nRestart=always\n";
    insta::assert_snapshot!(output(InitSystem::Systemd, &[("both.service", both)]), @"
    ---
    - both.service:4:1 the unit is left out: Service.Restart cannot be used with
        Type=oneshot, which would restart after a success
    ");
}

#[test]
fn specifiers_expand_for_the_machine() {
    let web = "[Service]\nExecStart=/bin/web --name %H --share 5%%H\nEnvironment=A=%l\n";
    let specifiers = SpecifierContext::system_manager().with(Specifier::HostName, "here.example");
    let options = ConvertOptions { specifiers, ..ConvertOptions::default() };
    let converted = convert_with(InitSystem::Systemd, sources(&[("web.service", web)]), &options);
    insta::assert_snapshot!(words(&converted), @"
    # from web.service
    unit: web.service
    type: foreground-supervised
    provides: web.service
    exec-start: /bin/web --name here.example --share 5%H
    clean-exit: complete
    notify-access: none
    restart: never
    env: A=here
    ignore-sigpipe: yes
    ---
    + web.service:2:1 Service.ExecStart has the value of %H on this machine
    + web.service:3:1 Service.Environment has the value of %l on this machine
    ");
}

/// A link to a unit file is an alias of its unit, which runs once.
#[test]
fn link_becomes_an_alias() {
    let log = "[Service]\nExecStart=/bin/log\n";
    let web = "[Unit]\nRequires=syslog.service\nAfter=syslog.service\n[Service]\n\
               ExecStart=/bin/web\n";
    let mut files = sources(&[("rsyslog.service", log), ("web.service", web)]);
    files[0].aliases = vec!["syslog.service".to_owned()];
    let output = words(&converted(InitSystem::Systemd, files));
    assert_eq!(output.matches("exec-start: /bin/log").count(), 1, "{output}");
    assert!(output.contains("provides: rsyslog.service, syslog.service\n"), "{output}");
    assert!(
        output.contains("depends-ms: rsyslog.service\n") && output.ends_with("---\n"),
        "{output}"
    );
}

/// Regression: of two links with one name, or a link and a file, the second was dropped silently.
#[test]
fn link_with_a_taken_name_is_reported() {
    let text = "[Service]\nExecStart=/bin/x\n";
    let mut files = sources(&[("x/b.service", text), ("y/a.service", text)]);
    files[0].aliases = vec!["a.service".to_owned()];
    let output = words(&converted(InitSystem::Systemd, files));
    let lost =
        "- x/b.service:1:1 the link a.service is dropped: the unit a.service has that name\n";
    assert!(output.ends_with(&format!("---\n{lost}")), "{output}");
    let mut files = sources(&[("x/b.service", text), ("y/c.service", text)]);
    for file in &mut files {
        file.aliases = vec!["a.service".to_owned(), "d.service".to_owned()];
    }
    files[0].aliases.pop();
    let output = words(&converted(InitSystem::Systemd, files));
    let lost =
        "- y/c.service:1:1 the link a.service is dropped: the unit b.service has that name\n";
    assert!(output.ends_with(&format!("---\n{lost}")), "{output}");
    assert!(output.contains("provides: c.service, d.service\n"), "{output}");
}

/// Regression: every unit counted as enabled, so a conversion of all unit files of a machine also
/// started those that were disabled there.
#[test]
fn wanted_by_is_a_remark_unless_units_are_enabled() {
    let shell = "[Service]\nExecStart=/bin/bash\n[Install]\nWantedBy=all.target\n";
    let files = [("shell.service", shell), ("all.target", "#\n")];
    let converted = convert(InitSystem::Systemd, sources(&files));
    assert!(converted.is_exact(), "{:?}", converted.notes);
    assert_eq!(converted.units[0].unit.edges, []);
    let note = converted.notes[0].to_string();
    assert!(note.starts_with("shell.service:4:1: remark: Install.WantedBy is not"), "{note}");
    assert!(note.contains("convert it with --enabled, or name `shell.service`"), "{note}");
    // A file alone cannot name its target.
    assert!(convert(InitSystem::Systemd, sources(&files[..1])).is_exact());
}

/// Regression: links by which an administrator has enabled a unit were ignored.
#[test]
fn links_of_starting_units_are_dependencies() {
    let mut files = sources(&[("a.service", "[Service]\nExecStart=/a\n"), ("all.target", "#\n")]);
    files[0].wanted_by = ["all.target", "other.target"].map(str::to_owned).into();
    let options = ConvertOptions { enabled: true, ..ConvertOptions::default() };
    let converted = convert_with(InitSystem::Systemd, files, &options);
    assert!(converted.units[1].text.contains("waits-for: a.service\n"), "{converted:?}");
    assert!(converted.is_exact(), "{:?}", converted.notes);
    let note = converted.notes[0].to_string();
    let outside = "a.service:1:1: remark: other.target.wants: other.target, which starts a.service";
    assert!(note.starts_with(outside), "{note}");
}

/// Regression: keys without an effect were printed.
#[test]
fn restart_and_reload_keys_without_effect_are_not_printed() {
    let of = |more: &str| {
        let text = format!("[Service]\nExecStart=/a\n{more}");
        let converted = convert(InitSystem::Systemd, sources(&[("a.service", &text)]));
        converted.units[0].text.clone()
    };
    let plain = of("RestartSec=5\nRestartPreventExitStatus=3\nTimeoutStartSec=5\n");
    assert!(plain.contains("restart: never\n"), "{plain}");
    assert!(!plain.contains("restart-") && !plain.contains("reload-timeout"), "{plain}");
    let forced = of("RestartSec=5\nRestartForceExitStatus=3\n");
    assert!(
        forced.contains("restart: never\n") && forced.contains("restart-delay: 5s"),
        "{forced}"
    );
    for reloads in ["ExecReload=/b\n", "Type=notify-reload\n", "Type=notify\n"] {
        assert!(of(reloads).contains("reload-timeout"), "{reloads}");
    }
}

/// Regression: the directory was a loss, and the unit failed without it.
#[test]
fn runtime_directory_becomes_commands_of_the_stanza() {
    let of = |lines: &str| {
        let text = format!("[Service]\nExecStartPre=/a -t\nExecStart=/a\n{lines}");
        convert(InitSystem::Systemd, sources(&[("a.service", &text)]))
    };
    let converted = of("RuntimeDirectory=a b/c\nRuntimeDirectoryMode=0700\n");
    assert!(converted.is_exact(), "{:?}", converted.notes);
    let text = &converted.units[0].text;
    for line in [
        "exec-start-pre: /usr/bin/install -d -m 0700 /run/a /run/b/c\nexec-start-pre: /a -t\n",
        "exec-stop-post: -/bin/rm -rf /run/a /run/b/c\n",
        "env: RUNTIME_DIRECTORY=/run/a:/run/b/c\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for lines in [
        "RuntimeDirectory=a\nUser=u\n",
        "RuntimeDirectory=../a\n",
        "RuntimeDirectory=a:b\n",
        "RuntimeDirectory=%p\n",
        "RuntimeDirectory=a\nRuntimeDirectoryPreserve=yes\n",
    ] {
        let converted = of(lines);
        assert!(!converted.is_exact(), "{lines}");
        assert!(!converted.units[0].text.contains("/run/"), "{lines}");
    }
}
