# `make` lists the commands. CI runs `make check` and nothing else.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help check test tools bench bless

export PATH := $(HOME)/.cargo/bin:$(PATH)
# Newer versions know more lints; what is installed here is the version we promise to build with.
RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)

help: ## Lists these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: test ## All that CI runs: the tests, then format, lints and docs, with warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

test: tools ## Installs what the tests need, and runs them all
	if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --workspace; else cargo test --workspace --lib --bins --tests; fi
	cargo test --workspace --doc

tools: ## Installs what is not here: a C compiler, Rust, and Chromium for the report page (on Debian)
	@have() { command -v "$$1" >/dev/null; }; packages=; \
	have cc || packages="$$packages gcc libc6-dev"; \
	have cargo || have curl || packages="$$packages curl ca-certificates"; \
	[ -n "$$CHROMIUM" ] || have chromium || have chromium-browser || have google-chrome || packages="$$packages chromium"; \
	if [ -n "$$packages" ]; then \
		$(SUDO) apt-get update && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$packages; \
	fi
	@command -v cargo >/dev/null || curl --proto '=https' --tlsv1.2 -fsSL https://static.rust-lang.org/rustup/rustup-init.sh \
		| sh -s -- -y --profile minimal --default-toolchain $(RUST) --component rustfmt --component clippy

bench: ## Measures the fast paths against the plain ones and against what one would otherwise use
	cargo bench -p kinfolk

# Two kinds of expected results are kept: the texts of the command line in crates/kinfolk-cli/tests/cli/snapshots, which
# must agree to the letter, and the numbers of the quickstart in crates/kinfolk/tests/golden, compared with a tolerance.
bless: ## Accepts today's texts and numbers as the expected ones; look at `git diff` afterwards
	INSTA_UPDATE=always KINFOLK_BLESS=1 cargo test --workspace --test cli --test experiments
