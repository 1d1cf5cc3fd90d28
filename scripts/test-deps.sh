#!/usr/bin/env bash
# What the tests of examples/ run: redis, nginx, memcached and postgres. As root on Debian the missing ones are
# installed, without letting their services start; elsewhere, and where that fails, it says which tests will be left out,
# and why.
set -euo pipefail

# postgres is kept off the PATH by Debian, so its directory is looked at too.
has_postgres() { command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }
PATH=$PATH:/usr/sbin:/sbin

packages=() tests=()
missing() { packages+=("$1") tests+=("$2"); }
command -v redis-server >/dev/null || missing redis-server redis
command -v redis-cli >/dev/null || missing redis-tools redis
command -v nginx >/dev/null || missing nginx-light nginx
command -v memcached >/dev/null || missing memcached memcached
# The unversioned package brings whatever version this Debian has; examples/postgres.toml finds it.
has_postgres || missing postgresql postgres

[ "${#packages[@]}" -gt 0 ] || exit 0

leave_out() {
  echo "test-deps: $1; the tests of these examples will be left out: $(printf '%s\n' "${tests[@]}" | sort -u | paste -sd' ')"
  exit 0
}
command -v apt-get >/dev/null || leave_out "not a Debian system (no apt-get), so nothing is installed"
[ "$(id -u)" -eq 0 ] || leave_out "not root, so ${packages[*]} can't be installed"

# While policy-rc.d says 101, Debian's maintainer scripts start no service. One that is there already is left alone.
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
ours=
cleanup() {
  rm -f "$log"
  [ -z "$ours" ] || rm -f "$policy"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ ! -e "$policy" ]; then
  ours=yes
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 0755 "$policy"
fi

echo "test-deps: installing ${packages[*]} (their services are not started)"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Acquire::http::Timeout=30)
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1 </dev/null; then
  tail -n 20 "$log" >&2
  leave_out "${packages[*]} could not be installed (reason above)"
fi
