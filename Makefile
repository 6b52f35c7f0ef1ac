# The front door: thin names over CMake presets.
PRESET ?= cpu
BUILD = build/$(PRESET)

all: build
build:
	cmake --preset $(PRESET) > build.log 2>&1 || cat build.log
	cmake --build $(BUILD)
.PHONY: all build
