//! `fleet-init convert`: units of other inits as stanzas.

use super::run;

/// Creates a folder with units of other inits.
fn foreign_units() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("s/web.service", "[Service]\nExecStart=/bin/sh -c :\nProtectHome=yes\n"),
        ("s/web.service.d/more.conf", "[Service]\nUser=www\n"),
        ("s/README", "Read me\n"),
        ("s/.hidden.service", "[Service]\n"),
        ("o/web", "#!/sbin/openrc-run\ncommand=/bin/sh\npidfile=/run/web.pid\n"),
        ("o/functions.sh", "#!/bin/sh\n"),
        ("y/web", "#!/bin/sh\n### BEGIN INIT INFO\n# Provides: www\n### END INIT INFO\n"),
        ("y/web~", "#!/bin/sh\n"),
        ("d/web", "type = process\ncommand = /bin/sh\n"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn convert_prints_stanzas() {
    let folder = foreign_units();
    let printed = run(folder.path(), "convert --from systemd s").replace(": the nat", ":\nthe nat");
    insta::assert_snapshot!(printed, @r"
    exit 3
    # from s/web.service
    unit: web.service
    type: foreground-supervised
    provides: web.service
    exec-start: /bin/sh -c :
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ---
    s/README: skipped: not a unit file by its name or first line
    s/web.service:3:1: loss: Service.ProtectHome has no key in a stanza
    help: keep the unit file for fleetd
    s/web.service.d:1:1: loss: drop-in directory: its files are not read
    help: merge them into the unit file, as `systemctl cat` shows them
    fleet-init: 2 settings or units could not be converted
    ");
    insta::assert_snapshot!(run(folder.path(), "convert --from openrc o"), @"
    exit 0
    # from o/web
    unit: web
    type: background-pidfile
    provides: web
    pidfile: /run/web.pid
    exec-start: /bin/sh
    restart: never
    ---
    o/functions.sh: skipped: not a unit file by its name or first line
    ");
}

#[test]
fn convert_prints_json() {
    let folder = foreign_units();
    let printed =
        run(folder.path(), "convert --from sysv y -o json").replace("\\n", "\n          ");
    insta::assert_snapshot!(printed, @r#"
    exit 0
    [
      {
        "from": "from y/web",
        "kind": "stanza",
        "text": "unit: web
              type: background-scripted
              provides: www
              exec-start: /etc/init.d/web start
              exec-stop: /etc/init.d/web stop
              start-timeout: none
              stop-timeout: 5min
              restart: never
              ",
        "unit": "web"
      },
      {
        "column": 1,
        "file": "y/web",
        "help": "if the script needs longer to stop, write a longer stop-timeout into the stanza",
        "kind": "remark",
        "line": 1,
        "message": "the script has no time limit to start, as before, and 5 minutes to stop"
      },
      {
        "column": 1,
        "file": "y/web",
        "help": "if the script can reload, write an exec-reload into the stanza",
        "kind": "remark",
        "line": 1,
        "message": "it is unknown whether the script can reload or report its state"
      }
    ]
    ---
    y/web~: skipped: not a unit file by its name or first line
    "#);
    insta::assert_snapshot!(run(folder.path(), "convert --from upstart y"), @"
    exit 2
    ---
    error: invalid value 'upstart' for '--from <INIT>'
      [possible values: systemd, openrc, sysv, dinit]

    For more information, try '--help'.
    ");
}

/// Losses are records in machine formats. The exit code is the same in every format.
#[test]
fn losses_are_reported_in_every_format() {
    let folder = foreign_units();
    let printed = run(folder.path(), "convert --from systemd s/web.service -o jsonl");
    let printed =
        printed.replace("\\n", "\n").replace(",\"", ",\n\"").replace(": the nat", ":\nthe nat");
    insta::assert_snapshot!(printed, @r#"
    exit 3
    {"from":"from s/web.service",
    "kind":"stanza",
    "text":"unit: web.service
    type: foreground-supervised
    provides: web.service
    exec-start: /bin/sh -c :
    clean-exit: complete
    notify-access: none
    restart: never
    ignore-sigpipe: yes
    ",
    "unit":"web.service"}
    {"column":1,
    "file":"s/web.service",
    "help":"keep the unit file for fleetd",
    "kind":"loss",
    "line":3,
    "message":"Service.ProtectHome has no key in a stanza"}
    {"column":1,
    "file":"s/web.service.d",
    "help":"merge them into the unit file, as `systemctl cat` shows them",
    "kind":"loss",
    "line":1,
    "message":"drop-in directory: its files are not read"}
    ---
    fleet-init: 2 settings or units could not be converted
    "#);
    let printed = run(folder.path(), "convert --from systemd s/web.service -o name");
    insta::assert_snapshot!(printed.replace(": the nat", ":\nthe nat"), @r"
    exit 3
    web.service
    ---
    s/web.service:3:1: loss: Service.ProtectHome has no key in a stanza
    help: keep the unit file for fleetd
    s/web.service.d:1:1: loss: drop-in directory: its files are not read
    help: merge them into the unit file, as `systemctl cat` shows them
    fleet-init: 2 settings or units could not be converted
    ");
    insta::assert_snapshot!(run(folder.path(), "convert --from openrc o/web -o name"), @"
    exit 0
    web
    ");
    let printed = run(folder.path(), "convert --from openrc nowhere -o json");
    assert!(printed.starts_with("exit 1\n---\n"), "{printed}");
}

#[test]
fn converted_units_pass_check() {
    let folder = foreign_units();
    for (from, path, expected) in [
        ("systemd", "s/web.service", "exit 3\n"),
        ("openrc", "o/web", "exit 0\n"),
        ("sysv", "y/web", "exit 0\n"),
        ("dinit", "d/web", "exit 0\n"),
    ] {
        let printed = run(folder.path(), &format!("convert --from {from} {path}"));
        assert!(printed.starts_with(expected), "{printed}");
        let text = printed.split("---").next().unwrap().split_once('\n').unwrap().1;
        std::fs::write(folder.path().join("a.unit"), text).unwrap();
        let printed = run(folder.path(), "check a.unit");
        assert!(printed.starts_with("exit 0\n") && printed.ends_with("ok: 1 unit\n"), "{printed}");
    }
}

/// A unit file given by name has the same drop-ins as in its directory.
#[test]
fn drop_ins_beside_a_file_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a-web.service"), "[Service]\nExecStart=/bin/w\n").unwrap();
    for name in ["a-web.service", "a-.service", "service", "other.service", "b-.service"] {
        std::fs::create_dir(folder.path().join(format!("{name}.d"))).unwrap();
    }
    let printed = run(folder.path(), "convert --from systemd a-web.service");
    let losses = printed.lines().filter(|line| line.contains("loss: "));
    let losses: Vec<_> = losses.map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(losses, ["a-.service.d", "a-web.service.d", "service.d"], "{printed}");
    assert!(printed.starts_with("exit 3\n"), "{printed}");
    // A directory may also hold drop-ins of units in other directories.
    for name in ["b-.service.d", "service.d"] {
        std::fs::create_dir_all(folder.path().join("more").join(name)).unwrap();
    }
    let printed = run(folder.path(), "convert --from systemd more");
    for name in ["b-.service.d", "service.d"] {
        assert!(printed.contains(&format!("more/{name}:1:1: loss: ")), "{printed}");
    }
}

/// A template's drop-ins apply to each of its instances.
#[test]
fn drop_ins_of_a_template_are_reported_for_instances() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tty@one.service"), "[Service]\nExecStart=/bin/t\n").unwrap();
    std::fs::create_dir(folder.path().join("tty@.service.d")).unwrap();
    let printed = run(folder.path(), "convert --from systemd tty@one.service");
    assert!(printed.contains("tty@.service.d:1:1: loss: "), "{printed}");
}

/// A link that `systemctl enable` creates for `Alias=` is not a second unit.
#[test]
fn link_to_a_unit_file_is_an_alias() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for directory in ["etc", "lib"] {
        std::fs::create_dir(path(directory)).unwrap();
    }
    std::fs::write(path("lib/rsyslog.service"), "[Service]\nExecStart=/bin/l\n").unwrap();
    std::fs::write(path("lib/tty@.service"), "[Service]\nExecStart=/bin/tty %i\n").unwrap();
    for (link, to) in [
        ("etc/syslog.service", "../lib/rsyslog.service"),
        ("etc/tty@one.service", "../lib/tty@.service"),
        ("lib/log.service", "rsyslog.service"),
    ] {
        std::os::unix::fs::symlink(to, path(link)).unwrap();
    }
    for (paths, provides) in [
        ("lib/rsyslog.service lib/log.service", "rsyslog.service, log.service"),
        ("lib/log.service", "rsyslog.service, log.service"),
        ("etc", "rsyslog.service, syslog.service"),
        ("etc lib/log.service", "rsyslog.service, log.service, syslog.service"),
    ] {
        let printed = run(folder.path(), &format!("convert --from systemd {paths}"));
        assert!(printed.starts_with("exit 0\n"), "{printed}");
        assert_eq!(printed.matches("exec-start: /bin/l\n").count(), 1, "{printed}");
        assert!(printed.contains(&format!("provides: {provides}\n")), "{printed}");
        assert_eq!(
            printed.contains("exec-start: /bin/tty one\n"),
            paths.contains("etc"),
            "{printed}"
        );
    }
}

/// A drop-in directory that is reached by several paths counts once.
#[test]
fn drop_ins_are_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("a");
    std::fs::create_dir(&within).unwrap();
    std::fs::write(within.join("foo-bar.service"), "[Service]\nExecStart=/bin/f\n").unwrap();
    std::os::unix::fs::symlink("foo-bar.service", within.join("foo-link.service")).unwrap();
    for name in ["foo-.service.d", "foo-bar.service.d", "service.d"] {
        std::fs::create_dir(within.join(name)).unwrap();
    }
    let whole = within.display();
    for paths in [
        format!("a/foo-bar.service ./a/foo-bar.service {whole}"),
        "a/foo-link.service a/foo-bar.service".to_owned(),
    ] {
        let printed = run(folder.path(), &format!("convert --from systemd {paths}"));
        let losses = printed.lines().filter_map(|line| line.split_once(":1:1: loss: "));
        let losses: Vec<_> = losses.map(|(file, _)| file.to_owned()).collect();
        let expected = ["foo-.service.d", "foo-bar.service.d", "service.d"];
        assert_eq!(losses, expected.map(|name| format!("a/{name}")), "{printed}");
    }
}

/// Under systemd such a name masks a unit or stands for one that may run.
#[test]
fn names_without_a_readable_file_are_losses() {
    let folder = tempfile::tempdir().unwrap();
    for (link, to) in [
        ("s/a.service", "/dev/null"),
        ("s/b.service", "nowhere.service"),
        ("s/c.service", "d.service"),
        ("s/d.service", "c.service"),
        ("s/README", "nowhere"),
    ] {
        let link = folder.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, link).unwrap();
    }
    let _socket =
        std::os::unix::net::UnixListener::bind(folder.path().join("s/e.service")).unwrap();
    insta::assert_snapshot!(run(folder.path(), "convert --from systemd s"), @"
    exit 3
    ---
    s/README: skipped: not a unit file by its name or first line
    s/a.service:1:1: loss: the unit is left out: an empty file masks the unit
    help: write a unit into it
    s/b.service:1:1: loss: the unit is left out: the link is broken
    help: pass the unit file itself; write its other names into `provides:` of the stanza
    s/c.service:1:1: loss: the unit is left out: the link is broken
    help: pass the unit file itself; write its other names into `provides:` of the stanza
    s/d.service:1:1: loss: the unit is left out: the link is broken
    help: pass the unit file itself; write its other names into `provides:` of the stanza
    s/e.service:1:1: loss: the unit is left out: not a regular file
    help: pass a regular file instead
    fleet-init: 5 settings or units could not be converted
    ");
    let printed = run(folder.path(), "convert --from systemd s -o jsonl");
    assert_eq!(printed.matches("\"kind\":\"loss\"").count(), 5, "{printed}");
}

/// Regression: the links by which systemd knows enabled units were ignored.
#[test]
fn enabled_units_include_those_with_links() {
    let folder = tempfile::tempdir().unwrap();
    let service = "[Service]\nExecStart=/bin/sh -c :\n";
    for (path, text) in [
        ("lib/web.service", service),
        ("lib/getty@.service", service),
        ("etc/all.target", "[Unit]\n"),
        ("etc/own.service", service),
        ("etc/all.target.wants/README", ""),
        ("etc/all.target.requires/broken", ""),
        ("etc/all.target.wants/folder.service/file", ""),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for (link, file) in [
        ("wants/web.service", "../../lib/web.service"),
        ("wants/getty@tty1.service", "../../lib/getty@.service"),
        ("wants/gone.service", "../../lib/gone.service"),
        ("requires/own.service", "../own.service"),
    ] {
        let link = folder.path().join(format!("etc/all.target.{link}"));
        std::os::unix::fs::symlink(file, link).unwrap();
    }
    let printed = run(folder.path(), "convert --from systemd --enabled etc").to_string();
    for shown in [
        "depends-ms: own.service\n",
        "waits-for: getty@tty1.service, web.service\n",
        "unit: web.service\n",
        "etc/all.target.wants/gone.service:1:1: loss: the unit is left out: the link is broken\n",
        "etc/all.target.wants/folder.service:1:1: loss: the unit is left out: not a regular file\n",
        "etc/all.target.wants/README: skipped",
    ] {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
    let printed = run(folder.path(), "convert --from systemd etc").to_string();
    assert!(printed.contains("etc/all.target.wants: skipped"), "{printed}");
    assert!(!printed.contains("web.service"), "{printed}");
}
