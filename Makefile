# Two commands: `make course` installs the course and builds its models, `make test` proves it. `make check` is the quick part of the tests,
# for every change. `make lab` opens the notebooks in JupyterLab, `make site` builds the site into workspace/site/html, and
# `make slides` writes slides of all notebooks. After `make wheelhouse`, `make course` needs no network.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# the server binary of chapter 7; the wheel's Python part, which the course does not use, asks for an old numpy: hence --no-deps
TRITON := nvidia-pytriton==0.7.0
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Python compiles the modules that it imports, a fifth of them all: compiling every one takes 50 s of the installation.
INSTALL := $(PIP) install --no-compile
# They stay compiled, also where the environment says otherwise: without, each training starts 3 s later.
unexport PYTHONDONTWRITEBYTECODE

# All packages as wheels, for machines without network.
WHEELS := wheelhouse
# what builds the course's own package
BUILD := hatchling editables
# What a wheelhouse is for: system, processor, Python and pins. The file is written when the wheelhouse is complete.
FOR := $(WHEELS)/for.txt
NEEDED = { $(BIN)/python -c 'import platform as p; print(p.system(), p.machine(), *p.python_version_tuple()[:2])'; cat requirements.txt; }

.PHONY: course chapter-5 chapter-6 check lint test tested rehearse lab site slides release wheelhouse clean

# The trainings of chapters 5 and 6 take one core each, so the laptop's profile runs them side by side.
SIDE_BY_SIDE := $(if $(filter-out tiny,$(COURSE_PROFILE)),1,2)

course: $(INSTALLED)
	@$(BIN)/course run 4
	@$(MAKE) --no-print-directory --jobs $(SIDE_BY_SIDE) chapter-5 chapter-6
	@$(BIN)/course run all

chapter-5 chapter-6:
	@$(BIN)/course run $(@:chapter-%=%)

# Two workers: tests/conftest.py says what stays together. The slowest files go first.
PYTEST := $(BIN)/python -m pytest tests -n 2 --no-loadscope-reorder --durations 12
SCHEMA := $(BIN)/check-jsonschema --builtin-schema

# The workers share the cores: one thread in each, and servers that they start do not spin while they wait.
check test tested rehearse: export OMP_NUM_THREADS := 1
course chapter-5 chapter-6 check test tested rehearse: export OMP_WAIT_POLICY := passive

check: lint
	$(PYTEST) -m "not slow"

# Lint runs beside the first notebooks: it keeps one core busy for a minute.
test: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs 2 lint tested

tested:
	$(PYTEST) -m "not rehearse"

# What takes longer: the profiles, JupyterLab, Chromium, Colab, Japanese edition, Ray, Slurm, S3, other interruptions.
rehearse: lint
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	PYTHONPATH=docs $(BIN)/python -m tests.words.textlint
	$(PYTEST) -m rehearse

lint: $(INSTALLED)
	$(BIN)/ruff check course_lib tests docs
	$(BIN)/ruff format --check course_lib tests docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	@# What of the Japanese edition is behind is listed and no error; a release needs --release.
	@$(BIN)/course words ja --check

lab: $(INSTALLED)
	$(BIN)/jupyter lab --notebook-dir=notebooks

# English, and Japanese in ja/. Warnings are errors, so that a link to a page or a section that is not there fails.
site: $(INSTALLED)
	@PYTHONPATH=docs $(BIN)/python -m course_site
	@echo "workspace/site/html/index.html; to search it, serve it: $(BIN)/python -m http.server -d workspace/site/html"

slides: $(INSTALLED)
	@PYTHONPATH=docs $(BIN)/python -m course_slides

# Packages and archives in workspace/release/VERSION, checked; nothing is published.
# With DOI=10.5281/zenodo.N it only writes that into CITATION.cff.
release: $(INSTALLED)
	@PYTHONPATH=docs $(BIN)/python -m course_release $(if $(DOI),--doi $(DOI))

clean:
	rm -rf $(VENV) workspace

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=…"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# pip skips the files that are there, so that an interrupted download goes on. Packages without a wheel are built into one.
wheelhouse: | $(BIN)/python
	@echo "downloading all packages into $(WHEELS) (once; about 4 minutes)"
	@mkdir -p $(WHEELS)
	@rm -f $(FOR)
	@$(PIP) download --dest $(WHEELS) --find-links $(WHEELS) "$$(grep '^torch==' requirements.txt)"
	@$(PIP) download --dest $(WHEELS) --find-links $(WHEELS) -r requirements.txt $(BUILD)
	@$(PIP) download --dest $(WHEELS) --find-links $(WHEELS) --no-deps $(TRITON) || echo "no Triton server for this machine"
	@for source in $$(ls $(WHEELS)/*.tar.gz $(WHEELS)/*.zip 2>/dev/null); do \
		$(PIP) wheel --no-deps --wheel-dir $(WHEELS) "$$source" && rm "$$source" || exit 1; done
	@$(NEEDED) > $(FOR)
	@echo "$(WHEELS): $$(ls $(WHEELS)/*.whl | wc -l) wheels, $$(du -sh $(WHEELS) | cut -f 1); make course installs from them"

# With a complete wheelhouse, nothing is taken from the network.
ifneq ($(wildcard $(FOR)),)
$(INSTALLED): export PIP_NO_INDEX := 1
$(INSTALLED): export PIP_FIND_LINKS := $(WHEELS)
endif

# torch goes first and alone: with it in place, nothing below asks for another build of it
$(INSTALLED): requirements.txt pyproject.toml | $(BIN)/python
	@test ! -e $(FOR) || $(NEEDED) | cmp -s - $(FOR) || { echo "$(WHEELS)/ is for another machine, Python or requirements.txt; run make wheelhouse again, or remove it"; exit 1; }
	@echo "installing into $(VENV) (once; about 3 minutes)"
	@$(INSTALL) "$$(grep '^torch==' requirements.txt)"
	@# The pins are complete, so two pips can unpack them, without solving; where a system needs a package more, pip check sees it.
	@sed 's/ *#.*//' requirements.txt | grep -v '^torch=' | xargs -n 140 -P 2 $(INSTALL) --no-deps
	@$(PIP) check > /dev/null || $(INSTALL) -r requirements.txt
	@$(INSTALL) --no-deps --editable .
	@# An installation by an earlier version leaves this folder, empty, which Python would take for the library.
	@rmdir $(VENV)/lib/python3*/site-packages/course_lib 2> /dev/null || true
	@$(INSTALL) --no-deps $(TRITON) || echo "no Triton server for this machine: chapter 7 answers with its reader instead"
	@touch $@
