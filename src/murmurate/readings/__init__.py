"""Readings of meters, from bodies and files to columns.

The service is strict: `text_lines`, `parquet` and `green_button` parse bodies into a `batch`. An import knows dialects:
it reads a file as rows (`table_files`), finds its `columns`, parses cells (`cell_values`), spools and merges readings
(`merge`) and writes one form (`imported_file`). Evaluate, backtest, habits and forecast read that form alone.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
