# SPDX-License-Identifier: GPL-2.0
# kernbench: builds a part of Linux's tools/lib, as rows of `coslab bench` do in a guest,
# once for each cluster:
#   make -C LINUX -f kernbench.mk -j 8 O=FOLDER
# The targets carry-programs and carry-sources print what the guest needs for that.
#
# These are the files that take the compiler least, 16 to 105 million instructions each and
# 0.8 billion in all: a guest with a machine model executes some 40 million in a second.

MAKEFLAGS += -rR --no-print-directory
# By path: those of the distribution, not wrappers that somebody's PATH has first.
CC := /usr/bin/gcc
LD := /usr/bin/ld
CFLAGS := -O0 -w -std=gnu11 -D_GNU_SOURCE -Itools/include -Itools/include/uapi \
	-Itools/arch/x86/include -Itools/lib -Itools/lib/perf/include
SOURCES := $(addprefix tools/lib/,cmdline.c ctype.c hweight.c str_error_r.c vsprintf.c zalloc.c \
	api/cpu.c api/debug.c perf/core.c perf/xyarray.c subcmd/subcmd-config.c) \
	$(wildcard tools/lib/bpf/str_error.c) # not in 7.3
O ?= /tmp/kernbench

OBJECTS := $(SOURCES:%.c=$(O)/%.o)
FOLDERS := $(sort $(dir $(OBJECTS)))

$(O)/kernbench.o: $(OBJECTS)
	$(LD) -r -o $@ $^

$(OBJECTS): $(O)/%.o: %.c | $(FOLDERS)
	$(CC) $(CFLAGS) -c -o $@ $<

$(FOLDERS):
	mkdir -p $@

carry-programs:
	@echo $(CC) $(LD) /usr/bin/as /usr/bin/make $$($(CC) -print-prog-name=cc1)

# As rules, whose words are files but for targets and line ends.
carry-sources:
	@$(CC) $(CFLAGS) -M $(SOURCES)

.PHONY: carry-programs carry-sources
