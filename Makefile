# Two commands: `make course` installs and runs the course, `make test` proves it. `make check` is the quick part of the tests,
# for every change. `make lab` opens the notebooks in JupyterLab, `make site` builds the site into workspace/site/html.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# the server binary of chapter 7; the wheel's Python part, which the course does not use, asks for an old numpy: hence --no-deps
TRITON := nvidia-pytriton==0.7.0
INSTALLED := $(VENV)/.installed

.PHONY: course check lint test lab site clean

course: $(INSTALLED)
	@$(BIN)/course run all

# Two workers: tests/conftest.py says what stays together. The slowest files go first.
PYTEST := $(BIN)/python -m pytest tests -n 2 --no-loadscope-reorder --durations 12
SCHEMA := $(BIN)/check-jsonschema --builtin-schema

# The workers share the cores: one thread in each, and servers that they start do not spin while they wait.
check test: export OMP_NUM_THREADS := 1
check test: export OMP_WAIT_POLICY := passive

check: lint
	$(PYTEST) -m "not slow"

test: lint
	$(PYTEST)

lint: $(INSTALLED)
	$(BIN)/ruff check course_lib tests docs
	$(BIN)/ruff format --check course_lib tests docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff

lab: $(INSTALLED)
	$(BIN)/jupyter lab --notebook-dir=notebooks

# Warnings are errors, so that a link to a page or a section that is not there fails.
site: $(INSTALLED)
	$(BIN)/sphinx-build -q -W --keep-going -j auto -c docs -d workspace/site/doctrees . workspace/site/html
	@echo "workspace/site/html/index.html; to search it, serve it: $(BIN)/python -m http.server -d workspace/site/html"

clean:
	rm -rf $(VENV) workspace

# torch goes first and alone: with it in place, nothing below asks for another build of it
$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=…"; exit 1; }
	@echo "installing into $(VENV) (once; about 4 minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.txt)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(TRITON) \
		|| echo "no Triton server for this machine: chapter 7 answers with its reader instead"
	@$(BIN)/python -m course_lib.training.cpu_extension || true
	@touch $@
