"""Tables as DuckDB sees them, by readers that share nothing with Spark: pyiceberg and deltalake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable

from forebay_pipeline.journal.tables import NAMES, Format


def count_by_table(folder: Path, table_format: Format, column: str) -> dict[str, tuple[int, int]]:
    """Table → its rows, and how many values of a column they have."""
    there = [name for name in NAMES if (folder / name).is_dir()]
    return {name: _counts(_arrow(folder / name, table_format), column) for name in there}


def count_in_catalog(catalog: Catalog, namespace: str, column: str) -> dict[str, tuple[int, int]]:
    """The same of Iceberg's tables that a catalog has."""
    tables = {name: catalog.load_table((*above, name)) for *above, name in catalog.list_tables(namespace)}
    return {name: _counts(table.scan().to_arrow(), column) for name, table in tables.items()}


def _arrow(table: Path, table_format: Format) -> Any:
    if table_format == "delta":
        return DeltaTable(table).to_pyarrow_dataset()
    version = (table / "metadata" / "version-hint.text").read_text().strip()
    return StaticTable.from_metadata(str(table / "metadata" / f"v{version}.metadata.json")).scan().to_arrow()


def _counts(rows: Any, column: str) -> tuple[int, int]:
    found = duckdb.sql(f"SELECT count(*), count(DISTINCT {column}) FROM rows")
    assert found is not None
    ((count, distinct),) = found.fetchall()
    return int(count), int(distinct)
