# Makefile - the front door; Meson builds, tools/ checks, this file only puts them in order

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
PY := .venv/bin/python
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# The environment's meson, ninja and linters before the machine's
WITH_VENV := PATH="$(CURDIR)/.venv/bin:$$PATH"
LIST_FILES := git -c safe.directory='*' ls-files -co --exclude-standard
FUZZ_SECONDS ?= 60

# quiet NAME COMMAND...: the output goes to build/log/NAME.log and is shown only on failure
quiet = mkdir -p build/log; quiet() { local log=build/log/$$1.log; shift; \
	"$$@" >"$$log" 2>&1 || { local code=$$?; cat "$$log"; return $$code; }; }; quiet
say = @printf '== %s\n' "$(1)"

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# --- setting up -----------------------------------------------------------------------------

# install-packages NAME: what the section "# make NAME:" of packages.txt names and Debian lacks
define install-packages
	@missing=; \
	for package in $$(awk -v want='$(1):' '/^# make /{on = $$3 == want} !/^#/ && on {print $$1}' packages.txt); do \
		dpkg-query -W -f '$${db:Status-Status}\n' "$$package" 2>/dev/null | grep -qx installed || \
			missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "== installing Debian packages:$$missing"; \
		$(quiet) apt-update $(SUDO) apt-get update -q; \
		$(quiet) apt-install $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
			--no-install-recommends -o DPkg::Lock::Timeout=300 $$missing; \
	fi
endef

packages:
	$(call install-packages,setup)

packages-%:
	$(call install-packages,$*)

# A .venv is kept when it runs, was made here and by the python3 of today.
IDENTITY := import sys; print(sys.base_prefix, sys.version)
venv:
	@want=$$($(PYTHON) -c '$(IDENTITY)'); \
	have=$$($(PY) -c '$(IDENTITY)' 2>/dev/null || true); \
	if [ "$$want" != "$$have" ] || ! $(PY) -m pip --version >/dev/null 2>&1 || \
		! grep -qsF '$(CURDIR)/.venv/' .venv/bin/pip; then \
		echo "== making .venv with $$($(PYTHON) --version)"; \
		rm -rf .venv build; \
		$(PYTHON) -m venv .venv; \
	fi; \
	if ! cmp -s requirements.txt .venv/requirements.installed; then \
		echo "== installing Python packages from requirements.txt"; \
		$(quiet) pip $(PY) -m pip install --no-deps --disable-pip-version-check -r requirements.txt; \
		$(quiet) pip-check $(PY) -m pip check; \
		rm -rf build/build.ninja build/installed build/wheel; \
		cp requirements.txt .venv/requirements.installed; \
	fi

setup: packages build ## packages, .venv and build; a second run does only what changed

build: venv ## compile and install into .venv what changed
	@$(MAKE) -s compile .venv/installed

compile:
	@if [ ! -f build/build.ninja ]; then \
		echo "== configuring"; \
		$(WITH_VENV); rm -rf build/meson-private build/meson-info; \
		$(quiet) configure meson setup build -Dtests=true; \
	fi
	$(call say,compiling)
	@$(WITH_VENV); $(quiet) compile ninja --quiet -C build

# A release wheel, installed, with the hooks that tests need. Directories are listed too, so that a
# removed file counts as a change.
SOURCES := $(shell find src include cli python web man share -name __pycache__ -prune -o -print) \
	$(wildcard meson.build meson.options pyproject.toml README.md LICENSE)
# Meson refuses options that it learns of late.
forget_if_old = [ $(1)/build.ninja -nt meson.options ] || rm -rf $(1)
.venv/installed: $(SOURCES)
	$(call say,installing millhead into .venv)
	@$(call forget_if_old,build/installed)
	@$(WITH_VENV); $(quiet) install $(PY) -m pip install --no-build-isolation --no-deps \
		--no-index --disable-pip-version-check . -Cbuild-dir=build/installed \
		-Csetup-args=-Dtest_hooks=true
	@touch $@

# --- using ----------------------------------------------------------------------------------

demo: setup ## the tour: beside torch's loader, pictures natively, then a slow program and its cure
	@$(WITH_VENV); $(PY) examples/demo.py
	@$(WITH_VENV); $(PY) examples/pictures.py
	@$(WITH_VENV); $(PY) examples/story.py

# A web server for the tests, unpacked and not installed: Debian starts it where it is installed.
WEB := build/web
web-server: setup
	@if [ ! -x $(WEB)/usr/sbin/nginx ]; then \
		echo "== unpacking nginx for the tests"; \
		apt-cache show nginx >/dev/null 2>&1 || { $(quiet) apt-update $(SUDO) apt-get update -q; }; \
		rm -rf $(WEB); mkdir -p $(WEB); \
		cd $(WEB); apt-get download -q nginx >download.log 2>&1 || { cat download.log; exit 1; }; \
		dpkg -x nginx_*.deb .; \
	fi

test: setup web-server ## unit, command-line, Python and hygiene tests
	@$(PY) tools/test

bench: setup ## benchmarks; results in bench/
	@$(WITH_VENV); $(PY) bench/run.py $(ARGS)

wheel: packages venv ## a portable wheel in dist/
	$(call say,building a wheel)
	@$(MAKE) -s portable-wheel
	@ls dist/*.whl

# The wheel alone, for tests/python/package/test_wheel.py too: made here, then marked by auditwheel with the
# oldest glibc it runs with (and with anything that it is linked to besides put inside). Not libcurl:
# it is some thirty libraries, of which the machine's get its security updates and know its
# certificates. libmillhead-net.so alone needs it, and is loaded at the first URL.
DIST := dist
portable-wheel:
	@$(call forget_if_old,build/wheel)
	@$(WITH_VENV); rm -rf "$(DIST)"/millhead-*.whl build/local-wheel; \
	$(quiet) wheel $(PY) -m pip wheel --no-build-isolation --no-deps --no-index \
		--disable-pip-version-check -w build/local-wheel . -Cbuild-dir=build/wheel; \
	$(quiet) repair auditwheel repair --exclude libcurl.so.4 -w "$(DIST)" build/local-wheel/*.whl

format: setup ## rewrite the sources in the project's format
	@$(WITH_VENV); $(LIST_FILES) '*.c' '*.h' | xargs -r clang-format -i
	@$(WITH_VENV); ruff check -q --fix .; ruff format -q .

# --- checking more --------------------------------------------------------------------------

check: test tidy minimal asan tsan valgrind python-asan sabotage ## test, and all that follow
	$(call say,every check passed)

tidy: setup packages-check ## clang-tidy
	$(call say,clang-tidy)
	@$(LIST_FILES) 'src/*.c' 'cli/*.c' 'python/*.c' | \
		xargs -r -P "$$(nproc)" -n 1 clang-tidy -p build --quiet \
		--extra-arg=-Wno-unknown-warning-option 2> >(grep -Ev 'warnings? generated' >&2 || true)

# other-build DIRECTORY OPTION: the C tests in a build of their own
define other-build
	$(call say,C tests with $(2))
	@$(WITH_VENV); [ -f build/$(1)/build.ninja ] || $(quiet) $(1)-configure \
		meson setup build/$(1) -Dtests=true -Dpython=false $(2); \
	$(quiet) $(1)-compile ninja --quiet -C build/$(1); \
	meson test -C build/$(1) --no-rebuild --quiet --print-errorlogs --timeout-multiplier 4
endef

minimal: setup ## the C tests of a build without any library that may be missing
	$(call other-build,minimal,-Dauto_features=disabled)

asan: export ASAN_OPTIONS := abort_on_error=1:detect_stack_use_after_return=1
asan: export UBSAN_OPTIONS := halt_on_error=1:print_stacktrace=1
# With these sanitizers gcc 12 takes p + constant for the end of what p points to, and warns of reads there.
SANITIZED = -Db_sanitize=address$(comma)undefined -Dc_args=-Wno-stringop-overread
asan: setup ## the C tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call other-build,asan,$(SANITIZED))
comma := ,

tsan: export TSAN_OPTIONS := halt_on_error=1:second_deadlock_stack=1
tsan: setup ## the C tests under ThreadSanitizer
	$(call other-build,tsan,-Db_sanitize=thread)

# Without the command's tests, which are shell scripts: the shell itself leaks. Leaks of our own are
# AddressSanitizer's to find: valgrind counts them in forked children, which leave by _exit.
valgrind: setup packages-check ## the C tests under valgrind
	$(call say,C tests under valgrind)
	@$(WITH_VENV); meson test -C build --no-rebuild --quiet --print-errorlogs --logbase valgrind \
		--timeout-multiplier 20 --no-suite cli --wrap 'valgrind -q --error-exitcode=99 --leak-check=no'

# Leaks are not looked for here: the interpreter and torch keep memory until exit on purpose. Tests
# that start torch's own workers skip themselves (tests/python/conftest.py), and the sanitizer needs
# more address space than those of a limit leave it.
SANITIZED_TESTS := sampling/order $(addprefix iterators/,collate edges errors gather_rows pickled_batch \
	iterable pinning predict stats stream)
python-asan: setup ## the Python tests with a sanitized extension module
	$(call say,Python tests with -fsanitize=address$(comma)undefined)
	@$(call forget_if_old,build/python-asan/build)
	@$(WITH_VENV); rm -rf build/python-asan/site; \
	$(quiet) python-asan $(PY) -m pip install --no-build-isolation --no-deps --no-index \
		--disable-pip-version-check --target build/python-asan/site . \
		-Cbuild-dir=build/python-asan/build -Csetup-args=-Dbuildtype=debugoptimized \
		$(foreach option,$(SANITIZED),-Csetup-args=$(option))
	@$(WITH_VENV); LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		PYTHONPATH="$(CURDIR)/build/python-asan/site" PYTHONMALLOC=malloc \
		$(PY) -m pytest -q -p no:cacheprovider -k 'not address_space' \
		$(foreach test,$(SANITIZED_TESTS),tests/python/$(dir $(test))test_$(notdir $(test)).py)

sabotage: setup web-server ## small faults in the sources, each of which a test must catch
	$(call say,sabotage)
	@$(PY) tools/sabotage $(ARGS)

# An environment with another torch, as PyPI has it (CUDA's libraries included: 5 GB), and what the tests need.
# It stays in build/torch for the next time.
VERSION ?= 2.9.1
OTHER := build/torch/$(VERSION)
test-torch: setup ## parity and the drop-in's tests with torch VERSION, from PyPI
	@if ! $(OTHER)/bin/python -c 'import pytest, torch' 2>/dev/null; then \
		echo "== installing torch $(VERSION) in $(OTHER)"; \
		rm -rf $(OTHER); $(PYTHON) -m venv $(OTHER); \
		awk -v RS= '!/^# (runtime|linters)/' requirements.txt >build/torch/requirements.txt; \
		$(quiet) torch-$(VERSION) $(OTHER)/bin/python -m pip install --disable-pip-version-check \
			torch==$(VERSION) "$$(grep '^numpy==' requirements.txt)"; \
		$(quiet) torch-$(VERSION)-tests $(OTHER)/bin/python -m pip install \
			--disable-pip-version-check --no-deps -r build/torch/requirements.txt; \
	fi
	$(call say,installing millhead in $(OTHER))
	@$(WITH_VENV); $(quiet) torch-wheel $(PY) -m pip wheel --no-build-isolation --no-deps --no-index \
		--disable-pip-version-check -w build/torch/wheel . -Cbuild-dir=build/installed \
		-Csetup-args=-Dtest_hooks=true; \
	$(quiet) torch-install $(OTHER)/bin/python -m pip install --no-deps --no-index --force-reinstall \
		--disable-pip-version-check build/torch/wheel/millhead-*.whl
	@$(OTHER)/bin/python tools/test-torch

# From documents, docstrings, headers and --help; the generator has an environment of its own.
docs: setup ## the documentation as a site with search, in build/site
	@if ! cmp -s docs/requirements.txt build/docs-env/requirements.installed; then \
		echo "== installing the generator of the site"; \
		rm -rf build/docs-env; $(PYTHON) -m venv build/docs-env; \
		$(quiet) docs-pip build/docs-env/bin/python -m pip install --no-deps \
			--disable-pip-version-check -r docs/requirements.txt; \
		cp docs/requirements.txt build/docs-env/requirements.installed; \
	fi
	$(call say,making the site)
	@$(PY) tools/docs-pages build/docs
	@$(quiet) docs build/docs-env/bin/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

fuzz: setup packages-fuzz ## every target of tests/fuzz for FUZZ_SECONDS seconds
	@$(WITH_VENV); [ -f build/fuzz/build.ninja ] || $(quiet) fuzz-configure \
		env CC=clang-19 meson setup build/fuzz -Dtests=true -Dfuzz=true -Dpython=false \
		-Db_sanitize=address$(comma)undefined -Db_lundef=false; \
	$(quiet) fuzz-compile ninja --quiet -C build/fuzz; \
	for program in $$(find build/fuzz/tests/fuzz -maxdepth 1 -type f -name 'fuzz_*'); do \
		name=$${program##*/fuzz_}; found=build/fuzz/corpus/$$name; mkdir -p "$$found"; \
		echo "== fuzzing $$name for $(FUZZ_SECONDS) s"; \
		$(quiet) "fuzz-$$name" "$$program" -max_total_time=$(FUZZ_SECONDS) -timeout=5 \
			-rss_limit_mb=512 -artifact_prefix="$$found-" "$$found" "tests/fuzz/corpus/$$name"; \
		tail -n 1 "build/log/fuzz-$$name.log"; \
	done

clean: ## remove everything that was built, and .venv
	rm -rf build dist .venv

.PHONY: help packages web-server venv setup build compile demo test bench wheel portable-wheel format check \
	tidy minimal asan tsan valgrind python-asan sabotage fuzz test-torch docs clean
