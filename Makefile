# Short names for dev.py, which does the work and needs nothing but Python 3.11 or newer:
# where there is no make, `python3 dev.py demo` is the same. Arguments: make test ARGS="tests/domain -x", make demo MANUAL=1.
PYTHON ?= python3

demo test serve lint soak bench setup:
	@$(PYTHON) dev.py $@ $(ARGS)

.PHONY: demo test serve lint soak bench setup
