#!/usr/bin/env bash
# The story of `make demo`: a daemon on a scratch directory, three nodes, two SIGKILLs, and nothing left in the end.
# Whatever it says it has checked; the first thing that isn't true ends it with status 1 and the logs.
# Needs bash, coreutils, grep and sed. usage: scripts/demo.sh BINARY
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
binary=$(realpath "${1:-bin/cadre-hostd}")
[ -x "$binary" ] || { echo "demo: $binary can't be run; 'make build' makes it" >&2; exit 1; }

# Sockets need short paths, and under a root guard each node has a user of its own that must get to its
# directory: so below /tmp, and searchable by all.
scratch=$(mktemp -d /tmp/cadre-demo.XXXXXX)
chmod 755 "$scratch"
unset "${!CADRE_HOSTD_@}" # what the user has set for a daemon of their own
export CADRE_HOSTD_STATE_DIR=$scratch/state
daemon='' guard='' step=0

if [ -t 1 ]; then
  bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' green='' red='' plain=''
fi

# --- telling ---------------------------------------------------------------------------------------------------

chapter() { printf '\n%s%d. %s%s\n\n' "$bold" $((++step)) "$1" "$plain"; }
told() { printf '   %s✓%s %s\n' "$green" "$plain" "$1"; }
# typed COMMAND: shows a command as one would type it.
typed() { printf '   %s$ %s%s\n' "$dim" "$1" "$plain"; }
# try COMMAND…: shows a cadre-hostd command, runs it, and returns its exit code; run COMMAND…: it must succeed.
try() {
  typed "cadre-hostd $*"
  "$binary" "$@" 2>&1 | sed 's/^/     /'
}
run() { try "$@" || fail "cadre-hostd $1 failed, with exit code $?"; }
fail() {
  printf '\n%sdemo: %s%s\n' "$red" "$1" "$plain" >&2
  for log in "$scratch/daemon.log" "$CADRE_HOSTD_STATE_DIR/run/guard.log"; do
    [ ! -s "$log" ] || { printf '%s:\n' "${log##*/}" && tail -n 8 "$log" | cut -c1-400; } >&2
  done
  exit 1
}
# claim WHAT CONDITION…: the command must succeed; then it is told.
claim() {
  local what=$1
  shift
  "$@" || fail "this should be true, and isn't: $what"
  told "$what"
}

# --- looking ---------------------------------------------------------------------------------------------------

# field NODE NAME: a number, word or text from the top of what `status NODE` says; port NODE: its one port.
field() { "$binary" status "$1" -o json | sed -nE "s/^  \"$2\": \"?([^\",]*)\"?,?\$/\\1/p"; }
port() { "$binary" status "$1" -o json | sed -nE '/^  "ports": \{/,/^  \}/s/^    "[a-z0-9_]+": ([0-9]+),?$/\1/p'; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# identity PID: the pid with its start time, which no later process shares; fails once the process is gone.
identity() {
  local stat fields
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  read -ra fields <<<"${stat##*) }" # from field 3, the state, on
  [[ ${fields[0]} != [ZX] ]] && echo "$1 ${fields[19]}"
}
# until_true SECONDS COMMAND…: tries every 10 ms, for so long.
until_true() {
  local deadline=$(($(now_ms) + $1 * 1000))
  shift
  until "$@"; do
    [ "$(now_ms)" -lt "$deadline" ] || return 1
    sleep 0.01
  done
}
# talk PORT REQUEST [LAST]: says something on a local port and prints the answer: until the line that holds LAST, the
# end, or two silent seconds.
talk() {
  local line
  { exec 9<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
  printf '%b' "$2" >&9
  while IFS= read -r -t 2 -u 9 line; do
    printf '%s\n' "${line%$'\r'}"
    [[ -z ${3:-} || $line != *"$3"* ]] || break
  done
  exec 9>&-
}
peer_id() { talk "$1" 'GET /status HTTP/1.0\r\n\r\n' | sed -nE 's/.*"peerId": ?"([^"]+)".*/\1/p'; }

# --- leaving -----------------------------------------------------------------------------------------------------

alive() { identity "$1" >/dev/null; }
gone() { ! alive "$1"; }
# ours PID: whether the process belongs to this demo; a pid may have become somebody else's.
ours() { tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" | grep -qxF "CADRE_HOSTD_STATE_DIR=$CADRE_HOSTD_STATE_DIR"; }
signal() { [ -z "$2" ] || ! ours "$2" || kill "-$1" "$2" 2>/dev/null || true; }
cleanup() {
  local status=$?
  trap '' INT TERM HUP
  [ -n "$guard" ] || guard=$(sed -nE 's/.*"pid":([0-9]+).*/\1/p' "$CADRE_HOSTD_STATE_DIR/run/guard.lock" 2>/dev/null || true)
  signal KILL "$daemon"
  signal TERM "$guard" # a guard that is told to end stops its nodes first, in order
  [ -z "$guard" ] || until_true 20 gone "$guard" || echo "demo: guard $guard is still stopping nodes" >&2
  rm -rf "$scratch"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- the story -----------------------------------------------------------------------------------------------------

start_daemon() {
  typed 'cadre-hostd run &'
  set -m # a process group of its own: Ctrl-C is for this script, which then cleans up
  "$binary" run --config "$scratch/config.toml" --log-format json >>"$scratch/daemon.log" 2>&1 &
  daemon=$!
  disown
  set +m
  until_true 10 "$binary" status >/dev/null 2>&1 || fail "the daemon did not answer within 10 seconds"
  guard=$(sed -nE 's/.*"pid":([0-9]+).*/\1/p' "$CADRE_HOSTD_STATE_DIR/run/guard.lock")
}

# Which of the examples can run here? The last node is the first program that is installed.
third=reference
for program in redis-server:redis nginx:nginx memcached:memcached; do
  if PATH=$PATH:/usr/sbin:/sbin command -v "${program%:*}" >/dev/null; then
    third=${program#*:}
    break
  fi
done
mkdir "$scratch/templates.d"
: >"$scratch/config.toml"
[ "$third" = reference ] || cp "examples/$third.toml" "$scratch/templates.d/"

printf '%scadre-hostd %s%s: one host, three loans, two kills\n' "$bold" "$("$binary" version | sed 's/^cadre-hostd //')" "$plain"
printf '%sEverything happens in %s: export CADRE_HOSTD_STATE_DIR=%s%s\n' "$dim" "$scratch" "$CADRE_HOSTD_STATE_DIR" "$plain"

chapter 'An empty machine gets a daemon. It decides; its guard, a process of its own, will be the parent of the nodes.'
start_daemon
claim "daemon $daemon answers, and has started guard $guard" alive "$guard"
guard_was=$(identity "$guard")

chapter 'Three nodes are lent. Each gets a directory and a port that stay its own for as long as the loan lasts.'
run donate --name ada --wait
run donate --name bob --wait
run donate --name cleo --template "$third" --wait
[ "$third" != reference ] || printf '   (neither redis, nginx nor memcached is installed, so cleo is a reference node too)\n'
printf '\n'
run status
printf '\n'
ada=$(field ada id) ada_pid=$(field ada pid) ada_port=$(port ada) ada_id=$(peer_id "$(port ada)")
claim "ada answers on port $ada_port and says who it is: $ada_id" test -n "$ada_id"
cleo_port=$(port cleo)
# A word with cleo in its own language.
case $third in
redis) greet() { talk "$cleo_port" 'SET greeting hello\r\n' OK && talk "$cleo_port" 'GET greeting\r\n' hello; } && word=hello ;;
nginx) greet() { talk "$cleo_port" 'GET / HTTP/1.0\r\n\r\n'; } && word='called cleo' ;;
memcached) greet() { talk "$cleo_port" 'version\r\n' VERSION; } && word=VERSION ;;
*) greet() { talk "$cleo_port" 'GET /health HTTP/1.0\r\n\r\n'; } && word=healthy ;;
esac
answers() { greet | grep -q "$word"; }
claim "cleo ($third) does its work on port $cleo_port" answers
cgroups=$(sed -nE 's/.*"cgroup":"([^"]+)".*/\1/p' "$CADRE_HOSTD_STATE_DIR"/run/spawns/*.json)

chapter 'ada is killed, with SIGKILL, as the kernel does it when memory runs out.'
respawned() { [ "$(field ada generation)" = 2 ] && [ "$(field ada ready)" = true ]; }
killed_at=$(now_ms)
typed "kill -9 $ada_pid"
kill -9 "$ada_pid"
until_true 10 respawned || fail "ada was killed and is not back after 10 seconds"
back_ms=$(($(date -d "$(field ada started_at)" +%s%N) / 1000000 - killed_at))
run status ada
printf '\n'
ada_now=$(field ada pid)
claim "a new ada was running $back_ms ms later: pid $ada_pid became $ada_now" test "$ada_now" -ne "$ada_pid"
claim 'it cost one of five attempts; ten quiet minutes give it back' test "$(field ada attempts)" = 1
claim "same port: $ada_port" test "$(port ada)" = "$ada_port"
claim "same identity: $ada_id" test "$(peer_id "$ada_port")" = "$ada_id"

chapter 'Now the daemon itself is killed. It owns no process, so nobody should notice.'
people() { for node in ada bob cleo; do identity "$(field "$node" pid)" || echo "$node is gone"; done; }
before=$(people)
typed "kill -9 $daemon"
kill -9 "$daemon"
until_true 5 gone "$daemon" || fail "daemon $daemon survived SIGKILL"
unreachable() { local code=0; try status || code=$?; [ "$code" -eq 3 ]; }
claim 'nobody is in charge (the command says so, with exit code 3)' unreachable
undisturbed() { while read -r pid start; do [ "$(identity "$pid")" = "$pid $start" ] || return 1; done <<<"$before"; }
claim 'all three nodes run on: same pids, same start times' undisturbed
serving() { [ "$(peer_id "$ada_port")" = "$ada_id" ] && answers; }
claim 'ada and cleo go on answering' serving
start_daemon
settled() { [ "$(people)" = "$before" ]; }
claim "the next daemon, $daemon, finds every node where it was" until_true 5 settled
claim "under the same guard, $guard" test "$(identity "$guard")" = "$guard_was"
claim "and charges nothing: ada still stands at 1 of 5, the others at 0" \
  test "$(field ada attempts)$(field bob attempts)$(field cleo attempts)" = 100

chapter 'The loans end: each ending is recorded, then the processes stopped, then their files deleted.'
run terminate ada bob cleo
printf '\n'
dead() { while read -r pid _; do gone "$pid" || return 1; done <<<"$before"; }
claim 'no node is left' dead
claim 'no file of theirs is left' test -z "$(ls -A "$CADRE_HOSTD_STATE_DIR-nodes")"
claim 'what happened stays on record:' test "$("$binary" status --all -o json | grep -c '"status": "terminated"')" -eq 3
run events "$ada"
printf '\n'
typed "kill $daemon"
kill "$daemon"
left() { until_true 10 gone "$daemon" && until_true 10 gone "$guard"; }
claim 'the daemon has left, and after it the guard, which has nothing to guard any more' left
swept() {
  ! grep -qF "$scratch" /proc/net/unix || return 1
  for dir in $cgroups; do [ ! -e "$dir" ] && [ ! -e "${dir%/*}" ] || return 1; done # the guard's own is one above
  for cwd in /proc/[0-9]*/cwd; do [[ $(readlink "$cwd" 2>/dev/null) != "$scratch"* ]] || return 1; done
}
claim 'no process, no socket and no cgroup remains' swept
rm -rf "$scratch"
claim "and $scratch is deleted" test ! -e "$scratch"
daemon='' guard=''
printf '\n%sThat was all true.%s It took %s seconds. Your own program is five lines of TOML away: README.md\n' "$bold" "$plain" "$SECONDS"
