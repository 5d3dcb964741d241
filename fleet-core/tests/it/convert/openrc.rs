//! Service scripts of OpenRC.

mod depend;
mod hostile;

use fleet_core::graph::convert::InitSystem;

use super::output;

fn script(body: &str) -> String {
    let output = output(InitSystem::Openrc, &[("web", &format!("#!/sbin/openrc-run\n{body}"))]);
    // Common first lines.
    let output = output.replace("# from web\nunit: web\n", "").replace("provides: web\n", "");
    output.replace(" web:", " ")
}

#[test]
fn command_background_becomes_a_foreground_unit() {
    let body = r#"
description="A web   server"
command=/usr/sbin/web
command_args="--log \"/var/log/${RC_SVCNAME} x.log\" '\$5'"
command_background=yes
pidfile="/run/${RC_SVCNAME}.pid"
command_user="www:web"
directory=/srv/www
umask=027
output_log=/var/log/out error_log=/var/log/err
export LANG=C TZ
retry="INT/20/KILL/5"
required_files=/etc/web.conf
"#;
    insta::assert_snapshot!(script(body), @r#"
    type: foreground-supervised
    description: A web server
    assert: path-exists /etc/web.conf
    exec-start: /usr/sbin/web --log "/var/log/web x.log" $$5
    stop-timeout: 20s
    stop-signal: SIGINT
    restart: never
    user: www
    group: web
    directory: /srv/www
    env: LANG=C
    pass-env: TZ
    umask: 0027
    output: append:/var/log/out
    error-output: append:/var/log/err
    ---
    + 7:1 fleet-init does not write the process ID to /run/web.pid
    "#);
}

#[test]
fn pidfile_daemon_becomes_a_pidfile_unit() {
    let body = "command=/usr/sbin/web\npidfile=/run/web.pid\ncommand_args_background=-d\n\
                command_args_foreground=-f\nstopsig=QUIT\n";
    insta::assert_snapshot!(script(body), @"
    type: background-pidfile
    pidfile: /run/web.pid
    exec-start: /usr/sbin/web -d
    stop-signal: SIGQUIT
    restart: never
    ---
    ");
}

#[test]
fn supervised_daemon_has_a_restart_policy() {
    let body = "supervisor=supervise-daemon\ncommand=/bin/web\ncommand_args=\"-a\n  -b\"\n\
                command_args_foreground=-f\n";
    let limits = "respawn_delay=2\nrespawn_max=3\nrespawn_period=60\n";
    insta::assert_snapshot!(script(body), @"
    type: foreground-supervised
    exec-start: /bin/web -a -b -f
    restart: always
    restart-delay: 0
    restart-max-delay: 0
    restart-factor: 1
    restart-limit: 10
    ---
    + 1:1 the restart limit of supervise-daemon is unknown: here it is 10 times in
        a row
    ");
    insta::assert_snapshot!(script(&format!("{body}{limits}")), @"
    type: foreground-supervised
    exec-start: /bin/web -a -b -f
    restart: always
    restart-delay: 2s
    restart-max-delay: 2s
    restart-factor: 1
    restart-limit: 4 in 1min
    ---
    ");
}

#[test]
fn single_respawn_limit_is_kept() {
    let body = "supervisor=supervise-daemon\ncommand=/bin/web\n";
    insta::assert_snapshot!(script(&format!("{body}respawn_max=5\n")), @"
    type: foreground-supervised
    exec-start: /bin/web
    restart: always
    restart-delay: 0
    restart-max-delay: 0
    restart-factor: 1
    restart-limit: 5
    ---
    + 4:1 without `respawn_period` every failure counts forever; here only failures
        in a row count
    ");
    insta::assert_snapshot!(script(&format!("{body}respawn_max=5\nrespawn_period=0\n")), @"
    type: foreground-supervised
    exec-start: /bin/web
    restart: always
    restart-delay: 0
    restart-max-delay: 0
    restart-factor: 1
    restart-limit: 5
    ---
    + 4:1 without `respawn_period` every failure counts forever; here only failures
        in a row count
    ");
    insta::assert_snapshot!(script(&format!("{body}respawn_period=60\n")), @"
    type: foreground-supervised
    exec-start: /bin/web
    restart: always
    restart-delay: 0
    restart-max-delay: 0
    restart-factor: 1
    restart-limit: 11 in 1min
    ---
    + 4:1 without `respawn_max` OpenRC restarts the service at most 10 times in
        that time
    ");
    insta::assert_snapshot!(script(&format!("{body}respawn_max=0\n")), @"
    type: foreground-supervised
    exec-start: /bin/web
    restart: always
    restart-delay: 0
    restart-max-delay: 0
    restart-factor: 1
    ---
    ");
}

#[test]
fn conf_d_variables_come_from_an_env_file() {
    let body = r#"
: ${WEB_USER:=www}
pidfile=/run/web.pid
command=/usr/sbin/web
command_args="-p ${WEB_PORT:-80} $WEB_OPTIONS --home=$WEB_HOME"
command_user=$WEB_USER
"#;
    insta::assert_snapshot!(script(body), @"
    type: background-pidfile
    pidfile: /run/web.pid
    exec-start: /usr/sbin/web -p 80 $WEB_OPTIONS --home=${WEB_HOME}
    restart: never
    user: www
    env-file: -/etc/conf.d/web
    ---
    - 3:1 `WEB_USER` is converted with the script's default: conf.d is not read
    - 6:1 `WEB_OPTIONS` comes from /etc/conf.d/web, which is read without a shell
    - 6:1 `WEB_HOME` comes from /etc/conf.d/web, which is read without a shell
    - 6:1 `WEB_PORT` is converted with the script's default: conf.d is not read
    ");
}

#[test]
fn unpredictable_script_is_called() {
    let daemon = "command=/bin/web\npidfile=/run/web.pid\n";
    for (body, line, why) in [
        ("start_pre() {\n\tcheckpath -d /run/web\n}\n", 4, "`start_pre` is a function"),
        ("start () { :; }\n", 4, "`start` is a function"),
        ("stop()\n{\n\ttrue\n}\n", 4, "`stop` is a function"),
        ("if [ -e /x ]; then\n\tcommand=/bin/y\nfi\n", 4, "a line outside functions does more"),
        (". /lib/web\n", 4, "a line outside functions does more"),
        ("command_args=$(cat /x)\n", 4, "the value of `command_args` cannot be determined"),
        ("command_args=\"${A#x}\"\n", 4, "the value of `command_args` cannot be determined"),
        ("command_args='a; b'\n", 4, "the value of `command_args` cannot be determined"),
        ("command=$WEB\n", 4, "`command` has a variable that is set elsewhere"),
        ("command_background=$X\n", 4, "the value of `command_background` cannot be determined"),
        ("command_background=maybe\n", 4, "the value of `command_background` cannot be determined"),
        ("supervisor=s6\n", 4, "its supervisor is `s6`"),
        ("pidfile=\n", 4, "without `pidfile` and `supervisor` its main process"),
        ("retry=often\n", 4, "the value of `retry` cannot be determined"),
        ("umask=9\n", 4, "the value of `umask` cannot be determined"),
        ("export A=$B\n", 4, "the value of `A` cannot be determined"),
    ] {
        let line = if body.starts_with("pidfile") { 2 } else { line };
        let output = script(&format!("{daemon}{body}"));
        let called = "exec-start: /etc/init.d/web --nodeps start\n\
                      exec-stop: /etc/init.d/web --nodeps stop\n";
        assert!(output.contains(called), "{body}\n{output}");
        let output = output.replace("\n    ", " ");
        assert!(output.contains(&format!("- {line}:1 {why}")), "{body}\n{output}");
        assert!(output.contains("which only OpenRC can run"), "{body}\n{output}");
    }
}

#[test]
fn supervised_daemon_without_delay_reaches_its_limit() {
    let body = "supervisor=supervise-daemon\ncommand=/bin/web\nrespawn_period=60\n";
    let output = script(body);
    assert!(output.contains("restart-delay: 0\n"), "{output}");
    assert!(output.contains("restart-max-delay: 0\nrestart-factor: 1\n"), "{output}");
}

#[test]
fn starter_variables_are_not_passed_to_the_daemon() {
    let daemon = "command=/bin/web\npidfile=/run/web.pid\n";
    let body = "export SSD_NICELEVEL=\"-10\" SSD_OOM_SCORE_ADJ=\"-900\" SSD_IONICELEVEL=2:2 A=b\n\
                SSD_STARTWAIT=100\nrespawn_delay_step=1\nrespawn_delay_cap=9\nopts=reload\n";
    insta::assert_snapshot!(script(&format!("{daemon}{body}")), @"
    type: background-pidfile
    pidfile: /run/web.pid
    exec-start: /bin/web
    restart: never
    env: A=b
    nice: -10
    oom-score-adjust: -900
    ---
    - 4:1 the setting `SSD_IONICELEVEL` is not converted
    - 5:1 the setting `SSD_STARTWAIT` is not converted
    - 6:1 the setting `respawn_delay_step` is not converted
    - 7:1 the setting `respawn_delay_cap` is not converted
    - 8:1 the setting `opts` is not converted
    ");
    let output = script(&format!("{daemon}SSD_NICELEVEL=5\nexport SSD_OOM_SCORE_ADJ\n"));
    insta::assert_snapshot!(output, @"
    type: background-pidfile
    pidfile: /run/web.pid
    exec-start: /bin/web
    restart: never
    ---
    - 1:1 `SSD_OOM_SCORE_ADJ` is set outside the script: it is not converted
    - 4:1 `SSD_NICELEVEL` is not exported: OpenRC ignores it, and it is not
        converted
    ");
    let output = script(&format!("{daemon}export SSD_NICELEVEL=low\n"));
    assert!(output.contains("- 4:1 the value of `SSD_NICELEVEL` cannot be determined"), "{output}");
}

#[test]
fn requirements_of_a_virtual_unit_are_reported() {
    let output = script("required_files=/etc/web.conf\nrequired_dirs=/srv\n");
    assert!(output.contains("- 2:1 `required_files` is not checked"), "{output}");
    assert!(output.contains("- 3:1 `required_dirs` is not checked"), "{output}");
}

#[test]
fn plain_retry_seconds_use_stopsig() {
    let body = "command=/bin/web\npidfile=/run/web.pid\nstopsig=QUIT\nretry=20\n";
    let output = script(body);
    assert!(output.contains("stop-timeout: 20s\nstop-signal: SIGQUIT\n"), "{output}");
    let output = script(&format!("{body}supervisor=supervise-daemon\n"));
    assert!(output.contains("stop-timeout: 20s\n") && !output.contains("stop-signal"), "{output}");
}

/// A called script runs as root and unchanged, whatever was read from it.
#[test]
fn called_script_keeps_no_daemon_settings() {
    let output = script("command=/bin/web\npidfile=/run/web.pid\ncommand_user=www\nretry=often\n");
    insta::assert_snapshot!(output, @"
    type: background-scripted
    exec-start: /etc/init.d/web --nodeps start
    exec-stop: /etc/init.d/web --nodeps stop
    start-timeout: none
    stop-timeout: 5min
    restart: never
    ---
    + 1:1 the script has no time limit to start, as before, and 5 minutes to stop
    - 5:1 the value of `retry` cannot be determined from the script, which only
        OpenRC can run: the unit calls /etc/init.d/web
    ");
    // OpenRC waits for a reload without a limit, too.
    let output = script("start() {\n\ttrue\n}\nreload() {\n\ttrue\n}\n");
    let reload = "exec-reload: /etc/init.d/web --nodeps reload\n";
    assert!(output.contains(reload) && output.contains("reload-timeout: none\n"), "{output}");
}

#[test]
fn unsupported_openrc_settings_are_reported() {
    let body = "command=/bin/web\npidfile=/run/web.pid\nextra_started_commands=reload\n\
                rc_ulimit=-n\nno_new_privs=yes\nhelper=x\nreload() {\n\tif true; then\n\
                \t\t{ kill; }\n\tfi\n}\nchroot=/srv\n";
    insta::assert_snapshot!(script(body), @"
    type: background-pidfile
    pidfile: /run/web.pid
    exec-start: /bin/web
    restart: never
    ---
    - 4:1 the setting `extra_started_commands` is not converted
    - 5:1 the setting `rc_ulimit` is not converted
    - 6:1 the setting `no_new_privs` is not converted
    - 8:1 the function `reload` is not converted: fleet-init cannot call it
    - 13:1 the setting `chroot` is not converted
    ");
}

#[test]
fn script_without_a_command_becomes_virtual() {
    insta::assert_snapshot!(script("depend() {\n\tprovide http\n}\n"), @"
    type: virtual
    provides: web, http
    ---
    + 1:1 there is no `command`, so the unit is virtual
    ");
}

#[test]
fn files_that_are_no_openrc_scripts_are_left_out() {
    let files =
        [("a", "#!/bin/sh\n"), ("b c", "#!/sbin/openrc-run\n"), ("d", "#!/sbin/runscript\n")];
    insta::assert_snapshot!(output(InitSystem::Openrc, &files), @r"
    # from d
    unit: d
    type: virtual
    provides: d
    ---
    - a:1:1 the unit is left out: the first line does not name openrc-run, so it is not
        a service script of OpenRC
    - b c:1:1 the unit is left out: `b c` is not a valid unit name: ` ` is not allowed;
        use ASCII letters, digits and _ - . @ : \
    + d:1:1 there is no `command`, so the unit is virtual
    ");
}

/// An assertion cannot contain a variable, so it would never hold.
#[test]
fn required_path_with_a_variable_is_reported() {
    let body = "command=/bin/web\npidfile=/run/web.pid\nrequired_dirs=\"/srv /var/lib/${SUB}\"\n\
                required_files=\"$WEB_CONF\"\n";
    insta::assert_snapshot!(script(body), @"
    type: background-pidfile
    pidfile: /run/web.pid
    assert: path-is-directory /srv
    exec-start: /bin/web
    restart: never
    ---
    - 4:1 `required_dirs` has `/var/lib/${SUB}`, which is not checked: only a shell
        can evaluate it
    - 5:1 `required_files` has `${WEB_CONF}`, which is not checked: only a shell
        can evaluate it
    ");
}

#[test]
fn called_script_reports_only_the_call() {
    let body = "command=/bin/web\ncommand_args=\"$WEB_OPTIONS\"\ncommand_background=yes\n\
                pidfile=/run/web.pid\nSSD_NICELEVEL=5\nretry=\"TERM/x\"\n";
    let bare = "\n\n\ncommand=/bin/web\npidfile=/run/web.pid\nretry=\"TERM/x\"\n";
    assert_eq!(script(body), script(bare));
}

#[test]
fn inexpressible_values_are_reported_at_their_variable() {
    let body = "supervisor=supervise-daemon\ncommand=/bin/web\numask=7777777\ndirectory=relative\n\
                command_user=\"a b\"\nrespawn_delay=99999999999999\nretry=99999999999999\n\
                output_log=out\nerror_log=err\nexport A=\"b\u{85}\"\nrequired_dirs=srv\n\
                required_files=conf\n";
    insta::assert_snapshot!(script(body).replace('\u{85}', "?"), @r#"
    type: foreground-supervised
    exec-start: /bin/web
    restart: always
    restart-factor: 1
    restart-limit: 10
    ---
    + 1:1 the restart limit of supervise-daemon is unknown: here it is 10 times in
        a row
    - 4:1 `umask: 7777777` cannot be expressed: `7777777` is not a valid value for
        this key
    - 5:1 `directory: relative` cannot be expressed: `relative` is not a valid
        value for this key
    - 6:1 `user: a b` cannot be expressed: `a b` is not a valid value for this key
    - 7:1 `restart-delay: 3168808y 9month 1w 4d 11h 16min 39s` cannot be expressed:
        `3168808y 9month 1w 4d 11h 16min 39s` is not a valid duration here
    - 8:1 `stop-timeout: 3168808y 9month 1w 4d 11h 16min 39s` cannot be expressed:
        `3168808y 9month 1w 4d 11h 16min 39s` is not a valid duration here
    - 9:1 `output: append:out` cannot be expressed: `append:out` is not a valid
        value for this key
    - 10:1 `error-output: append:err` cannot be expressed: `append:err` is not a
        valid value for this key
    - 11:1 `env: A="b?"` cannot be expressed: it contains a control character
    - 12:1 `assert: path-is-directory srv` cannot be expressed: `path-is-directory
        srv` is not a valid value for this key
    - 13:1 `assert: path-exists conf` cannot be expressed: `path-exists conf` is
        not a valid value for this key
    "#);
}
