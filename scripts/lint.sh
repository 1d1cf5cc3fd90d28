#!/usr/bin/env bash
# Every check of `make lint`, in order of cost; all of them run, and the exit status says whether any complained.
# The tools are pinned in tools/go.mod, a module of its own, so that the product's go.mod stays small.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
go=${GO:-go}
failed=()

# check NAME COMMAND…: runs one check and remembers its name if it fails.
check() {
  local name=$1
  shift
  local started=$SECONDS
  if "$@"; then
    printf '  ok    %-12s %ss\n' "$name" $((SECONDS - started))
  else
    printf '  FAIL  %-12s\n' "$name"
    failed+=("$name")
  fi
}

# tool NAME ARGS…: runs a pinned tool.
tool() { "$go" tool -modfile=tools/go.mod "$@"; }

# silent COMMAND…: fails if the command prints anything.
silent() {
  local out
  out=$("$@" 2>&1) && [ -z "$out" ] && return 0
  printf '%s\n' "$out"
  return 1
}

# quiet COMMAND…: shows the output only if the command fails.
quiet() {
  local out
  out=$("$@" 2>&1) && return 0
  printf '%s\n' "$out"
  return 1
}

# tidy: go.mod and go.sum say exactly what the code needs. It may have to ask the module proxy about the
# tests of dependencies; without a network that is said, and is no failure.
tidy() {
  local out
  out=$("$go" mod tidy -diff 2>&1) && return 0
  if grep -qE 'dial tcp|no such host|i/o timeout|connection refused|network is unreachable|module lookup disabled' <<<"$out"; then
    echo "  (go mod tidy needs the module proxy, which can't be reached: left out)"
    return 0
  fi
  printf '%s\n' "$out"
  return 1
}

# sources lists our own Go directories, for the tools that walk files instead of packages.
mapfile -t sources < <("$go" list -f '{{.Dir}}' ./...)
[ "${#sources[@]}" -gt 0 ] || { echo "lint: go list found no package" >&2; exit 1; }
files=()
for dir in "${sources[@]}"; do files+=("$dir"/*.go); done

check gofmt silent gofmt -s -l "${files[@]}"
check gofumpt silent tool gofumpt -l "${files[@]}"
check mod-verify quiet "$go" mod verify
check mod-tidy tidy
check vet "$go" vet ./...
check staticcheck tool staticcheck ./...
check errorlint tool go-errorlint ./...
check modernize tool modernize ./...
if command -v shellcheck >/dev/null 2>&1; then
  check shellcheck shellcheck scripts/*.sh .ci/run
fi

if [ "${#failed[@]}" -gt 0 ]; then
  echo "lint: ${failed[*]} complained" >&2
  exit 1
fi
