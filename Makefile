# Everything one does with the project, by name. `make help` lists it.
#
#   FUZZ_SECONDS   how long each fuzz target runs: 10 for `make test`, 300 for `make fuzz`
#   BENCH          only the benchmarks whose name contains this, for `make bench`

SHELL := /bin/bash
CARGO_HOME ?= $(HOME)/.cargo
# Where scripts/setup puts cargo's tools, whatever the shell's PATH.
export PATH := $(CARGO_HOME)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help build setup test lint bench fuzz soak clean

help: ## list the targets
	@sed -n -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: ## the command ferroce, optimised: target/release/ferroce
	cargo build --locked --release

setup: ## install what the tests need and is missing
	@scripts/setup

test: ## set-up, lint, all tests and a short fuzz run
	@scripts/test

lint: ## format, clippy, documentation, licences, advisories
	@scripts/lint

bench: ## run the benchmarks (BENCH=name for some of them)
	cargo bench --locked --workspace --bench '*' -- $(BENCH)

fuzz: ## fuzz each parser for longer (FUZZ_SECONDS=300)
	@scripts/fuzz $(or $(FUZZ_SECONDS),300)

soak: ## simulate hostile networks for longer (SEEDS=10000 FIRST_SEED=0 SCENARIO=hostile)
	cargo build --locked --release
	target/release/ferroce simulate --scenario $(or $(SCENARIO),hostile) --seed $(or $(FIRST_SEED),0) --seeds $(or $(SEEDS),10000)

clean: ## remove everything that was built
	cargo clean
	rm -rf fuzz/target
