# Two targets matter: `make demo` and `make test`. Both do all set-up by themselves.
# CARGO, PYTHON-side mirrors and proxies are taken from the environment as those tools understand it.

CARGO ?= cargo
TOOLSCOUT = target/release/toolscout

.PHONY: help build demo agent-demo test check clean-demo

help: ## Show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## Build in release
	$(CARGO) build --release --locked

demo: build ## Index the bundled catalog and show some searches
	@$(TOOLSCOUT) --data .demo --output table demo

agent-demo: build ## Show the agent at work with a scripted model, in the terminal and over SSE
	@TOOLSCOUT="$(TOOLSCOUT)" scripts/agent-demo

test: ## Run every test and doctest
	@CARGO="$(CARGO)" scripts/test

check: ## Format, lints, rustdoc and tests, as CI does
	@.ci/run

clean-demo: ## Forget the demo's catalog
	rm -rf .demo
