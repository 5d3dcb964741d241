//! Unit files of systemd.

use fleet_core::graph::convert::{Origin, Source, convert};

use super::told;

#[test]
fn services_that_stanzas_can_say_are_exact() {
    let web = "[Unit]\nDescription=Web\nRequires=db.service\nAfter=db.service\nWants=x.service\n\
               [Service]\nExecStart=/usr/bin/web -p 80\nRestart=always\n[Install]\n\
               Alias=http.service\n";
    let db = "[Service]\nType=notify\nExecStart=/usr/bin/db\n[Install]\nWantedBy=all.target\n";
    let x = "[Unit]\nBindsTo=db.service\n[Service]\nExecStart=/usr/bin/x\n";
    let files = [("web.service", web), ("db.service", db), ("x.service", x), ("all.target", "#\n")];
    insta::assert_snapshot!(told(Origin::Systemd, &files), @"
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
    after-exit: rests
    reload-timeout: 1min 30s
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s

    # from web.service
    unit: web.service
    type: foreground-supervised
    description: Web
    provides: web.service, http.service
    depends-ms: db.service
    pulls: x.service
    exec-start: /usr/bin/web -p 80
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: always
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s

    # from x.service
    unit: x.service
    type: foreground-supervised
    provides: x.service
    depends-on: db.service
    exec-start: /usr/bin/x
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s
    ---
    + x.service:2:1 Unit.BindsTo has the unit start after db.service as well
    ");
}

#[test]
fn what_is_not_honoured_is_lost_with_its_place() {
    let web = "[Unit]\nRequires=db.service\nAfter=network.target\nPartOf=db.service\n\
               Wants=cache.service\n[Service]\nExecStart=/usr/bin/web\nProtectHome=yes\n\
               PrivateTmp=yes\nTypo=1\nLogRateLimitBurst=5\n[Install]\n\
               WantedBy=multi-user.target\n[Socket]\nListenStream=80\n";
    let db = "[Unit]\nPartOf=web.service\n[Service]\nExecStart=/bin/db\n";
    insta::assert_snapshot!(told(Origin::Systemd, &[("a/web.service", web), ("db.service", db)]), @"
    # from db.service
    unit: db.service
    type: foreground-supervised
    provides: db.service
    exec-start: /bin/db
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s

    # from a/web.service
    unit: web.service
    type: foreground-supervised
    provides: web.service
    pulls: db.service
    exec-start: /usr/bin/web
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s
    ---
    + a/web.service:3:1 Unit.After names network.target, which is not among the files
    - a/web.service:4:1 Unit.PartOf: its stop would be that of db.service
    - a/web.service:5:1 Unit.Wants names cache.service, which is not among the files
    - a/web.service:8:1 Service.ProtectHome is not possible: the native supervisor
        cannot confine processes in this way
    - a/web.service:9:1 Service.PrivateTmp is not possible: the native supervisor
        cannot confine processes in this way
    - a/web.service:10:1 Service.Typo is no option of systemd in [Service]
    + a/web.service:11:1 Service.LogRateLimitBurst concerns a journal that is not there
    - a/web.service:13:1 Install.WantedBy: multi-user.target would have it started,
        which is not among the files
    - a/web.service:15:1 Socket.ListenStream stands in [Socket], which means nothing in
        a .service unit
    - db.service:2:1 Unit.PartOf: its stop would be that of web.service
    ");
}

#[test]
fn what_would_be_a_guess_is_left_out() {
    let bad = "[Service]\nType=forking\nExecStart=/bin/x\n";
    let value = "[Service]\nExecStart=/bin/x\nRestart=often\nProtectHome=yes\n";
    let needs = "[Unit]\nBindsTo=bad.service\nAfter=bad.service\n[Service]\nExecStart=/bin/n\n";
    let home = "[Service]\nExecStart=/bin/x $HOME\n";
    let bound = "[Unit]\nBindsTo=late.service\n[Service]\nExecStart=/bin/b\n";
    let late = "[Unit]\nAfter=bound.service\n[Service]\nExecStart=/bin/l\n";
    let files = [
        ("a.socket", "[Socket]\nListenStream=80\n"),
        ("b.timer", "[Timer]\nOnBootSec=1\n"),
        ("bad.service", bad),
        ("bound.service", bound),
        ("empty.service", ""),
        ("home.service", home),
        ("late.service", late),
        ("needs.service", needs),
        ("value.service", value),
        ("y.service", "[Service]\nExecStart\n"),
    ];
    insta::assert_snapshot!(told(Origin::Systemd, &files), @r#"
    # from late.service
    unit: late.service
    type: foreground-supervised
    provides: late.service
    exec-start: /bin/l
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s

    # from needs.service
    unit: needs.service
    type: foreground-supervised
    provides: needs.service
    exec-start: /bin/n
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s
    ---
    - a.socket:1:1 the unit is left out: the native supervisor runs .service, .target
        and .timer units only, not .socket ones
    - b.timer:1:1 the unit is left out: units of this format are not started by the
        calendar or the clock
    - bad.service:2:1 the unit is left out: Service.Type cannot be forking without a
        PIDFile=, as the main process is never guessed
    - bound.service:2:1 the unit is left out: Unit.BindsTo names late.service, which
        comes after this unit: what a unit is bound to starts before it
    - empty.service:1:1 the unit is left out: an empty file masks the unit
    - home.service:1:1 the unit is left out: exec-start is missing, which a unit of
        type foreground-supervised needs
    - home.service:2:1 `exec-start: /bin/x $HOME` cannot be said: no variable `HOME` is
        given to the command
    + late.service:2:1 Unit.After names bound.service, which is not among the files
    - needs.service:2:1 Unit.BindsTo names bad.service, which is not among the files
    + needs.service:3:1 Unit.After names bad.service, which is not among the files
    - value.service:3:1 the unit is left out: Service.Restart is "often"
    - value.service:4:1 Service.ProtectHome is not possible: the native supervisor
        cannot confine processes in this way
    - y.service:2:1 the unit is left out: missing "=" in "ExecStart"
    "#);
}

#[test]
fn what_has_no_name_of_its_own_is_left_out() {
    let it = "[Service]\nExecStart=/bin/it\n";
    let files = [("b@.service", it), ("text", it), ("x/c.service", ""), ("y/c.service", it)];
    insta::assert_snapshot!(told(Origin::Systemd, &files), @r#"
    # from y/c.service
    unit: c.service
    type: foreground-supervised
    provides: c.service
    exec-start: /bin/it
    after-exit: rests
    reload-timeout: 1min 30s
    notify-access: none
    restart: never
    restart-delay: 100ms
    restart-max-delay: 100ms
    restart-factor: 1
    restart-limit: 5 in 10s
    ---
    - b@.service:1:1 the unit is left out: a template is not run itself
    - text:1:1 the unit is left out: unit name "text" has no type: add a suffix such as
        ".service"
    - x/c.service:1:1 the unit is left out: an empty file masks the unit
    "#);
}

#[test]
fn what_is_no_text_is_left_out() {
    let files = [("a.service", vec![b'\n', 0xff]), ("b.service", vec![b'\n'; (1 << 20) + 1])];
    let files = files.map(|(path, source)| Source { path: path.to_owned(), source });
    let converted = convert(Origin::Systemd, files.into());
    let losses: Vec<_> = converted.losses.iter().map(|it| (it.line, it.message.as_str())).collect();
    let expected = [
        (2, "the unit is left out: the file is no text in UTF-8"),
        (1, "the unit is left out: the file has more than 1048576 bytes"),
    ];
    assert_eq!((converted.stanzas.len(), losses.as_slice()), (0, &expected[..]));
}
