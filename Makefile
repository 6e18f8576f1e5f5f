# Everything a newcomer types. Environments are made on first use, in the user's cache folder (bin/environment).
# Another Python: PYTHON=python3.12 make demo

.DEFAULT_GOAL := help
.PHONY: help demo family test test-all tests test-beside test-parts test-cloud test-engine test-quiet test-slurm lint format pins clean-cache

# Where it is set, each of the thousands of processes that a test run starts would compile our code again.
unexport PYTHONDONTWRITEBYTECODE

CODE := configs flows lab tasks warehouse
# $(call timed,title,command): runs it and says how long it took.
timed = @start=$$(date +%s); $(2) && echo "$(1): $$(($$(date +%s) - start)) s"

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## measure a tiny model family on this machine, no GPU needed, and say where the report is
	@bin/environment --then-s 520 engine-cpu control node lm-eval >/dev/null
	@bin/sweep demo $(ARGS)

family: ## train the demo's tiny models anew, beside the shipped ones (5 minutes; 25 without AVX-512)
	@"$$(bin/environment engine-cpu)" -m tasks.family.training.build

test: ## lint, fast tests, the core of the slow ones and a quarter of the others: 30 minutes on two cores; what CI runs
	@$(MAKE) --no-print-directory tests SLOW=commit
	@"$$(bin/environment dev)" -m tests.quarters

test-all: ## lint and every test: more than an hour on two cores
	@$(MAKE) --no-print-directory tests SLOW=all

# The pocket cloud and the many small tests wait more than they work, and engines compute. Side by side they leave no core
# idle. Only what wants quiet rates comes behind them, alone.
tests:
	@bin/environment dev control node lab >/dev/null
	@bin/debian-packages rsync openssh-client iproute2 util-linux || true
	@$(MAKE) --no-print-directory -j3 test-cloud test-beside
	@$(MAKE) --no-print-directory test-quiet
	@"$$(bin/environment dev)" -m lab.requirements

test-beside:
	@bin/environment s3servers engine-cpu lm-eval inspect hret >/dev/null
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-engine test-parts

# All slow tests, or those of one quarter: make test-parts SLOW=commit
SLOW ?= all
PYTEST = "$$(bin/environment dev)" -m pytest --slow $(SLOW)
# The files with an engine or a cloud. Each group of theirs collects them all, so that all share them out in the same way.
HEAVY = $(sort $(shell grep -rlE --include='test_*.py' 'pytest\.mark\.(engine|cloud)' tests))

# By files, so that what the tests of one share is made once.
test-parts: ## the tests without an engine or a cloud, side by side
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "not engine and not cloud and not slurm"

test-cloud: ## the tests on the pocket cloud: the real SkyPilot, nodes made of namespaces, an engine that is mostly a fake
	@$(PYTEST) -m cloud $(HEAVY)

test-engine: ## the tests with the real vLLM, two files at a time
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "engine and not cloud and not quiet" $(HEAVY)

test-quiet: ## those with the real vLLM that want quiet rates, alone
	@$(PYTEST) -m quiet $(HEAVY)

test-slurm: ## opt-in, as root: a sweep on a real Slurm that takes a job away (Debian's slurm-wlm)
	@bin/environment dev node lab >/dev/null
	@bin/debian-packages slurmctld slurmd slurm-client munge openssh-server openssh-client rsync iproute2 util-linux
	@SPECSWEEP_SLURM=1 "$$(bin/environment dev)" -m pytest -m slurm

lint: ## ruff and mypy --strict
	$(call timed,ruff check,"$$(bin/environment dev)" -m ruff check .)
	$(call timed,ruff format,"$$(bin/environment dev)" -m ruff format --check .)
	$(call timed,mypy,"$$(bin/environment dev)" -m mypy --strict $(CODE))

format: ## rewrite all Python files in the one format
	@"$$(bin/environment dev)" -m ruff check --fix-only --quiet .
	@"$$(bin/environment dev)" -m ruff format .

pins: ## resolve requirements/*.in again into exact pins (needs uv)
	@requirements/compile.sh

clean-cache: ## remove every environment of this user (they are made again on use)
	cd "$${XDG_CACHE_HOME:-$$HOME/.cache}" && rm -rf specsweep/envs specsweep/uv specsweep/lab
