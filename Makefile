# The ten things that are done to this project; each is one command of a tool
# that is also named in CONTRIBUTING.md. `make` alone lists them.

LINTER = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.1
VULNS  = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
PYTHON = python3

.DEFAULT_GOAL := help
.PHONY: help vulnerabilities build test measure explore lint generate docs release bench clean

help:
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build: ## the program, as ./testbed
	CGO_ENABLED=0 go build -trimpath ./cmd/testbed

test: ## the tests that do not depend on the load of the machine, about six minutes
	go test ./...

measure: ## the tests that judge times and rates; they want the machine for themselves
	go test -p 1 -timeout 40m -run Measured ./test/... ./vagrant/...

explore: ## the random tests with fresh seeds, for ten minutes
	go run ./internal/explore -for 10m

lint: vulnerabilities ## the linters, and known vulnerabilities
	$(LINTER) fmt --diff
	$(LINTER) run

vulnerabilities:
	$(VULNS) ./...

generate: ## what is made from the code: the schema, the Python fields, the references of fields and commands
	go test ./scenarios/schema -update
	go test ./cmd/testbed -run Reference -update
	go test ./report -run PageOfFields -update
	$(PYTHON) python/tools/fields.py

docs: ## the notebooks as pages; needs ./python[dev]
	$(PYTHON) python/tools/notebooks.py

release: ## archives, packages, wheels, the image and checksums, in dist/
	internal/release/release.sh

bench: ## the int8 kernels against memcpy, and the ring on two links
	go run ./cmd/testbed bench kernel
	go run ./cmd/testbed bench ring
	go run ./cmd/testbed bench ring --rate 100mbit --delay 1ms

clean: ## what the targets above leave behind
	rm -rf testbed dist build python/dist python/build .mypy_cache .ruff_cache
