# Everything a newcomer types. Environments are made on first use, in the user's cache folder (bin/environment).
# Another Python: PYTHON=python3.12 make demo

.DEFAULT_GOAL := help
.PHONY: help demo family test test-beside test-parts test-cloud test-lab test-engine test-slurm lint format pins clean-cache

# Where it is set, each of the thousands of processes that a test run starts would compile our code again.
unexport PYTHONDONTWRITEBYTECODE

CODE := configs flows lab tasks warehouse
# $(call timed,title,command): runs it and says how long it took.
timed = @start=$$(date +%s); $(2) && echo "$(1): $$(($$(date +%s) - start)) s"

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## measure a tiny model family on this machine, no GPU needed, and open the report
	@bin/environment control node engine-cpu lm-eval >/dev/null
	@bin/sweep demo $(ARGS)

family: ## train the demo's tiny models once (5 minutes, kept in the user's cache folder)
	@"$$(bin/environment engine-cpu)" -m tasks.family.build --json >/dev/null

test: ## all checks and tests: what CI runs
	@bin/environment dev control node lab >/dev/null
	@bin/debian-packages rsync openssh-client iproute2 util-linux || true
	@$(MAKE) --no-print-directory -j2 test-cloud test-beside
	@$(MAKE) --no-print-directory test-engine
	@"$$(bin/environment dev)" -m lab.requirements

# What the pocket cloud does not wait for: its nights take longest, and begin while the engines are still installed.
test-beside:
	@bin/environment s3servers engine-cpu lm-eval inspect hret >/dev/null
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j2 family test-parts
	@$(MAKE) --no-print-directory test-lab

test-parts: ## the tests without an engine or a cloud, side by side
	@"$$(bin/environment dev)" -m pytest -n 4 --dist worksteal -m "not engine and not cloud and not slurm"

test-cloud: ## the tests on the pocket cloud: the real SkyPilot, nodes made of namespaces, an engine that is a fake
	@"$$(bin/environment dev)" -m pytest -m "cloud and not engine and not lab"

test-lab: ## the pocket cloud's own tests: shorter than its nights, and done meanwhile
	@"$$(bin/environment dev)" -m pytest -m lab

test-engine: ## the tests with the real vLLM: by twos, those that want quiet rates alone
	@"$$(bin/environment dev)" -m pytest -m "engine and quiet"
	@"$$(bin/environment dev)" -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "engine and not quiet"

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
