# The front door: thin names over CMake presets and the program itself.
#
#   make            build build/cpu/moonreel and its plug-ins
#   make demo       set up, build, train the tiny model, render and measure: build/demo/result
#   make demo-latent  the same in a latent that is learned first: build/demo/result-latent
#   make test       set up, build, run every spec; last line: N passed, N failed
#   make specs      build what make test runs
#   make lint       is the text in the house's form? (the first part of make test)
#   make demo-i2v   train and judge the model that goes on from a first frame
#   make demo-data  render the demo clips and index them: build/demo/demo.mrx
#   make bench      run the benchmarks
#   make golden     compare with reference numbers: GOLDEN=DIR (default: the ones in spec/golden)
#   make asan       every spec with address and undefined-behaviour sanitizers
#   make tsan       C specs of the rooms that start threads with the thread sanitizer: ROOMS="exec index data comm run ckpt"
#   make cuda       build the CUDA plug-in where nvcc is installed; runs nothing on a GPU
#   make install    to PREFIX (default /usr/local); DESTDIR is respected
#   make setup      install missing Debian packages (packages/debian.txt)
#   make clean      remove build/

PRESET ?= cpu
PREFIX ?= /usr/local
GOLDEN ?= spec/golden
ROOMS ?= exec index data comm run ckpt
BUILD = build/$(PRESET)
MOONREEL = $(BUILD)/moonreel
DEMO = build/demo
SPACE = $() $()

build: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

specs: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target specs

# the log is shown only when configuring fails; later changes of CMake files are ninja's business
$(BUILD)/build.ninja: CMakePresets.json
	@command -v cmake >/dev/null || { echo "cmake is missing: run 'make setup' first" >&2; exit 1; }
	@mkdir -p $(BUILD)
	@cmake --preset $(PRESET) > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log >&2; exit 1; }
	@touch $@

setup:
	@scripts/setup

test: setup
	@$(MAKE) --no-print-directory specs
	@scripts/test $(BUILD)

lint:
	@scripts/lint

# specs ask for impossible sizes on purpose: they expect NULL, as from malloc. What is undefined ends a spec, too
asan: setup
	@$(MAKE) --no-print-directory specs PRESET=asan
	@SPEC_LIMIT=3600 ASAN_OPTIONS=allocator_may_return_null=1:$$ASAN_OPTIONS UBSAN_OPTIONS=halt_on_error=1:$$UBSAN_OPTIONS \
	    scripts/test build/asan

# oneDNN is left out: its thread library is not built for the sanitizer, which would call every hand-over
# between its threads a race. Fixed addresses, where the system grants them, because the
# sanitizer has its own plan of memory.
tsan: setup
	@$(MAKE) --no-print-directory build/tsan/build.ninja PRESET=tsan
	@cmake --build build/tsan --target $(ROOMS:%=specs_%)
	@TSAN_OPTIONS=allocator_may_return_null=1:$$TSAN_OPTIONS $$(setarch -R true 2>/dev/null && echo setarch -R) \
	    ctest --test-dir build/tsan -j 2 --output-on-failure --no-tests=error --timeout 600 \
	    -R '^core/($(subst $(SPACE),|,$(strip $(ROOMS))))/'

demo: setup
	@$(MAKE) --no-print-directory demo-data
	@$(MOONREEL) datasets/demo/run.lua --out $(DEMO)/result

demo-latent: setup
	@$(MAKE) --no-print-directory demo-data
	@$(MOONREEL) datasets/demo/run.lua --recipe tiny/demo_latent --out $(DEMO)/result-latent

demo-i2v: setup
	@$(MAKE) -s --no-print-directory build $(DEMO)/i2v.mrx/data.sum
	@$(MOONREEL) datasets/demo/build_weights.lua $(DEMO)/weights > /dev/null
	@$(MOONREEL) datasets/demo/run.lua --recipe tiny/i2v --out $(DEMO)/result-i2v

demo-data: build
	@$(MAKE) -s --no-print-directory $(DEMO)/demo.mrx/data.sum

# clips lie in a folder named after the scripts that drew them and never change there: a run that reads
# them goes on, and keeps its open index, while this makes others
# (core/index/store.h: the format of indexes)
$(DEMO)/demo.mrx/data.sum: $(wildcard datasets/demo/*.lua) core/index/store.h
	@clips=$(DEMO)/clips-$$(cat $(filter %.lua,$^) | cksum | cut -d' ' -f1); \
	test -d $$clips || { rm -rf $$clips.tmp; \
	    $(MOONREEL) datasets/demo/build.lua $$clips.tmp && mv -T $$clips.tmp $$clips; } && \
	$(MOONREEL) data ingest $$clips/demo.csv -o $(DEMO)/demo.mrx

$(DEMO)/i2v.mrx/data.sum: $(wildcard datasets/demo/*.lua) core/index/store.h
	@clips=$(DEMO)/i2v-$$(cat $(filter %.lua,$^) | cksum | cut -d' ' -f1); \
	test -d $$clips || { rm -rf $$clips.tmp; \
	    $(MOONREEL) datasets/demo/build.lua $$clips.tmp 1 6 motion && mv -T $$clips.tmp $$clips; } && \
	$(MOONREEL) data ingest $$clips/demo.csv -o $(DEMO)/i2v.mrx

bench: build
	@$(MOONREEL) bench

golden: build
	@$(MOONREEL) golden $(GOLDEN)

install: build
	@cmake --install $(BUILD) --prefix '$(PREFIX)'

cuda:
	@scripts/cuda

clean:
	@rm -rf build

.PHONY: build specs setup test lint asan tsan demo demo-latent demo-i2v demo-data bench golden install cuda clean
.DEFAULT_GOAL := build
