//! Conversion of init scripts with an LSB header.

use fleet_core::graph::convert::InitSystem;

use super::output;

fn script(header: &str) -> String {
    format!("#!/bin/sh\n### BEGIN INIT INFO\n{header}### END INIT INFO\n# X-More: not read\n")
}

/// Scripts with every header field that a stanza can express.
fn whole_headers() -> [(&'static str, String); 4] {
    let web = script(
        "# Provides:          web http\n# Required-Start:    $network $syslog db\n\
         # Required-Stop:     $network db\n# Should-Start:      cache\n\
         # X-Start-Before:    proxy\n# Default-Start:     2 3 4 5\n# Default-Stop:      0 1 6\n\
         # Short-Description: A web server\n# Description:       A web\n#  server\n",
    );
    let db = script("# Provides: db $network\n# Description: Data\n#  base\n");
    let (more, proxy) = (script("# Provides: cache\n"), script("# Provides: proxy\n"));
    let (web, db) = (("/etc/rc.d/init.d/web", web), ("/etc/rc.d/init.d/db", db));
    [web, db, ("cache.sh", more), ("etc/init.d/proxy", proxy)]
}

#[test]
fn lsb_header_becomes_edges() {
    let files = whole_headers();
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    // Common fields.
    let output =
        output(InitSystem::Sysv, &files).replace("start-timeout: none\nstop-timeout: 5min\n", "");
    insta::assert_snapshot!(output, @"
    # from cache.sh
    unit: cache.sh
    type: background-scripted
    provides: cache
    exec-start: /etc/init.d/cache.sh start
    exec-stop: /etc/init.d/cache.sh stop
    restart: never

    # from /etc/rc.d/init.d/db
    unit: db
    type: background-scripted
    description: Data base
    provides: db, facility-network
    exec-start: /etc/rc.d/init.d/db start
    exec-stop: /etc/rc.d/init.d/db stop
    restart: never

    # for $syslog
    unit: facility-syslog
    type: virtual
    description: Facility $syslog of this machine
    provides: facility-syslog

    # from etc/init.d/proxy
    unit: proxy
    type: background-scripted
    provides: proxy
    after: web
    exec-start: /etc/init.d/proxy start
    exec-stop: /etc/init.d/proxy stop
    restart: never

    # from /etc/rc.d/init.d/web
    unit: web
    type: background-scripted
    description: A web server
    provides: web, http
    depends-ms: db, facility-network, facility-syslog
    waits-for: cache
    exec-start: /etc/rc.d/init.d/web start
    exec-stop: /etc/rc.d/init.d/web stop
    restart: never
    ---
    + /etc/rc.d/init.d/db:1:1 the script has no time limit to start, as before, and 5
        minutes to stop
    + /etc/rc.d/init.d/db:1:1 it is unknown whether the script can reload or report its
        state
    + /etc/rc.d/init.d/web:1:1 the script has no time limit to start, as before, and 5
        minutes to stop
    + /etc/rc.d/init.d/web:1:1 it is unknown whether the script can reload or report
        its state
    - /etc/rc.d/init.d/web:4:1 no file provides $syslog: the new unit `facility-syslog`
        is always active
    - /etc/rc.d/init.d/web:8:1 the runlevels 2 3 4 5 of Default-Start are not converted
    + cache.sh:1:1 the script has no time limit to start, as before, and 5 minutes to
        stop
    + cache.sh:1:1 it is unknown whether the script can reload or report its state
    + etc/init.d/proxy:1:1 the script has no time limit to start, as before, and 5
        minutes to stop
    + etc/init.d/proxy:1:1 it is unknown whether the script can reload or report its
        state
    ");
}

#[test]
fn indented_known_fields_are_separate_fields() {
    let web = script(
        "#  Provides: web\n#  Required-Start: db\n#\tDescription: A web\n#  server: fast\n\
         #\tand small\n#  Should-Start: cache\n#\tmore\n# \n",
    );
    let more = [("db", script("# Provides: db\n")), ("cache", script("# Provides: cache\n"))];
    let files = [("web", web.as_str()), (more[0].0, &more[0].1), (more[1].0, &more[1].1)];
    let output = output(InitSystem::Sysv, &files);
    for line in [
        "description: A web server: fast and small",
        "provides: web",
        "depends-ms: db",
        "waits-for: cache",
        "- web:9:1 `more` belongs to no field: only Description may have several lines",
    ] {
        assert!(output.lines().any(|it| it == line), "{line}\n{output}");
    }
    assert_eq!(output.matches("\n- ").count(), 1, "{output}");
}

#[test]
fn inexpressible_header_fields_are_reported() {
    let web = script(
        "# Provides: web ~\n# Required-Start: $all db\n# Should-Start: cache\n\
         # Required-Stop: web $local_fs\n# X-Stop-After: late\n# X-Interactive: true\n\
         # Default-Start:\n# X-Odd: 1\n",
    );
    let files = [("web", web.as_str()), ("old", "#!/bin/sh\n"), ("README", "Read me\n")];
    insta::assert_snapshot!(output(InitSystem::Sysv, &files), @r"
    # from old
    unit: old
    type: background-scripted
    provides: old
    exec-start: /etc/init.d/old start
    exec-stop: /etc/init.d/old stop
    start-timeout: none
    stop-timeout: 5min
    restart: never

    # from web
    unit: web
    type: background-scripted
    provides: web
    exec-start: /etc/init.d/web start
    exec-stop: /etc/init.d/web stop
    start-timeout: none
    stop-timeout: 5min
    restart: never
    ---
    - README:1:1 the unit is left out: the first line names no shell, so it is not an
        init script
    - old:1:1 there is no LSB header, so the dependencies of the script are unknown
    + old:1:1 the script has no time limit to start, as before, and 5 minutes to stop
    + old:1:1 it is unknown whether the script can reload or report its state
    + web:1:1 the script has no time limit to start, as before, and 5 minutes to stop
    + web:1:1 it is unknown whether the script can reload or report its state
    - web:3:1 `~` is not a valid target name: `~` is not allowed; use ASCII letters,
        digits and _ - . @ : \
    - web:4:1 $all is not converted: the names of all other units are unknown
    - web:4:1 no file provides `db`, so the unit does not wait for it
    - web:5:1 no file provides `cache`, so the unit does not wait for it
    - web:6:1 the stop order relative to `web` is not converted
    - web:6:1 the stop order relative to `facility-local_fs` is not converted
    - web:7:1 the stop order relative to `late` is not converted
    - web:8:1 the script asks for input, which is not supported
    - web:10:1 unknown header field `x-odd`: it is not converted
    ");
}

#[test]
fn duplicate_providers_and_cycles_are_resolved() {
    let web = script("# Provides: web mail\n# Required-Start: db\n");
    let db = script("# Provides: db mail\n# Should-Start: web db\n");
    let files = [("web", web.as_str()), ("db", &db), ("x/db", &db)];
    insta::assert_snapshot!(output(InitSystem::Sysv, &files), @"
    # from db
    unit: db
    type: background-scripted
    provides: db, mail
    pulls: web
    exec-start: /etc/init.d/db start
    exec-stop: /etc/init.d/db stop
    start-timeout: none
    stop-timeout: 5min
    restart: never

    # from web
    unit: web
    type: background-scripted
    provides: web
    depends-ms: db
    exec-start: /etc/init.d/web start
    exec-stop: /etc/init.d/web stop
    start-timeout: none
    stop-timeout: 5min
    restart: never
    ---
    - db:1:1 units wait for one another: the order of db after web is dropped
    + db:1:1 the script has no time limit to start, as before, and 5 minutes to stop
    + db:1:1 it is unknown whether the script can reload or report its state
    + db:4:1 db depends on `db`, which it provides itself: this is dropped
    - web:1:1 web and db both provide `mail`: only db keeps it
    + web:1:1 the script has no time limit to start, as before, and 5 minutes to stop
    + web:1:1 it is unknown whether the script can reload or report its state
    - x/db:1:1 the unit is left out: db has a unit of this name
    + x/db:1:1 the script has no time limit to start, as before, and 5 minutes to stop
    + x/db:1:1 it is unknown whether the script can reload or report its state
    ");
}

#[test]
fn header_line_without_a_number_sign_is_reported() {
    let text = script("# Provides: web\n\nRequired-Start: z\n# Short-Description: A web\n");
    let output = output(InitSystem::Sysv, &[("web", &text)]);
    assert!(output.contains("- web:5:1 `Required-Start: z` belongs to no field"), "{output}");
    assert!(
        output.contains("provides: web\n") && output.contains("description: A web\n"),
        "{output}"
    );
}

#[test]
fn header_without_an_end_mark_ends_at_its_comments() {
    let text = "#!/bin/sh\n### BEGIN INIT INFO\n# Provides: www\n# Required-Start: z\n\n\
                # Do it: now\nexit 0\n";
    let output = output(InitSystem::Sysv, &[("web", text)]);
    assert!(output.contains("- web:1:1 the LSB header has no end"), "{output}");
    assert!(
        output.contains("provides: www\n") && output.contains("- web:4:1 no file provides `z`"),
        "{output}"
    );
    assert!(!output.contains("do it") && !output.contains("exit 0"), "{output}");
}

#[test]
fn facility_target_keeps_the_full_name() {
    let text = script("# Provides: web\n# Required-Start: $facility-q\n");
    let output = output(InitSystem::Sysv, &[("web", &text)]).replace("\n    ", " ");
    let message = "no file provides $facility-q: the new unit `facility-facility-q`";
    assert!(output.contains(message), "{output}");
}
