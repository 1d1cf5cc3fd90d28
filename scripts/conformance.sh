#!/usr/bin/env bash
# Writes the tests column of docs/conformance.md: for each row the Go tests (and fuzz targets) whose names begin with its
# id. Exits non-zero, naming them, if rows have no test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/conformance.md

# One line a test: id, package directory, name.
tests=$({ grep -rhoHE --include='*_test.go' '^func (Test|Fuzz)[A-Z][0-9]{2}[A-Za-z0-9_]*' cmd internal || true; } |
  sed -E 's#^(.*)/[^/]*:func ((Test|Fuzz)([A-Z][0-9]{2}).*)$#\4 \1 \2#' | sort -u)

awk -v tests="$tests" '
  BEGIN {
    FS = OFS = "|"
    n = split(tests, lines, "\n")
    for (i = 1; i <= n; i++) {
      split(lines[i], f, " ")
      proof[f[1]] = proof[f[1]] (f[1] in proof && proof[f[1]] != "" ? "<br>" : "") "`" f[3] "` (" f[2] ")"
    }
  }
  /^\| [A-Z][0-9][0-9] \|/ { id = substr($2, 2, 3); $(NF - 1) = " " (id in proof ? proof[id] " " : "") }
  { print }
' "$page" >"$page.new"
mv "$page.new" "$page"

missing=$({ grep -oE '^\| [A-Z][0-9]{2} \|.*\| \|$' "$page" || true; } | cut -c3-5 | paste -sd' ')
[ -z "$missing" ] || { echo "conformance: rows without a test: $missing" >&2; exit 1; }
