# Development tasks. `make help` lists them.
#
#   FUZZ_SECONDS          seconds for each fuzz target: 5 for `make test`, 30 for `make test-all`, 300 for `make fuzz`
#   BENCH                 for `make microbench`: run only benchmarks whose name contains this
#   SEED, SECONDS, LANES  for `make stress`: defaults 1, 60 and 4; LANES is the number of thread pairs
#   LINK, FAULTS          for `make stress`: rings, sockets or mixed; none, loss, reordering, duplication or mixed; default all

SHELL := /bin/bash
CARGO_HOME ?= $(HOME)/.cargo
# scripts/setup installs cargo's tools here.
export PATH := $(CARGO_HOME)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help build setup test test-all lint docs msrv miri asan bench microbench instructions coverage interop peers fuzz soak stress install uninstall static deb clean

help: ## list the targets
	@sed -n -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build the command: target/release/ferroce
	cargo build --locked --release

setup: ## install missing tools that the tests need
	@scripts/setup

test: ## setup, lint, tests and a short fuzz run
	@scripts/test

test-all: ## the same with the full matrices: every MTU, program and address family, all interoperability tests
	@scripts/test --all

lint: ## check format, clippy, documentation, licences, advisories
	@scripts/lint

docs: ## build the API documentation: target/doc/ferroce/index.html
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --all-features

# The minimum supported Rust version: rust-version in Cargo.toml.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv: ## check that the workspace builds with the oldest supported Rust
	@cargo +$(MSRV) --version >/dev/null 2>&1 || { \
		echo "msrv: the toolchain $(MSRV) is missing: rustup toolchain install $(MSRV) --profile minimal --no-self-update" >&2; exit 1; }
	CARGO_TARGET_DIR="$(or $(CARGO_TARGET_DIR),target)/msrv" cargo +$(MSRV) check --locked --workspace --all-features

miri: ## unit tests of wire, proto and memory in Miri (needs a nightly toolchain)
	@scripts/miri

asan: ## C tests over libibverbs with AddressSanitizer (needs a nightly toolchain)
	@scripts/asan

bench: ## compare Ferroce with TCP, UCX, libfabric and rdma_rxe, and write docs/benchmarks.md
	cargo build --locked --release -p ferroce-cli -p ferroce-capi -p ferroce-view -p ferroce-sockets -p ferroce-bench
	"$(or $(CARGO_TARGET_DIR),target)/release/ferroce-bench" --write

microbench: ## run the benchmarks of single functions (BENCH=name for some of them)
	cargo bench --locked --workspace --bench '*' -- $(BENCH)

instructions: ## count the instructions of the data path with valgrind, against tests/instructions/counts.json (WRITE=1 writes it)
	@scripts/instructions $(if $(WRITE),--write)

coverage: ## line coverage of the protocol core and the device core
	@scripts/coverage

interop: ## tests against the kernel's rdma_rxe, in virtual machines
	FERROCE_REQUIRE_ALL=1 cargo nextest run --locked --profile all -p ferroce-tests --test interop_rxe

peers: ## test suites of UCX and libfabric over Ferroce, against tests/peers (UCX_GTEST=program FABTESTS=directory)
	@scripts/peers

fuzz: ## fuzz each parser for longer (FUZZ_SECONDS=300)
	@scripts/fuzz $(or $(FUZZ_SECONDS),300)

soak: ## simulate hostile networks for longer (SEEDS=10000 FIRST_SEED=0 SCENARIO=hostile)
	cargo build --locked --release
	target/release/ferroce simulate --scenario $(or $(SCENARIO),hostile) --seed $(or $(FIRST_SEED),0) --seeds $(or $(SEEDS),10000)

stress: ## stress libibverbs with threads, all services and object churn (SEED=1 SECONDS=60 LANES=4 LINK=all FAULTS=all)
	@scripts/stress "$(or $(SEED),1)" "$(or $(SECONDS),60)" "$(or $(LANES),4)" "$(or $(LINK),all)" "$(or $(FAULTS),all)"

# DESTDIR is prepended to PREFIX, for packaging. BUILT names a directory with existing build output.
PREFIX ?= /usr/local
TO = $(DESTDIR)$(PREFIX)
LIBRARIES = libibverbs.so.1 libibverbs.so librdmacm.so.1 librdmacm.so

install: ## install to PREFIX=/usr/local: command, libraries, man pages, completions
ifndef BUILT
	cargo build --locked --release -p ferroce-cli -p ferroce-capi -p ferroce-view -p ferroce-sockets
endif
	install -d "$(TO)/bin" "$(TO)/lib/ferroce" "$(TO)/share/man/man1" "$(TO)/share/bash-completion/completions" \
		"$(TO)/share/zsh/site-functions" "$(TO)/share/fish/vendor_completions.d"
	install -m 755 "$(or $(BUILT),$(or $(CARGO_TARGET_DIR),target)/release)/ferroce" "$(TO)/bin/ferroce"
	install -m 644 "$(or $(BUILT),$(or $(CARGO_TARGET_DIR),target)/release)/libferroce_view.so" \
		"$(or $(BUILT),$(or $(CARGO_TARGET_DIR),target)/release)/libferroce_sockets.so" \
		"$(or $(BUILT),$(or $(CARGO_TARGET_DIR),target)/release)/libferroce_capi.so" "$(TO)/lib/ferroce"
	for name in $(LIBRARIES); do ln -sf libferroce_capi.so "$(TO)/lib/ferroce/$$name"; done
	"$(TO)/bin/ferroce" man --dir "$(TO)/share/man/man1"
	"$(TO)/bin/ferroce" completions bash >"$(TO)/share/bash-completion/completions/ferroce"
	"$(TO)/bin/ferroce" completions zsh >"$(TO)/share/zsh/site-functions/_ferroce"
	"$(TO)/bin/ferroce" completions fish >"$(TO)/share/fish/vendor_completions.d/ferroce.fish"

uninstall: ## remove the installed files; use the same PREFIX
	rm -f "$(TO)/bin/ferroce" "$(TO)/share/man/man1"/ferroce{,-*}.1 "$(TO)/share/zsh/site-functions/_ferroce" \
		"$(TO)/share/bash-completion/completions/ferroce" "$(TO)/share/fish/vendor_completions.d/ferroce.fish"
	rm -rf "$(TO)/lib/ferroce"

static: ## build the command as one file without shared libraries: target/static/ferroce
	@scripts/static

deb: ## build a Debian package: target/deb/ferroce_VERSION_ARCHITECTURE.deb
	@scripts/deb

clean: ## remove all build output
	cargo clean
	rm -rf fuzz/target
