# The targets of this project. `make help` lists them.

SHELL := /bin/bash
GO ?= go
# Kernels, sources and compiler results are kept outside the clone.
export COSCHED_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cosched
# setup puts a Go there if the system's is too old.
export PATH := $(COSCHED_CACHE)/go/bin:$(PATH)
export COSCHED_ROOT := $(CURDIR)
# A Go that is older than go.mod asks for fetches the right one.
export GOTOOLCHAIN ?= auto
COSLAB := bin/coslab
# The C library is installed there, and bin/cosched looks there for the object that it preloads.
prefix ?= /usr/local
libdir ?= $(prefix)/lib
# The Linux version that kernels are built from
BASE ?= $(or $(COSCHED_BASE),6.12)
export COSCHED_BASE := $(BASE)
VARIANT ?= test
SUITE ?= standard
SUITES := $(notdir $(basename $(wildcard tools/cosched/internal/bench/suites/*.json)))

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: setup
setup: ## install the packages that building and testing need (as root)
	@tools/setup.sh

.PHONY: coslab
coslab: ## build the developers' command, bin/coslab
	@tools/setup.sh
	@cd tools/cosched && $(GO) build -o ../../bin/ ./cmd/coslab

.PHONY: cosched
cosched: ## build bin/cosched, the users' command, bin/coschedd for systemd and bin/cosched-nri for Kubernetes, all static
	@tools/setup.sh
	@cd tools/cosched && CGO_ENABLED=0 $(GO) build -trimpath -o ../../bin/ \
		-ldflags='-s -w -X cosched.io/cosched/internal/command.softenDir=$(libdir)/cosched' ./cmd/cosched ./cmd/coschedd ./cmd/cosched-nri

.PHONY: man
man: ## write the manual pages of these programs to out/man
	@tools/setup.sh
	@cd tools/cosched && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null) $(GO) run ./internal/command/man ../../out/man

.PHONY: lib
lib: ## build the C library, and the object that cosched run --soften preloads, in lib/cosched
	@tools/setup.sh
	@$(MAKE) --no-print-directory -C tools/lib/cosched O=$(CURDIR)/lib/cosched

.PHONY: install-lib
install-lib: ## install the C library; DESTDIR, prefix, libdir and others as usual
	@$(MAKE) --no-print-directory -C tools/lib/cosched O=$(CURDIR)/lib/cosched install

.PHONY: install
install: cosched man ## install these programs with manual pages, completions, unit file and libvirt's hook; DESTDIR, prefix as usual
	@install -D -t $(DESTDIR)$(prefix)/bin bin/cosched
	@install -D -t $(DESTDIR)$(prefix)/sbin bin/coschedd bin/cosched-nri
	@install -D -m 644 -t $(DESTDIR)$(prefix)/share/man/man1 out/man/cosched*.1
	@install -D -m 644 -t $(DESTDIR)$(prefix)/share/man/man8 out/man/coschedd.8 out/man/cosched-nri*.8
	@install -d $(DESTDIR)$(prefix)/lib/systemd/system $(addprefix $(DESTDIR)$(prefix)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	@sed -e 's:/usr/sbin/coschedd:$(prefix)/sbin/coschedd:' -e 1d tools/cosched/systemd/coschedd.service >$(DESTDIR)$(prefix)/lib/systemd/system/coschedd.service
	@install -d $(DESTDIR)$(prefix)/share/cosched/libvirt
	@sed 's:/usr/bin/cosched:$(prefix)/bin/cosched:' contrib/libvirt/cosched >$(DESTDIR)$(prefix)/share/cosched/libvirt/cosched
	@chmod 755 $(DESTDIR)$(prefix)/share/cosched/libvirt/cosched
	@for c in cosched cosched-nri; do \
		bin/$$c completion bash >$(DESTDIR)$(prefix)/share/bash-completion/completions/$$c && \
		bin/$$c completion zsh >$(DESTDIR)$(prefix)/share/zsh/site-functions/_$$c && \
		bin/$$c completion fish >$(DESTDIR)$(prefix)/share/fish/vendor_completions.d/$$c.fish || exit; done

.PHONY: screenshots
screenshots: ## take the documentation's pictures of cosched top, in tmux
	@tools/setup.sh
	@cd tools/cosched && COSCHED_SCREENSHOTS=$(CURDIR)/Documentation/admin-guide $(GO) test -count=1 -run TestTerminal ./internal/command

.PHONY: kernel
kernel: coslab ## build the kernel; VARIANT=test|vanilla|off|debug|integration|large|nonumab|all, BASE=6.12|7.3
	@$(if $(filter integration all,$(VARIANT)),tools/setup.sh --integration)
	@$(COSLAB) kernel --variant $(VARIANT)

.PHONY: lab
lab: coslab ## build QEMU with parallel virtual time, for exact and repeatable guests
	@$(COSLAB) lab

.PHONY: demo
demo: coslab ## watch clusters keep their home on 16 CPUs
	@$(COSLAB) demo

.PHONY: fuzz
fuzz: coslab ## feed each parser unexpected input, FOR=20s each; RUN=REGEXP selects some
	@$(COSLAB) fuzz --for $(or $(FOR),20s) $(if $(RUN),--run '$(RUN)')

.PHONY: detect-cost
detect-cost: coslab ## measure from outside what cosched detect costs a program, as root; 5 minutes, results in out/detect-cost.json
	@mkdir -p out
	@$(COSLAB) cost --out out/detect-cost.json

.PHONY: bench-quick
bench-quick: coslab ## measure placement policies on machine models, three workloads; results in out/bench/quick
	@$(COSLAB) bench --suite quick --out out/bench/quick

.PHONY: bench
bench: coslab ## the same with the standard suite, or SUITE=NAME; results in out/bench/SUITE
	@$(COSLAB) bench --suite $(SUITE) --out out/bench/$(SUITE)

.PHONY: bench-all
bench-all: coslab ## the same with every suite, which takes hours
	@for suite in $(SUITES); do $(COSLAB) bench --suite $$suite --out out/bench/$$suite || exit; done

.PHONY: lint
lint: coslab ## check style and types: checkpatch, sparse, gofmt, vet, staticcheck, shellcheck, docutils
	@$(COSLAB) lint

.PHONY: matrix
matrix: coslab ## compile kernel/sched and kernel/cgroup in many configurations
	@$(COSLAB) matrix

.PHONY: test-long
test-long: coslab ## all of test, and placement with five seeds, automatic homes for longer, and races on CPUs that run in parallel
	@tools/setup.sh --long
	@COSCHED_LONG=1 $(COSLAB) test $(if $(RUN),--run '$(RUN)')

.PHONY: test-integration
test-integration: coslab ## tests with real systemd, libcgroup and container runtimes in guests of Debian
	@tools/setup.sh --integration
	@$(COSLAB) test --integration $(if $(RUN),--run '$(RUN)')

.PHONY: containers-table
containers-table: coslab ## update the table of what works with which container runtime in the documentation
	@tools/setup.sh --integration
	@COSCHED_TABLE=1 $(COSLAB) test --integration --run Containers

.PHONY: test
test: coslab ## run every check and test: lint, matrix, Go tests, guests; RUN=REGEXP selects some
	@$(COSLAB) test $(if $(RUN),--run '$(RUN)')
