"""The engine and the command line.

What Python programs call (docs/python.md) are the functions behind the commands, each with its configuration:

- `nas.controller.search.run_search(SearchConfig)` and `nas.controller.new_limits.search_again`: `nas search`
- `nas.finetune.run.finetune`: `nas finetune`
- `nas.bundles.exporting.export_bundle(ExportRequest)` and `nas.bundles.verify.verify_bundle`: `nas export`
- `nas.bundles.predictor.Predictor`: uses a bundle
- `nas.bench.bench.run_bench(BenchConfig, Progress)`: `nas bench`
- `nas.targets.profiling.profile_this_host`, `nas.targets.registry.list_targets`: `nas profile`, `nas targets`

Each raises `nas.errors.UserError` for what its caller can put right. Accuracies are fractions, latencies milliseconds.
"""

__version__ = "0.1.0"
