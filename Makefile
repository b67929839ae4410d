# `make` lists the commands. CI runs `make check` and `make test-flower`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help check test test-python test-flower test-torch extension python wheel tools bench bless

export PATH := $(HOME)/.cargo/bin:$(PATH)
# Newer versions know more lints; what is installed here is the version we promise to build with.
RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
# The newest Python there is; Flower wants 3.11.
PYTHON = $(shell for version in 3.13 3.12 3.11 3; do python$$version -c '' 2>/dev/null && echo python$$version && break; done)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The Python that runs the tests; it finds the package where cargo and the sources are.
TEST_PYTHON := $(TARGET)/venv/bin/python

help: ## Lists these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: test ## What CI runs beside test-flower: the tests, then format, lints and docs, with warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

test: tools ## Installs what the tests need, and runs them all
	if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --workspace; else cargo test --workspace --lib --bins --tests; fi
	cargo test --workspace --doc
	$(MAKE) test-python

test-python: $(TARGET)/venv/ready extension ## Runs the tests of the Python package
	cd crates/kinfolk-py && CARGO_TARGET_DIR=$(TARGET) $(TEST_PYTHON) -m pytest -q

test-flower: $(TARGET)/venv/ready extension ## Runs methods on a Flower SuperLink and three SuperNodes; takes minutes
	$(TEST_PYTHON) -m pip install --quiet "$$(sed -n 's/^flower = \["\(flwr==[0-9.]*\).*/\1/p' crates/kinfolk-py/pyproject.toml)"
	cd crates/kinfolk-py && $(TEST_PYTHON) -m pytest -q tests/flower

test-torch: $(TARGET)/venv/ready extension ## Runs the example with PyTorch, which is gigabytes to install
	$(TEST_PYTHON) -c 'import torch' 2>/dev/null || $(TEST_PYTHON) -m pip install --quiet "$$(sed -n 's/^torch = \["\(.*\)"\]/\1/p' crates/kinfolk-py/pyproject.toml)"
	cd crates/kinfolk-py && $(TEST_PYTHON) -m pytest -q tests/with_torch

# The compiled part, put beside the Python sources; and the command line, to compare with.
extension: | tools
	cargo build --workspace
	ln -sf $(TARGET)/debug/lib_kinfolk.so crates/kinfolk-py/python/kinfolk/_kinfolk.abi3.so

$(TARGET)/venv/ready: crates/kinfolk-py/pyproject.toml | tools
	$(PYTHON) -m venv $(TARGET)/venv
	$(TEST_PYTHON) -m pip install --quiet --upgrade pip
	$(TEST_PYTHON) -m pip install --quiet --group crates/kinfolk-py/pyproject.toml:test
	echo $(abspath crates/kinfolk-py/python) > $$($(TEST_PYTHON) -c 'import site; print(site.getsitepackages()[0])')/kinfolk.pth
	touch $@

python: wheel ## Builds the Python package, and installs it into .venv
	.venv/bin/python -m pip install --quiet --force-reinstall --no-deps $(TARGET)/wheels/kinfolk-*.whl
	.venv/bin/python -m pip install --quiet $(TARGET)/wheels/kinfolk-*.whl
	@echo 'Now: source .venv/bin/activate; python -c "import kinfolk; print(kinfolk.run(\"quickstart\"))"'

wheel: | tools ## Builds the Python package as a wheel, into target/wheels
	[ -d .venv ] || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet "maturin>=1.9,<2"
	rm -f $(TARGET)/wheels/kinfolk-*.whl
	cd crates/kinfolk-py && $(abspath .venv)/bin/python -m maturin build --release --strip --out $(TARGET)/wheels

tools: ## Installs what is not here: a C compiler, Rust, Python, and Chromium for the report page (on Debian)
	@have() { command -v "$$1" >/dev/null; }; packages=; \
	have cc || packages="$$packages gcc libc6-dev"; \
	python=$(or $(PYTHON),python3); $$python -c 'import ensurepip' 2>/dev/null || packages="$$packages $$python $$python-venv"; \
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
