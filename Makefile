# Each target sets up what it needs: a virtual environment in .venv with PyTorch, and torchneuron
# built in place. Both are kept, and redone only when what they come from has changed.
#
# Needs: make, g++ (12 or later), Python 3.11 or later with its venv module and headers
# (Debian and Ubuntu: apt-get install make g++ python3-venv python3-dev).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check
# Inside the environment, so that deleting it undoes them too.
STAMPS := $(VENV)/stamps
TORCH  := torch==2.13.0

CXX_SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.cc' -o -name '*.h')
CXX_TESTS   := $(wildcard tests/csrc/*.cc tests/csrc/*.h)

.DEFAULT_GOAL := help
.PHONY: help build demo test test-windows zoo conformance scoreboard roads refusals lint format \
        sanitize sanitize-asan sanitize-tsan bench clean

help:
	@echo "make demo      run the demonstration"
	@echo "make test      run all tests"
	@echo "make test-windows  run the eager tests twice in a process that fuses whatever it can"
	@echo "make zoo       run the tests of all models, which are too long for every change"
	@echo "make conformance  run all of PyTorch's op_db under torch.compile (resumes where it was stopped)"
	@echo "make scoreboard  run all of PyTorch's databases and write docs/scoreboard.* (resumes; OPTIONS=--quick)"
	@echo "make roads     write docs/roads.csv: where each operator is handled"
	@echo "make refusals  write torchneuron/eager/refusals.json: the dtypes that PyTorch's CPU refuses"
	@echo "make lint      check style and types"
	@echo "make format    put the style right"
	@echo "make sanitize  run the C++ tests with the address, undefined-behaviour and thread sanitizers"
	@echo "make bench     run the benchmarks"
	@echo "make clean     remove what the other targets made"

# ---- set-up

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "torchneuron needs Python 3.11 or later: set PYTHON=<path> (this is $$($(PYTHON) -V))."; exit 1; }
	@echo "== virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing (Debian and Ubuntu: apt-get install python3-venv)."; exit 1; }
	@mkdir -p $(@D) && touch $@

# PyTorch first and alone, so that nothing installed later chooses another one.
$(STAMPS)/torch: $(STAMPS)/venv
	@echo "== PyTorch"
	$(PIP) "setuptools>=77" ninja "$(TORCH)"
	@touch $@

$(STAMPS)/requirements: pyproject.toml data-packages.txt $(STAMPS)/torch
	@echo "== packages"
	$(PIP) xla-cpu-pjrt==0.0.1
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print("\n".join(p["dependencies"] + p["optional-dependencies"]["test"] \
	  + p["optional-dependencies"]["examples"]))' > $(STAMPS)/requirements.txt
	$(PIP) "$(TORCH)" -r $(STAMPS)/requirements.txt
	$(PIP) --no-deps -r data-packages.txt
	@touch $@

$(STAMPS)/build: setup.py $(CXX_SOURCES) $(STAMPS)/requirements
	@echo "== torchneuron (the first build takes a few minutes)"
	$(PIP) --no-build-isolation --no-deps --verbose -e .
	@touch $@

$(STAMPS)/lint: pyproject.toml $(STAMPS)/requirements
	@echo "== tools"
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print("\n".join(p["optional-dependencies"]["dev"]))' > $(STAMPS)/dev-requirements.txt
	$(PIP) -r $(STAMPS)/dev-requirements.txt
	@touch $@

build: $(STAMPS)/build

# ---- targets

demo: $(STAMPS)/build
	$(BIN)/python examples/demo.py

test: $(STAMPS)/build
	$(BIN)/python -m pytest -q -n auto -m "not zoo" tests

test-windows: $(STAMPS)/build
	TORCHNEURON_TEST_WINDOWS=1 $(BIN)/python -m pytest -q -s --keep-duplicates \
	  tests/eager tests/eager

zoo: $(STAMPS)/build
	$(BIN)/python -m pytest -q -n auto -m zoo tests/compile

conformance: $(STAMPS)/build
	TORCHNEURON_CACHE_DIR=build/test-programs $(BIN)/python -m tests.conformance.compiled

scoreboard: $(STAMPS)/build
	TORCHNEURON_CACHE_DIR=build/test-programs $(BIN)/python -m tests.conformance.scoreboard $(OPTIONS)

roads: $(STAMPS)/build
	$(BIN)/python -m tests.conformance.roads

refusals: $(STAMPS)/build
	$(BIN)/python -m tests.conformance.refusals

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES) $(CXX_TESTS)
	$(BIN)/mypy

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES) $(CXX_TESTS)

bench: $(STAMPS)/build
	$(BIN)/python benchmarks/eager.py

clean:
	rm -rf $(VENV) build dist *.egg-info torchneuron/_C*.so .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the C++ below Python with sanitizers: asan finds faults of memory and leaks, tsan data races

SAN       := build/sanitize
PACKAGES   = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
HEADER     = $(PACKAGES)/xla_plugins/xla_cpu_pjrt/include
XLA_CPU    = $(PACKAGES)/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so
SAN_FLAGS  = -std=c++20 -g1 -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer $(SANITIZE) \
             -MMD -MP -Icsrc -isystem $(HEADER) \
             -isystem $(PACKAGES)/torch/include
TORCH_LIBS = -L$(PACKAGES)/torch/lib -Wl,-rpath,$(PACKAGES)/torch/lib -lc10
$(SAN)/asan/%: SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
$(SAN)/tsan/%: SANITIZE := -fsanitize=thread

CORE    := $(wildcard csrc/pjrt/*.cc)
# The rest of csrc/runtime is what PyTorch asks for, which takes a PyTorch to ask.
RUNTIME := $(wildcard csrc/adaptive/*.cpp) $(addprefix csrc/runtime/, device.cpp dtype.cpp fork.cpp \
             heap.cpp queue.cpp storage.cpp value.cpp)
objects  = $(addsuffix .o, $(addprefix $(SAN)/$(1)/, $(basename $(2))))

# What a kind of sanitizer (the argument) builds.
define sanitized
$(SAN)/$(1)/%.o: %.cc | $(STAMPS)/requirements
	@mkdir -p $$(@D)
	$$(CXX) $$(SAN_FLAGS) -c $$< -o $$@

$(SAN)/$(1)/%.o: %.cpp | $(STAMPS)/requirements
	@mkdir -p $$(@D)
	$$(CXX) $$(SAN_FLAGS) -c $$< -o $$@

$(SAN)/$(1)/short.so: VARIANT := -DFAKE_LAST=PJRT_Client_AddressableDevices
$(SAN)/$(1)/major.so: VARIANT := -DFAKE_MAJOR=9
$(SAN)/$(1)/whole.so $(SAN)/$(1)/short.so $(SAN)/$(1)/major.so: tests/csrc/fake_plugin.cc \
    | $(STAMPS)/requirements
	@mkdir -p $$(@D)
	$$(CXX) $$(SAN_FLAGS) $$(VARIANT) -shared -fPIC $$< -o $$@

$(SAN)/$(1)/core_test: $(call objects,$(1),$(CORE) tests/csrc/core_test.cc)
	$$(CXX) $$(SAN_FLAGS) $$^ -ldl -pthread -o $$@

$(SAN)/$(1)/queue_test: $(call objects,$(1),$(CORE) $(RUNTIME) tests/csrc/queue_test.cc)
	$$(CXX) $$(SAN_FLAGS) $$^ $$(TORCH_LIBS) -ldl -pthread -o $$@

sanitize-$(1): $(addprefix $(SAN)/$(1)/, whole.so short.so major.so core_test queue_test)
	$$(RUN) $(SAN)/$(1)/core_test $(addprefix $(SAN)/$(1)/, whole.so short.so major.so) \
	  $$(XLA_CPU) $$(PACKAGES)/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
	$$(RUN) $(SAN)/$(1)/queue_test $$(XLA_CPU)
endef
$(eval $(call sanitized,asan))
$(eval $(call sanitized,tsan))

TSAN = ignore_noninstrumented_modules=1 suppressions=$(CURDIR)/tests/csrc/tsan.supp
sanitize-asan: RUN = TF_CPP_MIN_LOG_LEVEL=1
# PyTorch and the plugin are built without: what they read and write by libc's functions is left
# out. Where addresses are laid out too much at random for gcc's library, it can be asked for less.
sanitize-tsan: RUN = TF_CPP_MIN_LOG_LEVEL=1 TSAN_OPTIONS="$(TSAN)" \
                     $$(setarch -R true 2>/dev/null && echo setarch -R)

sanitize: sanitize-asan sanitize-tsan

-include $(foreach kind, asan tsan, $(patsubst %.o, %.d, \
             $(call objects,$(kind),$(CORE) $(RUNTIME) $(wildcard tests/csrc/*.cc))))
