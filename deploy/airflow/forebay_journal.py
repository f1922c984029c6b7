"""A DAG for Airflow 3: each day Forebay's journal is compacted, audited, and reported on.

    compact → audit → report → done

Workers need `forebay-pipeline` on their PATH, in an environment of its own (`pip install '.[pipeline]'`), Java 17, and
Airflow's standard provider. Put this file into the folder of DAGs, and say in the workers' environment:

    FOREBAY_JOURNAL     journal.dir, or a copy of its closed files       /var/lib/forebay/journal
    FOREBAY_RESULTS     where Parquet, state and results are to go       /var/lib/forebay/results
    FOREBAY_BROKERS     the brokers themselves, not Forebay              kafka:9092

Exit codes of `forebay-pipeline audit`: 0, clean. 1, findings, and 2, it could not run: the task fails, and with it the
run. 3, nothing was found, but not all was there, or was followed: the task is skipped, which is told as a failure is,
and the run succeeds. In all these cases there is a report of the day before; after 2, without an audit in it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator  # type: ignore[import-not-found]
from airflow.providers.standard.operators.empty import EmptyOperator  # type: ignore[import-not-found]
from airflow.sdk import DAG  # type: ignore[import-not-found]

INCOMPLETE = 3


def tell(context: Any) -> None:
    """Tells people; put one of Airflow's notifiers in its place."""
    task = context["task_instance"]
    logging.getLogger(__name__).warning("Forebay's journal: %s needs a look (%s)", task.task_id, context["reason"])


def incomplete(context: Any) -> None:
    """An audit found nothing, but could not check everything; its log names what is missing."""
    tell({**context, "reason": "incomplete"})


def failed(context: Any) -> None:
    """Findings, or a job that could not run; its log has them."""
    tell({**context, "reason": "failed"})


with DAG(
    "forebay_journal",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # Two runs with the same checkpoint or state must not overlap.
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5), "on_failure_callback": failed},
) as dag:
    compact = BashOperator(
        task_id="compact",
        bash_command='forebay-pipeline compact --journal "${FOREBAY_JOURNAL:?}" '
        '--output "${FOREBAY_RESULTS:?}/parquet"',
    )
    audit = BashOperator(
        task_id="audit",
        # What it found once it would find again.
        retries=0,
        # Until ten minutes before the run began: what `compact` saw, however long it took, was whole until then.
        bash_command='forebay-pipeline audit --journal "$FOREBAY_RESULTS/parquet" '
        '--to "{{ (dag_run.start_date - macros.timedelta(minutes=10)).isoformat() }}" '
        '--bootstrap-servers "${FOREBAY_BROKERS:?}" '
        '--state "$FOREBAY_RESULTS/audit-state.json" --output "$FOREBAY_RESULTS/audit-{{ ts_nodash }}.json"',
        skip_on_exit_code=INCOMPLETE,
        on_skipped_callback=incomplete,
    )
    report = BashOperator(
        task_id="report",
        # An audit that could not run has left nothing: then without.
        bash_command='report() { forebay-pipeline report "$@" --journal "$FOREBAY_RESULTS/parquet" '
        "--from {{ macros.ds_add(ds, -1) }} --to {{ ds }} "
        '--output "$FOREBAY_RESULTS/{{ macros.ds_add(ds, -1) }}.html"; }; '
        'report --audit "$FOREBAY_RESULTS/audit-{{ ts_nodash }}.json" || report',
        trigger_rule="all_done",
    )
    # A run succeeds where what comes last does: this does unless something has failed.
    done = EmptyOperator(task_id="done", trigger_rule="none_failed")

    compact >> audit >> report
    [compact, audit, report] >> done
