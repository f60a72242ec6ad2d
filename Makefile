# Waybill's commands. `make` alone lists them.
#
# Everything lives in the checkout: the environment in .venv, installed from the lock files in requirements/ and brought up to date whenever
# one of them or pyproject.toml changes. Nothing here needs root; `make test` asks for it once, to install the servers that it tests with.

PORT = 8700
DATA = waybill-data
ONLY =
UPGRADE =

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes
.PHONY: help install run test test-long check docs screenshots bench lock package clean

help:  ## list these commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# A stamp is newer than what it was made from, or the environment is brought up to date. requirements/test.txt holds all of run.txt.
.venv/.has-%: requirements/%.txt pyproject.toml tools/environment
	@tools/environment $*
	@touch $@
.venv/.has-test: requirements/validators.txt

install: .venv/.has-run  ## make the environment .venv, so that .venv/bin/waybill works
	@echo "Ready: .venv/bin/waybill"

run: .venv/.has-run  ## start on SQLite and a folder, on loopback, and print the URL; PORT=8700, DATA=folder (without it: with a demonstration)
	@exec .venv/bin/waybill up --data "$(DATA)" --port "$(PORT)" $(if $(filter file,$(origin DATA)),--demo)

# Three at a time: on two cores they wait as long as they work.
test: .venv/.has-test  ## set up and pass everything: the checks, then the whole suite on real servers; ONLY=ingest for one application
	@tools/system-packages
	@$(MAKE) check
	.venv/bin/pytest -n 3 --dist worksteal $(if $(ONLY),--only "$(ONLY)")

test-long: .venv/.has-test  ## the same with the full counts (an hour or two); ONLY=ingest for one application
	@tools/system-packages
	@$(MAKE) check
	WAYBILL_BUDGET=long .venv/bin/pytest -n 4 --dist worksteal --timeout 7200 $(if $(ONLY),--only "$(ONLY)")

check: .venv/.has-test  ## lint, strict types, layers, generated pages, changelog
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python tools/docs.py --check
	.venv/bin/python tools/changelog.py

docs: .venv/.has-test  ## write the generated pages of docs/ anew
	.venv/bin/python tools/docs.py

screenshots: .venv/.has-test  ## write the pictures of docs/ anew, from a demonstration that runs in a temporary folder
	.venv/bin/python -m tools.screenshots

bench: .venv/.has-test .venv/.has-bench  ## measure against the peers, one line a figure; ONLY=engine for one part; exit 1 under a goal
	@tools/system-packages
	@.venv/bin/python -m benchmarks $(ONLY)

package: .venv/.has-run  ## build the wheel dist/waybill_engine-*.whl, to be installed elsewhere; nothing is fetched
	@rm -rf build dist/waybill_engine-*.whl
	.venv/bin/python -m pip --disable-pip-version-check -q wheel --no-deps --no-build-isolation --no-index --wheel-dir dist .
	@ls dist/waybill_engine-*.whl

lock: .venv/.has-test  ## pin the dependencies of pyproject.toml anew in requirements/; UPGRADE=1 takes the newest of all
	@tools/lock $(if $(UPGRADE),--upgrade)

clean:  ## remove the environment and all caches; your data stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
