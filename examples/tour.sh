#!/usr/bin/env bash
#
# A tour of fleet on a cluster of three machines, all of them on this one: units and the machines
# that they ask for, templates, the states of units, and the API. It ends with an error where
# something is not as the documents say, and says what the service manager of these machines cannot
# run. It needs bash, and `fleetd` and `fleetctl` on the PATH or named by FLEETD and FLEETCTL; it
# leaves nothing behind.

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
        printf '\nWhat fleetd said:\n' >&2
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

# Says what holds, or ends the tour: is WHAT EXPECTED FOUND
is() {
    [[ $3 == "$2" ]] || fail "$1: expected \"$2\", and found \"$3\""
    printf '   ok: %s\n' "$1"
}

# The same for a text that has to be in another one: has WHAT PART TEXT
has() {
    [[ $3 == *"$2"* ]] || fail "$1: expected \"$2\" in \"$3\""
    printf '   ok: %s\n' "$1"
}

# Waits until a command prints this: until WHAT EXPECTED COMMAND…
until_is() {
    local what=$1 expected=$2 found='' deadline=$((SECONDS + 30))
    shift 2
    while ((SECONDS < deadline)); do
        found=$("$@" 2>&1 || true)
        [[ $found == "$expected" ]] && break
        sleep 0.1
    done
    is "$what" "$expected" "$found"
}

fleetctl() { "${FLEETCTL:-fleetctl}" --endpoint "unix://$home/fleet.sock" "$@"; }

# Runs a command of fleetctl, and shows it.
run() {
    printf '$ fleetctl %s\n' "$*"
    (cd "$home" && fleetctl "$@") || fail "fleetctl $* ended with status $?"
}

# A command that has to be refused; what it says is in `said`.
refused() {
    printf '$ fleetctl %s\n' "$*"
    if said=$(cd "$home" && fleetctl "$@" 2>&1); then
        fail "fleetctl $* was not refused"
    fi
}

# Runs a command of fleetctl for a unit of a type that not every service manager has. Where this one
# has it not, it says so, and the result is false.
goes_here() {
    printf '$ fleetctl %s\n' "$*"
    if said=$(cd "$home" && fleetctl "$@" 2>&1); then
        printf '%s\n' "$said"
        return 0
    fi
    has "not here: ${said%%$'\n'*}" 'not loaded on' "$said"
    return 1
}

# Writes a file as it is: file NAME, with the text on standard input.
file() { cat >"$home/$1"; }

# Writes the file of a service that runs until it is stopped: unit NAME [LINE OF X-FLEET]…
unit() {
    local name=$1
    shift
    printf '[Service]\nExecStart=/bin/sleep infinity\n' >"$home/$name"
    if (($#)); then
        { printf '[X-Fleet]\n' && printf '%s\n' "$@"; } >>"$home/$name"
    fi
}

# The machines that a unit is on, in order.
where() {
    fleetctl list-units --full --no-legend --fields unit,machine |
        awk -v unit="$1" '$1 == unit { sub("/.*", "", $2); print $2 }' | sort | xargs
}

# DSTATE and STATE of a unit; nothing where it is not known.
states() {
    fleetctl list-unit-files --no-legend --fields unit,dstate,state |
        awk -v unit="$1" '$1 == unit { print $2, $3 }'
}

# ACTIVE and SUB of a unit.
systemd_states() {
    fleetctl list-units --no-legend --fields unit,load,active,sub |
        awk -v unit="$1" '$1 == unit { print $2, $3, $4 }'
}

# Asks the API: api METHOD PATH [BODY]. The answer is in `status`, `head` and `body`.
api() {
    local method=$1 path=$2 sent=${3-} answer
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n' "$method" "$path" >&3
    printf 'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
        "${#sent}" "$sent" >&3
    answer=$(tr -d '\r' <&3)
    exec 3>&-
    status=${answer#HTTP/1.1 }
    status=${status%% *}
    head=${answer%%$'\n\n'*}
    body=
    if [[ $answer == *$'\n\n'* ]]; then body=${answer#*$'\n\n'}; fi
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
until_is 'three machines are there' 3 count_machines
port=$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$home/log" | head -n 1)
read -r one two three < <(fleetctl list-machines -o name | xargs)

chapter 'Metadata of machines, by the API'
set_metadata() { printf '{"op":"add","path":"/%s/metadata/%s","value":"%s"}' "$1" "$2" "$3"; }
api PATCH /fleet/v1/machines "[$(set_metadata "$one" region us-east-1),$(
    set_metadata "$one" diskType SSD),$(set_metadata "$two" region us-east-1),$(
    set_metadata "$three" region us-west-1),$(set_metadata "$three" diskType SSD)]"
is 'it is set without a body' '204 ' "$status $body"
run list-machines
listed=$(fleetctl list-machines --full --fields machine,metadata | grep "^$one")
has 'machines are listed with it' diskType=SSD "$listed"
has 'sorted by key' region=us-east-1,zone= "$listed"
api PATCH /fleet/v1/machines "[{\"op\":\"move\",\"path\":\"/$one/metadata/a\",\"value\":\"b\"}]"
is 'what is no operation is refused' 400 "$status"
api PATCH /fleet/v1/machines "[{\"op\":\"add\",\"path\":\"/$one/metadata/a\"}]"
is 'so is one without a value' 400 "$status"
api PATCH /fleet/v1/machines '[{"op":"add","path":"/metadata/a","value":"b"}]'
is 'and one with a path that leads nowhere' 400 "$status"
absent=0123456789abcdef0123456789abcdef
api PATCH /fleet/v1/machines "[$(set_metadata "$two" diskType HDD),{\"op\":\"replace\",$(
    )\"path\":\"/$two/metadata/diskType\",\"value\":\"tape\"},$(
    set_metadata "$absent" region nowhere)]"
is 'operations are done in order, also for a machine that is not there' '204 ' "$status $body"
has 'the last one counts' diskType=tape \
    "$(fleetctl list-machines --full --fields machine,metadata | grep "^$two")"
api PATCH /fleet/v1/machines "[{\"op\":\"remove\",\"path\":\"/$two/metadata/diskType\"}]"
is 'metadata is taken away again' '204 ' "$status $body"
listed=$(fleetctl list-machines --full --fields machine,metadata | grep "^$two")
[[ $listed != *diskType* ]] || fail "it is still there: $listed"

chapter 'A global unit runs on every machine that has what it asks for'
unit app.service Global=true 'MachineMetadata="region=us-east-1" "diskType=SSD"' \
    MachineMetadata=region=us-west-1
run start app.service
run list-units
is 'app.service is on the first and the third' "$(printf '%s\n' "$one" "$three" | sort | xargs)" \
    "$(where app.service)"
is 'and runs there' 'loaded active running loaded active running' \
    "$(systemd_states app.service | xargs)"
clean

chapter 'A global unit and conflicts'
unit lonely.service "MachineID=$two"
unit everywhere.service Global=true 'Conflicts=lonely*'
run start lonely.service
run start everywhere.service
is 'it runs where no unit is that it conflicts with' \
    "$(printf '%s\n' "$one" "$three" | sort | xargs)" "$(where everywhere.service)"
unit lonely-too.service "MachineID=$three"
refused start lonely-too.service
has 'such a unit cannot come to where it is' everywhere.service "$said"
clean

chapter 'A unit on a machine with specific metadata'
unit both.service 'MachineMetadata="region=us-east-1" "diskType=SSD"'
unit either.service MachineMetadata=region=us-west-1 MachineMetadata=region=eu-central-1
unit mixed.service 'MachineMetadata="region=us-east-1" "diskType=SSD"' \
    MachineMetadata=region=us-west-1
unit lines.service 'MachineMetadata="region=us-east-1" "job=foo"' \
    'MachineMetadata="region=us-west-1" "job=bar"'
run start both.service either.service mixed.service
is 'several keys on a line: all have to be there' "$one" "$(where both.service)"
is 'a key on several lines: one of its values has to be' "$three" "$(where either.service)"
has 'both together: diskType=SSD and one of the regions' "$(where mixed.service)" "$one $three"
refused start lines.service
has 'how pairs are grouped on lines makes no difference: nobody has a job' job "$said"
api PATCH /fleet/v1/machines "[$(set_metadata "$two" job bar)]"
until_is 'a machine that gets one runs the unit' "$two" where lines.service
clean

chapter 'A unit on a specific machine'
unit here.service "MachineID=$two"
unit short.service "MachineID=${two:0:8}"
run start here.service
is 'it is on the machine of that ID' "$two" "$(where here.service)"
refused start short.service
has 'the start of an ID is not enough' MachineID "$said"
clean

chapter 'A unit next to another unit'
unit target.service
unit follower.service MachineOf=target.service
refused start follower.service
has 'without the unit that it follows it has no machine' target.service "$said"
run start target.service
until_is 'with it they are on one machine' "$(where target.service)" where follower.service
left=$(where target.service)
run machine drain --wait "$left"
until_is 'where that moves, it goes along' "$(where target.service)" where follower.service
[[ $(where target.service) != "$left" ]] || fail 'target.service is still on the drained machine'
run machine uncordon "$left"
unit foo.service MachineOf=bar.service
unit bar.service MachineOf=foo.service
refused apply foo.service bar.service
has 'two units that follow each other are refused' 'in a circle' "$said"
clean

chapter 'Units away from each other'
unit monitor-a.service 'Conflicts=monitor*'
unit monitor-b.service 'Conflicts=monitor*'
unit monitor-c.service
unit monitor-d.service 'Conflicts=monitor*'
run start monitor-a.service monitor-b.service monitor-c.service
is 'each is on a machine of its own, also the one that says nothing of conflicts' 3 \
    "$(for name in a b c; do where monitor-$name.service; done | sort -u | wc -l | tr -d ' ')"
refused start monitor-d.service
has 'a fourth has no place, and the reason' Conflicts "$said"
clean

chapter 'The example of a whole unit file'
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
has 'nobody is in Chicago' location "$said"
api PATCH /fleet/v1/machines "[$(set_metadata "$one" location chicago),$(
    set_metadata "$three" location chicago)]"
until_is 'it starts as soon as somebody is' 'loaded active running' systemd_states monitor-a.service
run start monitor-b.service
is 'the other one is there, too, on another machine' \
    "$(printf '%s\n' "$one" "$three" | sort | xargs)" \
    "$({ where monitor-a.service; where monitor-b.service; } | sort | xargs)"
run list-unit-files --fields unit,desc
has 'and is described' 'Some Monitoring Service' "$(fleetctl list-unit-files --fields desc)"
clean

chapter 'Requirements that follow from the name'
unit foo.service 'MachineOf=%p-store.service'
unit bar.service 'MachineOf=%p-store.service'
unit foo-store.service
unit bar-store.service 'Conflicts=foo-store.service'
run start foo-store.service bar-store.service foo.service bar.service
is 'foo.service is beside foo-store.service' "$(where foo-store.service)" "$(where foo.service)"
is 'bar.service is beside bar-store.service' "$(where bar-store.service)" "$(where bar.service)"
api PATCH /fleet/v1/machines "[$(set_metadata "$two" job "red")]"
unit painter@.service MachineMetadata=job=%i 'Conflicts=%p@*.service'
run submit painter@.service
run start painter@red.service
is '%i is the instance, and %p what stands before it' "$two" "$(where painter@red.service)"
clean

chapter 'Options in their old spelling'
unit old-id.service "X-ConditionMachineID=$three"
unit old-of.service X-ConditionMachineOf=old-id.service
unit old-metadata.service X-ConditionMachineMetadata=region=us-west-1
unit old-conflicts.service 'X-Conflicts=old-*'
for name in id of metadata; do
    said=$(cd "$home" && fleetctl start old-$name.service 2>&1) || fail "old-$name: $said"
    printf '%s\n' "$said"
    has 'it works, and a warning tells the new one' Machine "$said"
    is 'as it always did' "$three" "$(where old-$name.service)"
done
run start old-conflicts.service
[[ $(where old-conflicts.service) != "$three" ]] || fail 'old-conflicts.service is beside others'
clean

chapter 'Sockets and timers'
file web.socket <<END
[Socket]
ListenStream=$home/web.sock
END
unit web.service MachineOf=%p.socket
if goes_here load web.socket; then
    run start web.socket
    is 'it listens' 'loaded active listening' "$(systemd_states web.socket)"
fi
run load web.service
is 'web.service is beside web.socket' "$(where web.socket)" "$(where web.service)"
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
if goes_here start tick.timer; then
    until_is 'it has started its service' tick fleetctl logs -n 1 tick.service
fi
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
is 'the sidekick is beside its service' "$(where my.service)" "$(where my_discovery.service)"
run start my.service
is 'only one of them is to run' 'launched loaded' \
    "$(fleetctl list-unit-files --no-legend --fields dstate | xargs)"
until_is 'the other one runs all the same, for it is enabled' 'loaded active running' \
    systemd_states my_discovery.service
until_is 'it says what it is' 'my_discovery.service unit file' \
    fleetctl logs -n 1 my_discovery.service
clean

chapter 'A unit that takes the place of another'
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
has 'two that replace each other are refused' 'in a circle' "$said"
clean

chapter 'Options that do not go together'
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
    if said=$(cd "$home" && fleetctl submit "$name" 2>&1); then fail "$name was not refused"; fi
    has "$name is none" "$name" "$said"
done

chapter 'Templates'
unit hello@.service
run submit hello@.service
run start hello@world.service hello@1.service
is 'instances are made from the template' 'launched launched' "$(states hello@world.service)"
refused start hello@.service
has 'the template itself cannot be started' template "$said"
clean

chapter 'The states of a unit'
unit walk.service
step() { # COMMAND DSTATE STATE
    run "$1" walk.service
    until_is "after $1" "${2:+$2 $3}" states walk.service
}
step submit inactive inactive
step load loaded loaded
is 'it is loaded, and not started' 'loaded inactive dead' "$(systemd_states walk.service)"
step start launched launched
is 'it runs' 'loaded active running' "$(systemd_states walk.service)"
refused load walk.service
has 'what is launched is not taken down by that' stop "$said"
step stop loaded loaded
step unload inactive inactive
is 'what is on no machine is not listed' '' "$(systemd_states walk.service)"
refused stop walk.service
has 'what is inactive cannot be stopped' inactive "$said"
step start launched launched
step destroy '' ''
step start launched launched
unit walk.service Conflicts=nobody.service
refused start walk.service
has 'its content stays, unless another is asked for' 'hash' "$said"
unit walk.service
step unload inactive inactive
step load loaded loaded
step destroy '' ''

chapter 'The machine with the fewest units gets the next'
unit even@.service
run submit even@.service
run start 'even@{1..6}.service'
is 'each of three has two of six' '2 2 2' "$(fleetctl list-units --full --no-legend \
    --fields machine | sort | uniq -c | awk '{ print $1 }' | xargs)"
clean

chapter 'The API: units'
at=/fleet/v1/units
options='[{"section":"Service","name":"ExecStart","value":"/bin/sleep 3000"}]'
api PUT $at/foo.service "{\"desiredState\":\"launched\",\"options\":$options}"
is 'a unit is created' '201 ' "$status $body"
until_is 'and runs' 'loaded active running' systemd_states foo.service
api PUT $at/bar.service '{"desiredState":"launched"}'
is 'without options it cannot be' 409 "$status"
api PUT $at/bar.service "{\"desiredState\":\"dancing\",\"options\":$options}"
is 'what is no state is refused' 400 "$status"
api PUT $at/bar.service "{\"name\":\"foo.service\",\"desiredState\":\"loaded\",\"options\":$options}"
is 'a name that differs from that in the URL is refused' 400 "$status"
has 'an error says its code and what is wrong' '{"error":{"code":400,"message":"' "$body"
api PUT $at/foo.service '{"desiredState":"inactive"}'
is 'the desired state of a unit is changed' '204 ' "$status $body"
until_is 'and the cluster follows' 'inactive inactive' states foo.service
api GET $at
is 'units are listed' 200 "$status"
has 'as JSON' 'application/json' "$head"
has 'with their names' '"name":"foo.service"' "$body"
api GET $at/foo.service
has 'one is shown with its options' '"section":"Service"' "$status $body"
api GET $at/none.service
is 'there is none of that name' 404 "$status"
api GET "$at?nextPageToken=!"
is 'a token that is none' 400 "$status"
has 'is named' 'invalid value of nextPageToken query parameter' "$body"
api DELETE $at/foo.service
is 'a unit is destroyed' '204 ' "$status $body"
api DELETE $at/foo.service
is 'but once' 404 "$status"

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
is 'and all pages together have all units' 121 "$units"
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
has 'the API describes itself, with no URL' '"rootUrl":"$ENDPOINT/"' "${body//: /:}"
clean

chapter 'The end'
printf 'all is as documented\n'
