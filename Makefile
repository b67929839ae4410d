# `make` lists the commands. CI runs `make check`, `make test-flower` and `make test-mpi` (.ci/run).

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help quickstart check lint fmt docs test test-python test-flower test-mpi test-gpu test-torch deny extension python wheel bench bless bless-quick fuzz kills kills-flower
.PHONY: need-rust need-python need-chromium need-mpi

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
# The newest Python there is; Flower wants 3.11.
PYTHON = $(shell for version in 3.13 3.12 3.11 3; do python$$version -c '' 2>/dev/null && echo python$$version && break; done)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The Python that runs the tests; it finds the package where cargo and the sources are.
TEST_PYTHON := $(TARGET)/venv/bin/python
# What makes a site of the documentation.
MDBOOK_VERSION := 0.5.4
MDBOOK := $(TARGET)/mdbook-$(MDBOOK_VERSION)/bin/mdbook
# All crates but the one that wants an MPI to be built.
WORKSPACE := --workspace --exclude kinfolk-mpi

help: ## Lists these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: need-rust ## Installs Rust where it is missing, builds the program, and shows what it finds in a table of bakeries
	cargo build --release --locked -p kinfolk-cli
	$(TARGET)/release/kinfolk fit examples/bakeries.csv --client bakery --target sold --out runs/bakeries --replace
	$(TARGET)/release/kinfolk predict runs/bakeries examples/tomorrow.csv
	$(TARGET)/release/kinfolk assign runs/bakeries examples/new-bakeries.csv
	@echo 'Now: export PATH="$(TARGET)/release:$$PATH"; kinfolk --help; kinfolk run quickstart compares methods'

fmt: ## Formats every file
	git ls-files '*.rs' | xargs rustfmt --edition 2024 # cargo fmt does not see modules that a macro declares

check: test lint ## What CI runs beside test-flower: the tests, then all that lint does

lint: deny ## Checks dependencies, format, lints, docs, links of the site and packages, with warnings as errors
	git ls-files '*.rs' | xargs rustfmt --check --edition 2024
	cargo clippy $(WORKSPACE) --all-targets -- -D warnings
	cargo clippy -p kinfolk --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(WORKSPACE) --no-deps
	$(PYTHON) .ci/public.py $(TARGET)/doc/kinfolk
	$(MAKE) docs
	cargo package $(WORKSPACE) --no-verify --allow-dirty --quiet

# Pages and what is declared, put together for mdBook, which is built once, without its own server and without optimisation: that is quick.
# Rust's API is part of the site where `cargo doc` has been run.
docs: need-rust need-python $(MDBOOK) ## Builds the documentation as a site, into target/site/book, and checks its links
	cargo build $(WORKSPACE) --bin kinfolk
	$(PYTHON) docs/site/build.py --program $(TARGET)/debug/kinfolk --mdbook $(MDBOOK) --out $(TARGET)/site \
		$(if $(wildcard $(TARGET)/doc/kinfolk/index.html),--api $(TARGET)/doc)

$(MDBOOK): | need-rust
	CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --debug --locked mdbook@$(MDBOOK_VERSION) --no-default-features --features search --root $(TARGET)/mdbook-$(MDBOOK_VERSION)

test: need-rust need-python need-chromium ## Installs what the tests need, and runs them all
	if cargo nextest --version >/dev/null 2>&1; then cargo nextest run $(WORKSPACE); else cargo test $(WORKSPACE) --lib --bins --tests; fi
	cargo test $(WORKSPACE) --doc
	$(MAKE) test-python

test-python: $(TARGET)/venv/ready extension ## Runs the tests of the Python package
	CARGO_TARGET_DIR=$(TARGET) $(TEST_PYTHON) -m pytest -q

test-flower: $(TARGET)/venv/ready extension ## Runs methods on a Flower SuperLink with nodes and SuperNodes; takes minutes; FLWR=1.40.0: of that version
	$(TEST_PYTHON) -m pip install --quiet "$(if $(FLWR),flwr==$(FLWR),$$(sed -n 's/^flower = \["\(flwr==[0-9.]*\).*/\1/p' pyproject.toml))"
	CARGO_TARGET_DIR=$(TARGET) $(TEST_PYTHON) -m pytest -q crates/kinfolk-py/tests/flower $(if $(FLWR),-k "not version_of_flower")

test-mpi: need-rust need-mpi ## Runs experiments on one to four ranks of an MPI job, and kills one
	cargo clippy -p kinfolk-mpi --all-targets -- -D warnings
	cargo test -p kinfolk-mpi

test-gpu: need-rust ## Compares an NVIDIA device with the processor; without one it says what was skipped
	cargo run --release -p kinfolk-cuda --example agreement

test-torch: $(TARGET)/venv/ready extension ## Runs the example with PyTorch, which is gigabytes to install
	$(TEST_PYTHON) -c 'import torch' 2>/dev/null || $(TEST_PYTHON) -m pip install --quiet "$$(sed -n 's/^torch = \["\(.*\)"\]/\1/p' pyproject.toml)"
	$(TEST_PYTHON) -m pytest -q crates/kinfolk-py/tests/with_torch

# The compiled part, put beside the Python sources; and the command line, to compare with.
extension: need-rust
	cargo build $(WORKSPACE)
	ln -sf $(TARGET)/debug/lib_kinfolk.so crates/kinfolk-py/python/kinfolk/_kinfolk.abi3.so

$(TARGET)/venv/ready: pyproject.toml | need-python
	$(PYTHON) -m venv $(TARGET)/venv
	$(TEST_PYTHON) -m pip install --quiet --upgrade pip
	$(TEST_PYTHON) -m pip install --quiet --group pyproject.toml:test
	echo $(abspath crates/kinfolk-py/python) > $$($(TEST_PYTHON) -c 'import site; print(site.getsitepackages()[0])')/kinfolk.pth
	touch $@

# Without the tools to check with, or the list of advisories, that check is left out, and this says so.
deny: ## Checks the dependencies: advisories, licences, sources and duplicates (wants cargo-deny)
	@if ! cargo deny --version >/dev/null 2>&1; then \
		echo 'deny: skipped, there is no cargo-deny; `cargo install --locked cargo-deny` gets it'; \
	elif cargo deny fetch db; then cargo deny --locked check; \
	else echo 'deny: advisories skipped, their list cannot be had'; cargo deny --locked check bans licenses sources; fi

python: need-rust .venv ## Builds the Python package, and installs it into .venv
	.venv/bin/python -m pip install .
	@echo 'Now: source .venv/bin/activate; python -c "import kinfolk; print(kinfolk.run(\"quickstart\"))"'

# Zig brings the symbols of an old glibc along, so that the wheel is for all that are not older.
wheel: need-rust .venv ## Builds the Python package for others, as a wheel and from source, into target/wheels
	.venv/bin/python -m pip install --quiet "maturin[zig]>=1.9,<2"
	rm -f $(TARGET)/wheels/kinfolk-*
	.venv/bin/python crates/kinfolk-py/licences.py THIRD-PARTY-LICENSES.txt
	.venv/bin/python -m maturin sdist --out $(TARGET)/wheels
	PATH=$(abspath .venv/bin):$$PATH .venv/bin/python -m maturin build --release --zig --compatibility manylinux_2_28 --out $(TARGET)/wheels

.venv: | need-python
	$(PYTHON) -m venv .venv

need-rust need-python need-chromium need-mpi:
	@PYTHON=$(PYTHON) .ci/need $(@:need-%=%)

kills: need-rust ## Kills the presets KILLS times, resumes them, and compares every file with undisturbed runs
	KINFOLK_KILLS=$(or $(KILLS),100) cargo test --release -p kinfolk-cli --test cli kills -- --nocapture

kills-flower: $(TARGET)/venv/ready extension ## Kills a server's app, a SuperLink and a node KILLS times each, and compares every file
	CARGO_TARGET_DIR=$(TARGET) KINFOLK_FLOWER_KILLS=$(or $(KILLS),10) $(TEST_PYTHON) -m pytest -q -s crates/kinfolk-py/tests/flower/test_faults.py

bench: ## Measures the fast paths against the plain ones and against what one would otherwise use
	cargo bench -p kinfolk

# Inputs are spoiled as the seed says. More cases go on where fewer ended, and READER with CASE repeats one that failed.
SEED ?= 0
CASES ?= 100000
BINARY ?= 1000
fuzz: | need-rust ## Spoils the inputs of every reader: SEED, CASES of each, BINARY of each through the program; READER, CASE
	cargo test $(WORKSPACE) --test fuzz --test cli --no-run && cargo test -p kinfolk-node -p kinfolk-cli -p kinfolk-py --lib --no-run
	export KINFOLK_FUZZ_SEED=$(SEED) KINFOLK_FUZZ_CASES=$(CASES) KINFOLK_FUZZ_BINARY=$(BINARY) $(if $(CASE),KINFOLK_FUZZ_CASE=$(CASE)); \
	ulimit -v 16777216; \
	cargo test $(WORKSPACE) --test fuzz -- --nocapture $(READER) && \
	cargo test -p kinfolk-node -p kinfolk-cli -p kinfolk-py --lib -- --nocapture fuzz::$(READER) && cargo test $(WORKSPACE) --test cli -- --nocapture fuzz::$(READER)

# Three kinds of expected results are kept: the texts of the command line in crates/kinfolk-cli/tests/cli/snapshots and what
# examples/bakeries.ipynb prints, which must agree to the letter, and the numbers of the quickstart in crates/kinfolk/tests/golden,
# compared with a tolerance.
bless: $(TARGET)/venv/ready extension ## Accepts today's texts and numbers as the expected ones; look at `git diff` afterwards
	INSTA_UPDATE=always KINFOLK_BLESS=1 cargo test $(WORKSPACE) --test cli --test integration
	KINFOLK_BLESS=1 $(TEST_PYTHON) -m pytest -q crates/kinfolk-py/tests/test_docs.py -k notebook

# `kinfolk reproduce PAPER --quick` compares with the numbers of experiments/PAPER/quick.json. They are compiled in, so they are
# measured anew with the program as it is, which says what changed, and count from the next build on.
bless-quick: ## Measures the kept numbers of `reproduce --quick` anew (wants the data sets); look at `git diff` afterwards
	cargo build --release -p kinfolk-cli
	for paper in ifca odcl known-clusters fedgrem sr-fca; do \
		folder=$$(mktemp -d); \
		$(TARGET)/release/kinfolk reproduce $$paper --quick --out $$folder --record experiments/$$paper/quick.json; \
		code=$$?; rm -r $$folder; [ $$code -le 1 ] || exit $$code; \
	done
