# cadre-hostd. `make` alone lists the targets; `make demo` and `make test` are the two to begin with.
# Needs Go, git and bash; a C compiler only makes the tests run with the race detector.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO       ?= go
BIN      := bin/cadre-hostd
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X github.com/serfab/cadre-hostd/internal/cli.Version=$(VERSION)

# Where `make install` puts things; DESTDIR stages them below another root.
DESTDIR    ?=
PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc

# TESTFLAGS are added to `go test` (for one test: make test TESTFLAGS='-run TestS09 -v').
TESTFLAGS   ?=
TESTTIMEOUT ?= 20m
FUZZTIME    ?= 20s
BENCHFLAGS  ?=

# The race detector needs cgo for its runtime: used where a C compiler is, left out elsewhere.
RACE = $(shell cc=$$($(GO) env CC); command -v "$${cc%% *}" >/dev/null 2>&1 && echo -race)

.PHONY: help build demo test test-deps lint conformance bench fuzz install clean

help: ## list the targets
	@echo "cadre-hostd $(VERSION)"
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

build: ## build bin/cadre-hostd (static, no cgo)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/cadre-hostd

demo: build ## donate, kill, watch it come back: the story in under 20 seconds
	@scripts/demo.sh $(BIN)

test: test-deps ## run every test, with the race detector where a C compiler is
	$(if $(RACE),CGO_ENABLED=1 )$(GO) test $(RACE) -timeout $(TESTTIMEOUT) $(TESTFLAGS) ./...

test-deps: ## install what the examples' tests run (Debian, root), or say what is left out
	@scripts/test-deps.sh

lint: ## formatting, vet, staticcheck and friends; the list is in scripts/lint.sh
	@GO=$(GO) scripts/lint.sh

conformance: ## write the names of the tests into docs/conformance.md; fails if a row has none
	@scripts/conformance.sh

bench: build ## respawn latency, donations a second, memory and threads, beside a bare parent
	$(GO) run ./bench -bin $(BIN) $(BENCHFLAGS)

fuzz: ## run each fuzz target for FUZZTIME (20s)
	@$(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | while read -r pkg; do \
	  for target in $$($(GO) test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
	  done; \
	done

install: build ## install binary, examples and configuration directory (DESTDIR, PREFIX, SYSCONFDIR)
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/cadre-hostd/examples' \
	  '$(DESTDIR)$(PREFIX)/share/doc/cadre-hostd' '$(DESTDIR)$(SYSCONFDIR)/cadre-hostd/templates.d'
	install -m 0755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/cadre-hostd'
	install -m 0644 examples/*.toml '$(DESTDIR)$(PREFIX)/share/cadre-hostd/examples/'
	install -m 0644 README.md LICENSE CHANGELOG.md '$(DESTDIR)$(PREFIX)/share/doc/cadre-hostd/'

clean: ## remove what the build made
	rm -rf bin dist
