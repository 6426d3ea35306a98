# Two commands: `make course` installs and runs the course, `make test` proves it. `make lab` opens it in JupyterLab.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# the server binary of chapter 7; the wheel's Python part, which the course does not use, asks for an old numpy: hence --no-deps
TRITON := nvidia-pytriton==0.7.0
INSTALLED := $(VENV)/.installed

.PHONY: course test lab clean

course: $(INSTALLED)
	@$(BIN)/course run all

test: $(INSTALLED)
	$(BIN)/ruff check course_lib tests
	$(BIN)/ruff format --check course_lib tests
	$(BIN)/mypy
	$(BIN)/python -m pytest tests

lab: $(INSTALLED)
	$(BIN)/jupyter lab --notebook-dir=notebooks

clean:
	rm -rf $(VENV) workspace

# torch goes first and alone: with it in place, nothing below asks for another build of it
$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=…"; exit 1; }
	@echo "installing into $(VENV) (once; about 2 minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.txt)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(TRITON) \
		|| echo "no Triton server for this machine: chapter 7 answers with its reader instead"
	@touch $@
