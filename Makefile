# quorate: `make demo` and `make test` are all that a newcomer needs.
# Every target obtains what it misses; a second run reuses it.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
# Where the private MySQL lives when no other one is named.
MYSQL   ?= $(CURDIR)/.mysql
# The server that demo, tests and benchmarks use.
export QUORATE_MYSQL_BASE ?= $(MYSQL)
# Where the systems that the lab compares quorate with live, likewise.
RIVALS  ?= $(CURDIR)/.rivals
export QUORATE_RIVALS ?= $(RIVALS)
DEMO_FLAGS ?=
SEEDS      ?= 1..200
# Nightly: the seeds of each simulated world, and how often the end-to-end tests run.
SOAK_SEEDS ?= 1..6000
# The simulator's worlds, by the options that ask for each: docs/simulation.md.
SOAK_WORLDS = "-nodes 3" "-nodes 5" "-nodes 3 -members 1" "-nodes 5 -members 1" "-nodes 3 -members 2" "-nodes 5 -members 3" \
	"-blips" "-blips -members 1" "-losses 1" "-nodes 5 -losses 1" "-xa 1" "-appliers 1" "-late-clocks"
SOAK_RUNS  ?= 3
PLAN       ?= smoke
LAB_FLAGS  ?=
NOW        := $(shell date +%Y-%m-%d-%H%M%S)
BENCH_OUT  ?= lab-results/bench-$(NOW)
BENCH_FLAGS ?=

.PHONY: help demo check test soak build release packages packages-test site vulncheck mysql lint bench apicheck fuzz sim mutate large drivers mysql80 rivals kubecheck lab clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

demo: mysql build ## three nodes, real writers, a SIGKILL of the primary, a ledger check
	bin/quorate demo $(DEMO_FLAGS)

# Packages without the tests that need the machine for themselves.
UNITS = $$($(GO) list ./... | grep -v -e /test/e2e -e /test/large)

check: lint ## before each commit: lint, short tests, seeds of the simulator (2 minutes)
	$(GO) test -short -vet=off -p 4 $$(echo "$(UNITS)" | grep -v /testkit/lint$$) # lint has run that, and more of go vet
	$(MAKE) sim SEEDS=601..700 # TestFixedSeeds has those before

# The simulator needs no real time: it computes while servers wait, and gives way to them (chrt -i). Most packages wait, too: so
# four at once. Lint has what vet finds, and more. -count=1: the lab's tests build the program, and do not import it; an older
# result of them says nothing about it. -s: nobody debugs these programs, and that is half of linking. The lab's package peers
# takes as long as all others, and so begins first. All else writes to memory, if there is room (scripts/test-tmpdir.sh): in the
# lab, MariaDB has other settings there.
test: mysql ## every test, from unit tests to real mysqld
	mkdir -p bin; cc -shared -fPIC -O2 -nostdlib -o bin/ticks.so scripts/ticks.c || rm -f bin/ticks.so
	[ ! -e bin/ticks.so ] || export LD_PRELOAD=$(CURDIR)/bin/ticks.so; export GOFLAGS="$$($(GO) env GOFLAGS) -ldflags=-s"; \
	chrt -i 0 $(GO) test -vet=off -timeout 60m ./internal/testkit/sim & sim=$$!; \
	$(GO) -C lab test -count=1 -vet=off -timeout 60m -p 2 ./peers ./... & lab=$$!; export TMPDIR="$$(scripts/test-tmpdir.sh)"; \
	$(GO) test -vet=off -timeout 20m -p 4 $$(echo "$(UNITS)" | grep -v '/internal/testkit/sim$$'); rc=$$?; wait $$lab || rc=1; \
	[ $$rc != 0 ] || $(GO) test -vet=off -timeout 60m ./test/e2e || rc=1; \
	wait $$sim && exit $$rc

soak: mysql mutate ## nightly: all mutations, SOAK_SEEDS=1..6000 of each world, e2e SOAK_RUNS=3 times (hours)
	for world in $(SOAK_WORLDS); do $(GO) run ./internal/testkit/sim/cmd -seeds $(SOAK_SEEDS) $$world || exit; done
	QUORATE_E2E_LONG=1 $(GO) test -timeout 8h -count=$(SOAK_RUNS) ./test/e2e

build: ## bin/quorate and bin/quorate-lab
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/quorate
	$(GO) -C lab build -trimpath -o ../bin/ ./cmd/quorate-lab

# The same commit, version and toolchain make the same bytes, on any machine: so no cgo. (A binary
# without it looks for accounts and groups in /etc/passwd and /etc/group alone.)
release: ## dist/: quorate for linux amd64 and arm64, what it is made of (CycloneDX), SHA256SUMS
	rm -rf dist && mkdir dist
	for arch in amd64 arm64; do name=quorate-$(VERSION)-linux-$$arch; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o dist/$$name ./cmd/quorate && \
		$(GO) -C tools run ./sbom $(VERSION) ../dist/$$name >dist/$$name.cdx.json || exit; done
	cp packaging/quorate*.service packaging/quorate*.timer dist/
	cd dist && sha256sum * >SHA256SUMS

packages: release ## deb, rpm and tarball of what release makes, in dist/
	GO=$(GO) scripts/packages.sh $(VERSION)

packages-test: packages ## deb and rpm installed, upgraded and removed in a Debian 12 of its own (as root, with debootstrap)
	scripts/packages-test.sh dist

site: ## the documentation as a site in dist/site, by mdBook (cargo builds it, once)
	scripts/site.sh

vulncheck: ## known holes in what bin/quorate is made of (asks a database on the internet)
	GO=$(GO) scripts/vulncheck.sh

mysql: ## a private MySQL server in .mysql, unless QUORATE_MYSQL_BASE names one
	@if [ "$(QUORATE_MYSQL_BASE)" = "$(MYSQL)" ]; then scripts/get-mysql.sh "$(MYSQL)"; fi

lint: ## gofmt, go vet, staticcheck, the repository's own rules
	@unformatted=$$(gofmt -l cmd internal lab packaging test); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) -C lab vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) -C lab tool -modfile=../tools/go.mod staticcheck ./...
	$(GO) -C tools vet ./sbom && $(GO) -C tools test ./sbom
	$(GO) -C packaging vet ./... && $(GO) -C packaging test ./...
	$(GO) test ./internal/testkit/lint

bench: mysql rivals build ## quorate beside one server and async replication, failovers, the log (as root, 20 minutes)
	bin/quorate-lab run bench --out $(BENCH_OUT) $(BENCH_FLAGS)
	cat $(BENCH_OUT)/summary.md
	$(GO) test -run '^$$' -bench . -benchtime 3s ./internal/log/seglog

sim: ## many whole clusters on virtual time, SEEDS=1..200
	$(GO) run ./internal/testkit/sim/cmd -seeds $(SEEDS)

mutate: ## break production code line by line: the simulator must notice
	$(GO) test -count=1 -timeout 60m -tags mutation -v ./test/mutation

large: mysql ## transactions of 1 and 4 GiB; 20 GiB (QUORATE_LARGE_GIB) adopted, backed up, restored; agents held to 256 MiB (60 GiB of disk)
	$(GO) test -tags large -count=1 -timeout 4h -v ./test/large

DRIVERS ?= $(CURDIR)/.drivers
drivers: mysql rivals ## four drivers through the clients' ports, Debezium, Canal and gh-ost at the readers', over failovers
	scripts/get-drivers.sh "$(DRIVERS)"
	QUORATE_DRIVERS="$(DRIVERS)" $(GO) test -count=1 -timeout 30m -v ./test/drivers
	QUORATE_DRIVERS="$(DRIVERS)" $(GO) test -count=1 -timeout 30m -v ./test/e2e -run 'TestDebezium$$|TestCanal$$|TestGhOst$$'

MYSQL80 ?= $(CURDIR)/.mysql80
mysql80: mysql ## what goes without plugins, with mysqld 8.0.31 from Maven
	scripts/mysql80.sh "$(MYSQL80)"

rivals: ## the lab's other systems and sysbench in .rivals, unless QUORATE_RIVALS names a directory
	@if [ "$(QUORATE_RIVALS)" = "$(RIVALS)" ]; then scripts/get-rivals.sh "$(RIVALS)"; fi

lab: mysql rivals build ## quorate and its rivals side by side, PLAN=smoke (as root, minutes)
	bin/quorate-lab run $(PLAN) $(LAB_FLAGS)

kubecheck: ## the example for Kubernetes against the types of Kubernetes (pip install kubernetes-validate)
	kubernetes-validate --strict packaging/kubernetes/quorate.yaml

apicheck: ## schemathesis against an agent, URL=http://127.0.0.1:7401 and QUORATE_TOKEN (it operates: a demo's)
	scripts/api-check.sh $(URL)

fuzz: ## every fuzz target, for FUZZTIME=1h together
	GO=$(GO) scripts/fuzz.sh

clean: ## what the targets made, but for .mysql, .rivals, .mdbook and lab-results
	rm -rf bin dist
