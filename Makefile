# Tools are pinned here and run by version, so that go.mod stays the product's.
GO        ?= go
GOFUMPT   := mvdan.cc/gofumpt@v0.12.0
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOIMPORTS := golang.org/x/tools/cmd/goimports@v0.52.0
FUZZTIME  ?= 10s
ROUNDS    ?= 30
SOAK_ROUNDS ?= 252
FAULT_ROUNDS ?= 99

.PHONY: all fmt lint vet test test-race test-integration test-fault soak soak-cluster stalled test-pi test-readme fuzz-short fuzz-long bench cover cover-decoders build run-split image tidy-check deploy-check mutants clean

all: fmt lint test build

fmt:
	$(GO) run $(GOFUMPT) -l -w .
	$(GO) run $(GOIMPORTS) -local rejoin -l -w .

vet:
	$(GO) vet ./...

lint: vet
	$(GO) run $(GOLANGCI) run ./...

test:
	$(GO) test ./...

test-race:
	$(GO) test -race -short ./...

# Everything that starts a server, a child or a socket.
test-integration:
	$(GO) test ./tests/...

# The server is killed ROUNDS times in the middle of everything.
test-fault:
	KILL_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 30m -run TestKill ./tests/kill

# Every fault, many times, drawn by SOAK_SEED; what everybody saw is judged.
soak:
	SOAK_ROUNDS=$(SOAK_ROUNDS) $(GO) test -count=1 -timeout 90m -v -run TestSoak ./tests/soak

# Every fault of the split system, drawn by FAULT_SEED; three NATS servers and six roles.
soak-cluster:
	FAULT_ROUNDS=$(FAULT_ROUNDS) $(GO) test -count=1 -timeout 180m -v -run TestFaults ./tests/fault

# A thousand readers that do not read.
stalled:
	REJOIN_STALLED=full $(GO) test -count=1 -timeout 60m -v -run TestStalledReaders ./tests/stalled

# The real pi, installed by npm where the tests look for it.
test-pi:
	./tests/pi/install.sh
	REJOIN_REQUIRE_PI=1 $(GO) test -count=1 -v ./tests/pi

# The commands of README.md, as they stand there.
test-readme:
	README=1 $(GO) test -count=1 -run TestReadme ./tests/readme

fuzz-short fuzz-long:
	FUZZTIME=$(if $(filter fuzz-long,$@),10m,$(FUZZTIME)) ./.ci/fuzz

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

cover:
	$(GO) test -short -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1

# The frame and request decoders, by their unit tests: at least 95 % of each file.
cover-decoders:
	./.ci/cover-decoders

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o rejoin ./cmd/rejoin

# The whole split system on this machine, until Ctrl-C; ARGS are the script's.
run-split:
	./deploy/local-cluster.sh $(ARGS)

image:
	docker build -f deploy/Dockerfile -t rejoin .

tidy-check:
	$(GO) mod tidy -diff

# deploy/, by the tools that read it.
deploy-check:
	./.ci/deploy

# Each known mistake, put into a copy of the tree, must be found.
mutants:
	./tests/mutants/run.sh

clean:
	rm -rf rejoin dist cover.out
