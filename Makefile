# `make report` shows what git has. Two commands do everything else: `make repro` and `make test`. Each sets up .venv first.
# `make help` lists the others, by the line above each. `make TORCH=cpu repro`, the first time, takes torch's build for a CPU.
PYTHON ?= python3
ACTIVATE := . .venv/bin/activate

.PHONY: repro report pages test test-slow test-all torture bench compare sweep lora deps readme unseen publish gpu clean-scratch docs notebook help

# What people give is data: it reaches Python as it was typed, in the environment, and no shell and no make reads it.
override TORCH := $(value TORCH)
override REV := $(value REV)
override TO := $(value TO)
override PARAM := $(value PARAM)
override METRIC := $(value METRIC)
override DATASET := $(value DATASET)
override COMMAND := $(value COMMAND)
override HOURS := $(value HOURS)
override BASE := $(value BASE)
override TUNED := $(value TUNED)
override TEXT := $(value TEXT)
override OUT := $(value OUT)
override MODULES_TO_SAVE := $(value MODULES_TO_SAVE)
override RANKS := $(value RANKS)
override NAME := $(value NAME)
override EVAL := $(value EVAL)
override HEADS := $(value HEADS)
override LEADING := $(value LEADING)
override THOROUGH := $(value THOROUGH)
override MINUTES := $(value MINUTES)
override FOLDER := $(value FOLDER)
override SOURCE := $(value SOURCE)
override EPOCHS := $(value EPOCHS)
override KEEP := $(value KEEP)
override FAULTS := $(value FAULTS)
override SEEDS := $(value SEEDS)
override STAGES := $(value STAGES)
override DATASETS := $(value DATASETS)
override DEVICE := $(value DEVICE)
override FIGURE := $(value FIGURE)
override PARAMS := $(value PARAMS)
override SEED := $(value SEED)
override LAB_WORKERS := $(value LAB_WORKERS)
override LAB_MIXED_CPUS := $(value LAB_MIXED_CPUS)
override MAX_MEMORY := $(value MAX_MEMORY)
export TORCH REV TO PARAM METRIC DATASET COMMAND HOURS MINUTES FOLDER SOURCE EPOCHS KEEP BASE TUNED TEXT OUT MODULES_TO_SAVE RANKS NAME EVAL HEADS LEADING THOROUGH FAULTS SEED SEEDS STAGES DATASETS DEVICE FIGURE PARAMS
export LAB_WORKERS LAB_MIXED_CPUS MAX_MEMORY

# The whole pipeline: data, runs, metrics, figures, claims, report.html
repro: .venv/installed
	$(ACTIVATE) && python -m tools.repro

# report.html of the results that are here, in a browser: nothing is run, and little is installed
report: .venv-report/report
	.venv-report/bin/python -m tools.show

# The report and the site of README, docs and the API, in site/, for a static host: nothing is run
pages: .venv-report/pages
	.venv-report/bin/python -m tools.show site

# Lint, types and the quick tests
test: .venv/installed
	$(ACTIVATE) && ruff check . && ruff format --check . && pyright && pytest -n 2 --no-loadscope-reorder -m "not slow"

# The long tests alone: kills and faults, a browser, the whole pipeline in a clone
test-slow: .venv/installed
	$(ACTIVATE) && pytest -n 2 --no-loadscope-reorder -m slow

# Both tiers of tests
test-all: test test-slow

# Faults, one after another, on a tiny pipeline, and a table of what became of them: FAULTS=60 SEED=0
torture: .venv/installed
	$(ACTIVATE) && python -m tests.faults.torture

# Side-by-side measurements, half an hour: benchmarks/README.md
bench: .venv/bench
	$(ACTIVATE) && python -m tools.unlock --project benchmarks && cd benchmarks && dvc repro

# What changed since a commit (REV=HEAD~3), or between two (TO=...): a table here, compare.html side by side
compare: .venv/installed
	$(ACTIVATE) && python -m tools.compare

# A metric of every experiment against a param: PARAM=vision.digits.train.learning_rate METRIC=vision/digits:test_accuracy
sweep: .venv/installed
	$(ACTIVATE) && python -m tools.sweep

# Adapters and a page from your own checkpoints: BASE=folder TUNED=folder TEXT=my.txt OUT=out [MODULES_TO_SAVE=yes] [RANKS=equal]
lora: .venv/installed
	$(ACTIVATE) && python -m tools.lora

# In dvc.yaml, the code that each stage imports
deps: .venv/installed
	$(ACTIVATE) && python -m tools.deps

# In README.md what came out, in docs/claims.md all items and claims
readme: .venv/installed
	$(ACTIVATE) && python -m tools.readme

# All families on seeds that set no bar, and which answers and verdicts turn: SEEDS=9000; as long as a cold run
unseen: .venv/installed
	$(ACTIVATE) && python -m tools.unseen

# Keep the results of a long run, with where they come from: DATASET=cifar10 HOURS=2.5 COMMAND="..."
publish: .venv/installed
	$(ACTIVATE) && python -m tools.publish

# With a GPU: checks, speed, the paper's CIFAR trainings within MINUTES=25; KEEP=folder of results, SOURCE=folder of CIFAR
gpu: .venv/installed
	$(ACTIVATE) && python -m tools.gpu

# A site of README, docs and the API, in site/: `python -m http.server -d site` shows it
docs: .venv/docs
	$(ACTIVATE) && python -m tools.site

# What a notebook of docs/ needs: Jupyter or an editor then finds its kernel, .venv
notebook: .venv/notebook
	@echo "open docs/first_head.ipynb in an editor that runs notebooks, with the Python of .venv as its kernel"

# Forget finished and interrupted trainings, which are kept so that they need not be trained again
clean-scratch:
	rm -rf .dvc/tmp/scratch

# This list
help:
	@awk '/^# /{said = substr($$0, 3); next} /^[a-z-]+:/{sub(":.*", ""); printf "make %-14s %s\n", $$0, said} {said = ""}' \
		Makefile

# What is installed, and extras: whatever is not whole there, or fits another folder or other requirements, is mended first.
.venv/installed .venv/docs .venv/notebook .venv/ray .venv/s3 .venv/bench .venv-report/report .venv-report/pages: FORCE
	@if $(@D)/bin/python -I -c "" 2>/dev/null; then $(@D)/bin/python -I tools/environment.py $(@F); \
		else $(PYTHON) -I tools/environment.py $(@F); fi

FORCE:
