# Two commands do everything: `make repro` and `make test`. Each sets up .venv first.
PYTHON ?= python3
ACTIVATE := . .venv/bin/activate

.PHONY: repro report test test-all bench compare sweep readme publish clean-scratch

repro: .venv/installed
	$(ACTIVATE) && dvc repro
	@echo "Done: open report.html; claims are in metrics/claims.json, figures in plots/."

# The report, made anew where something changed, in a browser.
report: .venv/installed
	$(ACTIVATE) && dvc repro report && python -m webbrowser -t report.html

test: .venv/installed
	$(ACTIVATE) && ruff check . && ruff format --check . && pyright && pytest -n 2 --no-loadscope-reorder -m "not slow"

# The long tier too: kills and faults, a browser, the whole pipeline in a clone.
test-all: .venv/installed
	$(ACTIVATE) && pytest -n 2 --no-loadscope-reorder

bench: .venv/bench
	$(ACTIVATE) && dvc repro benchmarks/dvc.yaml

# What changed since a commit (make compare REV=HEAD~3), or between two (TO=...): a table here, compare.html side by side.
REV ?= HEAD
compare: .venv/installed
	$(ACTIVATE) && python -m docs.compare '$(REV)' $(if $(TO),--new '$(TO)')

# A metric of every experiment against a param: make sweep PARAM=vision.digits.train.learning_rate METRIC=vision/digits:test_accuracy
sweep: .venv/installed
	$(ACTIVATE) && python -m docs.sweep '$(PARAM)' '$(METRIC)'

# The parts of README.md that are made from files: the claims, the graph of stages.
readme: .venv/installed
	$(ACTIVATE) && python -m docs.readme

# Keep the results of a long run, with where they come from: make publish DATASET=cifar10 HOURS=2.5 COMMAND="..."
publish: .venv/installed
	$(ACTIVATE) && python -m docs.publish '$(DATASET)' "$(COMMAND)" '$(HOURS)'

# Finished and interrupted trainings are kept in scratch, so that they need not be trained again; this forgets them.
clean-scratch:
	rm -rf .dvc/tmp/scratch

# The packages, and the page of `dvc plots show` that needs no network.
.venv/installed: requirements.txt docs/plots.py docs/plots.html
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(ACTIVATE) && python -m docs.plots .venv/plots.html && dvc config --local plots.html_template ../.venv/plots.html
	touch $@

.venv/bench: .venv/installed pyproject.toml
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	touch $@
