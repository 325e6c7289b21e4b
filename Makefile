# Two commands do everything: `make repro` and `make test`. Each sets up .venv first.
PYTHON ?= python3
ACTIVATE := . .venv/bin/activate

.PHONY: repro report test test-slow test-all bench compare sweep readme publish clean-scratch

# What people give is data: it reaches Python as it was typed, in the environment, and no shell and no make reads it.
override REV := $(value REV)
override TO := $(value TO)
override PARAM := $(value PARAM)
override METRIC := $(value METRIC)
override DATASET := $(value DATASET)
override COMMAND := $(value COMMAND)
override HOURS := $(value HOURS)
export REV TO PARAM METRIC DATASET COMMAND HOURS

repro: .venv/installed
	$(ACTIVATE) && python -m tools.unlock && dvc repro
	@echo "Done: open report.html; claims are in metrics/claims.json, figures in plots/."

# The report, made anew where something changed, in a browser.
report: .venv/installed
	$(ACTIVATE) && python -m tools.unlock && dvc repro report && python -m webbrowser -t report.html

test: .venv/installed
	$(ACTIVATE) && ruff check . && ruff format --check . && pyright && pytest -n 2 --no-loadscope-reorder -m "not slow"

# The long tier alone: kills and faults, a browser, the whole pipeline in a clone.
test-slow: .venv/installed
	$(ACTIVATE) && pytest -n 2 --no-loadscope-reorder -m slow

test-all: test test-slow

bench: .venv/bench
	$(ACTIVATE) && python -m tools.unlock && dvc repro benchmarks/dvc.yaml

# What changed since a commit (make compare REV=HEAD~3), or between two (TO=...): a table here, compare.html side by side.
compare: .venv/installed
	$(ACTIVATE) && python -m tools.compare

# A metric of every experiment against a param: make sweep PARAM=vision.digits.train.learning_rate METRIC=vision/digits:test_accuracy
sweep: .venv/installed
	$(ACTIVATE) && python -m tools.sweep

# The parts of README.md that are made from files: the claims, the graph of stages.
readme: .venv/installed
	$(ACTIVATE) && python -m tools.readme

# Keep the results of a long run, with where they come from: make publish DATASET=cifar10 HOURS=2.5 COMMAND="..."
publish: .venv/installed
	$(ACTIVATE) && python -m tools.publish

# Finished and interrupted trainings are kept in scratch, so that they need not be trained again; this forgets them.
clean-scratch:
	rm -rf .dvc/tmp/scratch

# The packages, and the page of `dvc plots show` that needs no network.
.venv/installed: requirements.txt tools/plots.py tools/plots.html
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(ACTIVATE) && python -m tools.plots .venv/plots.html && dvc config --local plots.html_template ../.venv/plots.html
	touch $@

.venv/bench: .venv/installed pyproject.toml
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	touch $@
