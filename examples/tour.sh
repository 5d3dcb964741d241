#!/usr/bin/env bash
#
# A tour of fleet on a cluster of three machines, all simulated on this host: units and their
# requirements, templates, updates, jobs, the states of units, and the API. It fails if a result
# differs from the documentation, and reports unit types that the service manager does not support. It needs bash,
# and `fleetd` and `fleetctl` in the PATH or in FLEETD and FLEETCTL. It cleans up after itself.

set -euo pipefail

fleetd=${FLEETD:-fleetd}
home=$(mktemp -d "${TMPDIR:-/tmp}/fleet-tour.XXXXXX")
daemon=

end() {
    local status=$?
    trap - EXIT
    if [[ -n $daemon ]]; then
        kill -TERM "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    if ((status)) && [[ -s $home/log ]]; then
        printf '\nOutput of fleetd:\n' >&2
        cat "$home/log" >&2
    fi
    rm -rf "$home"
    exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM

chapter() { printf '\n== %s\n' "$1"; }

fail() {
    printf 'tour: %s\n' "$1" >&2
    exit 1
}

# Compares two texts, and ends the tour if they differ: is DESCRIPTION EXPECTED FOUND
is() {
    [[ $3 == "$2" ]] || fail "$1: expected \"$2\", found \"$3\""
    printf '   ok: %s\n' "$1"
}

# Checks that a text contains another one: has DESCRIPTION PART TEXT
has() {
    [[ $3 == *"$2"* ]] || fail "$1: expected \"$2\" in \"$3\""
    printf '   ok: %s\n' "$1"
}

# Waits until a command prints a text: until_is DESCRIPTION EXPECTED COMMAND…
until_is() {
    local description=$1 expected=$2 found='' deadline=$((SECONDS + 30))
    shift 2
    while ((SECONDS < deadline)); do
        found=$("$@" 2>&1 || true)
        [[ $found == "$expected" ]] && break
        sleep 0.1
    done
    is "$description" "$expected" "$found"
}

# Without "command", bash would run this function again.
fleetctl() { command "${FLEETCTL:-fleetctl}" --endpoint "unix://$home/fleet.sock" "$@"; }

# Runs and prints a fleetctl command.
run() {
    printf '$ fleetctl %s\n' "$*"
    (cd "$home" && fleetctl "$@") || fail "fleetctl $* ended with status $?"
}

# Runs a fleetctl command that must fail. Its output is in `output`.
refused() {
    printf '$ fleetctl %s\n' "$*"
    if output=$(cd "$home" && fleetctl "$@" 2>&1); then
        fail "fleetctl $* was not refused"
    fi
}

# Writes a file from standard input: file NAME
file() { cat >"$home/$1"; }

# Writes a service that runs until it is stopped: unit NAME [X-FLEET LINE]…
unit() {
    local name=$1
    shift
    printf '[Service]\nExecStart=/bin/sleep infinity\n' >"$home/$name"
    if (($#)); then
        { printf '[X-Fleet]\n' && printf '%s\n' "$@"; } >>"$home/$name"
    fi
}

# Prints the machines of a unit, in order.
where() {
    fleetctl list-units --full --no-legend --fields unit,machine |
        awk -v unit="$1" '$1 == unit { sub("/.*", "", $2); print $2 }' | sort | xargs
}

# Prints DSTATE and STATE of a unit; nothing if it is unknown.
states() {
    fleetctl list-unit-files --no-legend --fields unit,dstate,state |
        awk -v unit="$1" '$1 == unit { print $2, $3 }'
}

# Prints LOAD, ACTIVE and SUB of a unit.
systemd_states() {
    fleetctl list-units --no-legend --fields unit,load,active,sub |
        awk -v unit="$1" '$1 == unit { print $2, $3, $4 }'
}

# Sends an API request: api METHOD PATH [BODY]. The response is in `status`, `head` and `body`.
api() {
    local method=$1 path=$2 sent=${3-} response
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n' "$method" "$path" >&3
    printf 'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
        "${#sent}" "$sent" >&3
    response=$(tr -d '\r' <&3)
    exec 3>&-
    status=${response#HTTP/1.1 }
    status=${status%% *}
    head=${response%%$'\n\n'*}
    body=
    if [[ $response == *$'\n\n'* ]]; then body=${response#*$'\n\n'}; fi
    printf '> %s %s %s\n< %s %.100s\n' "$method" "$path" "$sent" "$status" "$body"
}

clean() {
    if [[ -n $(fleetctl list-unit-files -o name) ]]; then
        fleetctl destroy $(fleetctl list-unit-files -o name) >/dev/null
    fi
}

chapter 'A cluster of three machines'
"$fleetd" dev --machines 3 --data-dir "$home/data" \
    --listen "unix://$home/fleet.sock" --listen tcp://127.0.0.1:0 </dev/null >"$home/log" 2>&1 &
daemon=$!
count_machines() { fleetctl list-machines -o name | wc -l | tr -d ' '; }
until_is 'three machines are present' 3 count_machines
port=$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$home/log" | head -n 1)
read -r one two three < <(fleetctl list-machines -o name | xargs)

chapter 'Metadata of machines, through the API'
set_metadata() { printf '{"op":"add","path":"/%s/metadata/%s","value":"%s"}' "$1" "$2" "$3"; }
api PATCH /fleet/v1/machines "[$(set_metadata "$one" region us-east-1),$(
    set_metadata "$one" diskType SSD),$(set_metadata "$two" region us-east-1),$(
    set_metadata "$three" region us-west-1),$(set_metadata "$three" diskType SSD)]"
is 'setting metadata returns no body' '204 ' "$status $body"
run list-machines
listed=$(fleetctl list-machines --full --fields machine,metadata | grep "^$one")
has 'machines are listed with their metadata' diskType=SSD "$listed"
has 'sorted by key' region=us-east-1,zone= "$listed"
api PATCH /fleet/v1/machines "[{\"op\":\"move\",\"path\":\"/$one/metadata/a\",\"value\":\"b\"}]"
is 'an unknown operation is refused' 400 "$status"
api PATCH /fleet/v1/machines "[{\"op\":\"add\",\"path\":\"/$one/metadata/a\"}]"
is 'an operation without a value is refused' 400 "$status"
api PATCH /fleet/v1/machines '[{"op":"add","path":"/metadata/a","value":"b"}]'
is 'an operation with an invalid path is refused' 400 "$status"
absent=0123456789abcdef0123456789abcdef
api PATCH /fleet/v1/machines "[$(set_metadata "$two" diskType HDD),{\"op\":\"replace\",$(
    )\"path\":\"/$two/metadata/diskType\",\"value\":\"tape\"},$(
    set_metadata "$absent" region nowhere)]"
is 'operations apply in order, also to an absent machine' '204 ' "$status $body"
has 'the last value counts' diskType=tape \
    "$(fleetctl list-machines --full --fields machine,metadata | grep "^$two")"
api PATCH /fleet/v1/machines "[{\"op\":\"remove\",\"path\":\"/$two/metadata/diskType\"}]"
is 'metadata is removed' '204 ' "$status $body"
listed=$(fleetctl list-machines --full --fields machine,metadata | grep "^$two")
[[ $listed != *diskType* ]] || fail "the metadata was not removed: $listed"

chapter 'A global unit runs on every eligible machine'
unit app.service Global=true 'MachineMetadata="region=us-east-1" "diskType=SSD"' \
    MachineMetadata=region=us-west-1
run start app.service
run list-units
is 'app.service is on the first and the third machine' "$(printf '%s\n' "$one" "$three" | sort | xargs)" \
    "$(where app.service)"
is 'app.service runs there' 'loaded active running loaded active running' \
    "$(systemd_states app.service | xargs)"
clean

chapter 'A global unit and conflicts'
unit lonely.service "MachineID=$two"
unit everywhere.service Global=true 'Conflicts=lonely*'
run start lonely.service
run start everywhere.service
is 'it runs on the machines without a conflicting unit' \
    "$(printf '%s\n' "$one" "$three" | sort | xargs)" "$(where everywhere.service)"
unit lonely-too.service "MachineID=$three"
refused start lonely-too.service
has 'a conflicting unit is refused there' everywhere.service "$output"
clean

chapter 'A unit on a machine with specific metadata'
unit both.service 'MachineMetadata="region=us-east-1" "diskType=SSD"'
unit either.service MachineMetadata=region=us-west-1 MachineMetadata=region=eu-central-1
unit mixed.service 'MachineMetadata="region=us-east-1" "diskType=SSD"' \
    MachineMetadata=region=us-west-1
unit lines.service 'MachineMetadata="region=us-east-1" "job=foo"' \
    'MachineMetadata="region=us-west-1" "job=bar"'
run start both.service either.service mixed.service
is 'several keys on a line: all must match' "$one" "$(where both.service)"
is 'a key on several lines: one of its values must match' "$three" "$(where either.service)"
has 'both combined: diskType=SSD and one of the regions' "$(where mixed.service)" "$one $three"
refused start lines.service
has 'the grouping of pairs on lines does not matter: no machine has a job' job "$output"
api PATCH /fleet/v1/machines "[$(set_metadata "$two" job bar)]"
until_is 'the unit starts once a machine has one' "$two" where lines.service
clean

chapter 'A unit on a specific machine'
unit here.service "MachineID=$two"
unit short.service "MachineID=${two:0:4}"
run start here.service
is 'it is on the machine with that ID' "$two" "$(where here.service)"
refused start short.service
has 'the beginning of an ID is refused' MachineID "$output"
clean

chapter 'A unit next to another unit'
unit target.service
unit follower.service MachineOf=target.service
refused start follower.service
has 'without its peer it has no machine' target.service "$output"
run start target.service
until_is 'with its peer it is on the same machine' "$(where target.service)" where follower.service
left=$(where target.service)
run machine drain --wait "$left"
until_is 'it moves together with its peer' "$(where target.service)" where follower.service
[[ $(where target.service) != "$left" ]] || fail 'target.service is still on the drained machine'
run machine uncordon "$left"
unit foo.service MachineOf=bar.service
unit bar.service MachineOf=foo.service
refused apply foo.service bar.service
has 'a dependency cycle of MachineOf is refused' 'cycle' "$output"
clean

chapter 'Units away from each other'
unit monitor-a.service 'Conflicts=monitor*'
unit monitor-b.service 'Conflicts=monitor*'
unit monitor-c.service
unit monitor-d.service 'Conflicts=monitor*'
run start monitor-a.service monitor-b.service monitor-c.service
is 'each is on a machine of its own, including the one without Conflicts' 3 \
    "$(for name in a b c; do where monitor-$name.service; done | sort -u | wc -l | tr -d ' ')"
refused start monitor-d.service
has 'a fourth has no machine, with a reason' Conflicts "$output"
clean

chapter 'A complete unit file'
for name in monitor-a monitor-b; do
    file $name.service <<'END'
[Unit]
Description=Some Monitoring Service

[Service]
ExecStart=/bin/sleep infinity

[X-Fleet]
MachineMetadata=location=chicago
Conflicts=monitor*
END
done
refused start monitor-a.service
has 'no machine is in Chicago' location "$output"
api PATCH /fleet/v1/machines "[$(set_metadata "$one" location chicago),$(
    set_metadata "$three" location chicago)]"
until_is 'it starts as soon as there is one' 'loaded active running' systemd_states monitor-a.service
run start monitor-b.service
is 'the other unit is placed on another machine' \
    "$(printf '%s\n' "$one" "$three" | sort | xargs)" \
    "$({ where monitor-a.service; where monitor-b.service; } | sort | xargs)"
run list-unit-files --fields unit,desc
has 'its description is listed' 'Some Monitoring Service' "$(fleetctl list-unit-files --fields desc)"
clean

chapter 'Requirements derived from the name'
unit foo.service 'MachineOf=%p-store.service'
unit bar.service 'MachineOf=%p-store.service'
unit foo-store.service
unit bar-store.service 'Conflicts=foo-store.service'
run start foo-store.service bar-store.service foo.service bar.service
is 'foo.service is with foo-store.service' "$(where foo-store.service)" "$(where foo.service)"
is 'bar.service is with bar-store.service' "$(where bar-store.service)" "$(where bar.service)"
api PATCH /fleet/v1/machines "[$(set_metadata "$two" job "red")]"
unit painter@.service MachineMetadata=job=%i 'Conflicts=%p@*.service'
run submit painter@.service
run start painter@red.service
is '%i is the instance, and %p the prefix' "$two" "$(where painter@red.service)"
clean

chapter 'Deprecated option names'
unit old-id.service "X-ConditionMachineID=$three"
unit old-of.service X-ConditionMachineOf=old-id.service
unit old-metadata.service X-ConditionMachineMetadata=region=us-west-1
unit old-conflicts.service 'X-Conflicts=old-*'
for name in id of metadata; do
    output=$(cd "$home" && fleetctl start old-$name.service 2>&1) || fail "old-$name: $output"
    printf '%s\n' "$output"
    has 'it takes effect, and a warning names the current option' Machine "$output"
    is 'it is on the expected machine' "$three" "$(where old-$name.service)"
done
run start old-conflicts.service
[[ $(where old-conflicts.service) != "$three" ]] || fail 'old-conflicts.service is with the others'
clean

chapter 'Sockets and timers'
file web.socket <<END
[Socket]
ListenStream=$home/web.sock
END
unit web.service MachineOf=%p.socket
run load web.socket
run load web.service
is 'web.service is with web.socket' "$(where web.socket)" "$(where web.service)"
run start web.socket
is 'the socket listens' 'loaded active listening' "$(systemd_states web.socket)"
file tick.timer <<'END'
[Timer]
OnActiveSec=1

[X-Fleet]
MachineOf=tick.service
END
file tick.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/echo tick
END
run load tick.service
run start tick.timer
until_is 'the timer has started its service' tick fleetctl logs --raw -n 1 tick.service
clean

chapter 'A unit with an [Install] section'
file my.service <<'END'
[Service]
ExecStart=/bin/bash -c "while true; do echo my.service unit file; sleep 1; done"
END
file my_discovery.service <<'END'
[Unit]
BindsTo=my.service

[Service]
ExecStart=/bin/bash -c "while true; do echo my_discovery.service unit file; sleep 1; done"

[Install]
WantedBy=my.service

[X-Fleet]
MachineOf=my.service
END
run load my.service my_discovery.service
is 'the sidekick is with its service' "$(where my.service)" "$(where my_discovery.service)"
run start my.service
is 'only one of them is launched' 'launched loaded' \
    "$(fleetctl list-unit-files --no-legend --fields dstate | xargs)"
until_is 'the other one runs too, since it is enabled' 'loaded active running' \
    systemd_states my_discovery.service
until_is 'its output is logged' 'my_discovery.service unit file' \
    fleetctl logs --raw -n 1 my_discovery.service
clean

chapter 'A unit that replaces another'
unit old.service
unit new.service Replaces=old.service MachineMetadata=role=front
run start old.service
left=$(where old.service)
api PATCH /fleet/v1/machines "[$(set_metadata "$left" role front)]"
run start new.service
is 'the new one has the machine' "$left" "$(where new.service)"
moved() { if [[ $(where old.service) != "$left" && -n $(where old.service) ]]; then echo yes; fi; }
until_is 'the old one has moved to another' yes moved
unit x.service Replaces=y.service
unit y.service Replaces=x.service
refused apply x.service y.service
has 'a dependency cycle of Replaces is refused' 'cycle' "$output"
clean

chapter 'Mutually exclusive options'
for pair in 'Global=true Replaces=a.service' 'Conflicts=a.service Replaces=a.service' \
    'Global=true MachineOf=a.service' "Global=true MachineID=$one"; do
    unit wrong.service ${pair// /$'\n'}
    refused submit wrong.service
    printf '   ok: %s is refused\n' "$pair"
done

chapter 'Names'
for name in web.server 'we b.service' web@1.mount 'we!b.service'; do
    printf '[Service]\nExecStart=/bin/true\n' >"$home/$name"
    printf '$ fleetctl submit %s\n' "$name"
    if output=$(cd "$home" && fleetctl submit "$name" 2>&1); then fail "$name was not refused"; fi
    has "$name is refused" "$name" "$output"
done

chapter 'Templates'
unit hello@.service
run submit hello@.service
run start hello@world.service hello@1.service
is 'instances are made from the template' 'launched launched' "$(states hello@world.service)"
refused start hello@.service
has 'the template itself cannot be started' template "$output"
clean

chapter 'An update in batches'
unit web@.service
run submit web@.service
run start 'web@{1..4}'
printf '# the next version\n[Service]\nExecStart=/bin/sleep 1d\n' >"$home/web@.service"
has 'two instances at a time' 'completed: 4 of 4' \
    "$(run apply --at-once 2 --settle 0 web@.service)"
has 'its size is shown' 'At once: 2' "$(run rollout status web@.service)"
is 'both versions are kept' 2 "$(fleetctl revisions web@1.service | tail -n +2 | wc -l | tr -d ' ')"
printf '[Service]\nExecStart=/bin/false\n' >"$home/web@.service"
refused apply --settle 0 web@.service
has 'a failed update is rolled back' 'rolled back: web@1.service failed' "$output"
has 'the instances keep their version' 'sleep 1d' "$(fleetctl cat web@1.service)"
has 'and so does the template' 'sleep 1d' "$(fleetctl cat web@.service)"
run rollback --settle 0 --at-once 50% web@.service
has 'the former version is back' 'sleep infinity' "$(fleetctl cat web@4.service)"
clean

chapter 'A job and its exit code'
file job.service <<'END'
[Service]
ExecStart=/bin/sh -c 'echo "the job was here"; exit "$$(cat code)"'
END
printf 'WorkingDirectory=%s\n[X-Fleet]\nRunOnce=true\n' "$home" >>"$home/job.service"
echo 0 >"$home/code"
has 'its output is printed' 'the job was here' "$(run run --wait job.service)"
echo 3 >"$home/code"
status=0
(cd "$home" && fleetctl run --wait job.service) || status=$?
is 'it runs again on request, and its exit code is returned' 3 "$status"
has 'its result is kept' 'exited with status 3' "$(run job status job.service)"
clean

chapter 'A schedule'
file nightly.service <<'END'
[Service]
ExecStart=/bin/echo good night

[X-Fleet]
RunOnce=true
Schedule=*-*-* 02:00 Europe/Berlin
END
run start nightly.service
has 'its next elapse is shown' nightly.service "$(run schedule list)"
has 'it can run now' 'good night' "$(run schedule run-now --wait nightly.service)"
has 'the run is recorded' 'succeeded' "$(run schedule status nightly.service)"
unit never.service RunOnce=true 'Schedule=*-02-30'
refused start never.service
has 'an event that never elapses is refused' 'never.service:5:10: Schedule=*-02-30' "$output"
clean

chapter 'The states of a unit'
unit walk.service
step() { # COMMAND DSTATE STATE
    run "$1" walk.service
    until_is "after $1" "${2:+$2 $3}" states walk.service
}
step submit inactive inactive
step load loaded loaded
is 'it is loaded and not started' 'loaded inactive dead' "$(systemd_states walk.service)"
step start launched launched
is 'it runs' 'loaded active running' "$(systemd_states walk.service)"
refused load walk.service
has 'load does not stop a launched unit' stop "$output"
step stop loaded loaded
step unload inactive inactive
is 'an unplaced unit is not listed' '' "$(systemd_states walk.service)"
refused stop walk.service
has 'an inactive unit cannot be stopped' inactive "$output"
step start launched launched
step destroy '' ''
step start launched launched
unit walk.service Conflicts=nobody.service
output=$(cd "$home" && fleetctl start walk.service 2>&1) || fail "start walk.service: $output"
printf '$ fleetctl start walk.service\n%s\n' "$output"
has 'a different local file is not used without a request' '--replace' "$output"
is 'the content stays' '' "$(fleetctl cat walk.service | grep nobody || true)"
unit walk.service
step unload inactive inactive
step load loaded loaded
step destroy '' ''

chapter 'The machine with the fewest units gets the next one'
unit even@.service
run submit even@.service
run start 'even@{1..6}.service'
is 'each of three machines has two of six units' '2 2 2' "$(fleetctl list-units --full --no-legend \
    --fields machine | sort | uniq -c | awk '{ print $1 }' | xargs)"
clean

chapter 'The API: units'
at=/fleet/v1/units
options='[{"section":"Service","name":"ExecStart","value":"/bin/sleep 3000"}]'
api PUT $at/foo.service "{\"desiredState\":\"launched\",\"options\":$options}"
is 'a unit is created' '201 ' "$status $body"
until_is 'the unit runs' 'loaded active running' systemd_states foo.service
api PUT $at/bar.service '{"desiredState":"launched"}'
is 'a unit without options is refused' 409 "$status"
api PUT $at/bar.service "{\"desiredState\":\"dancing\",\"options\":$options}"
is 'an unknown state is refused' 400 "$status"
api PUT $at/bar.service "{\"name\":\"foo.service\",\"desiredState\":\"loaded\",\"options\":$options}"
is 'a name that differs from that in the URL is refused' 400 "$status"
has 'an error has a code and a message' '{"error":{"code":400,"message":"' "$body"
api PUT $at/foo.service '{"desiredState":"inactive"}'
is 'the desired state of a unit is changed' '204 ' "$status $body"
until_is 'the cluster applies it' 'inactive inactive' states foo.service
api GET $at
is 'units are listed' 200 "$status"
has 'as JSON' 'application/json' "$head"
has 'with their names' '"name":"foo.service"' "$body"
api GET $at/foo.service
has 'a unit is returned with its options' '"section":"Service"' "$status $body"
api GET $at/none.service
is 'an unknown name is not found' 404 "$status"
api GET "$at?nextPageToken=!"
is 'an invalid token is refused' 400 "$status"
has 'the error names it' 'invalid value of nextPageToken query parameter' "$body"
api DELETE $at/foo.service
is 'a unit is destroyed' '204 ' "$status $body"
api DELETE $at/foo.service
is 'a destroyed unit is not found' 404 "$status"

chapter 'The API: pages'
unit page@.service
printf '$ fleetctl submit page@.service, and 120 instances\n'
(cd "$home" && fleetctl submit page@.service 'page@{1..120}.service' >/dev/null)
pages=0 units=0 token=
while :; do
    api GET "$at${token:+?nextPageToken=$token}"
    pages=$((pages + 1)) units=$((units + $(grep -o '"name":"page@' <<<"$body" | wc -l)))
    [[ $body == *'"nextPageToken":"'* ]] || break
    token=${body#*'"nextPageToken":"'}
    token=${token%%'"'*}
done
is 'there is more than one page' 2 "$pages"
is 'all pages together have all units' 121 "$units"
clean

chapter 'The API: states and machines'
unit a.service "MachineID=$one"
unit b.service "MachineID=$two"
run start a.service b.service
api GET "/fleet/v1/state?machineID=$one"
has 'states of a machine' '"name":"a.service"' "$body"
[[ $body != *b.service* ]] || fail 'b.service is on another machine'
api GET '/fleet/v1/state?unitName=b.service'
has 'states of a unit' '"systemdActiveState":"active"' "$body"
[[ $body != *a.service* ]] || fail 'a.service is another unit'
api GET /fleet/v1/machines
has 'machines are listed with their metadata' '"region":"us-west-1"' "$body"
api GET /fleet/v1/discovery
has 'the API describes itself, without a URL' '"rootUrl":"$ENDPOINT/"' "${body//: /:}"
clean

chapter 'The end'
printf 'all results are as documented\n'
