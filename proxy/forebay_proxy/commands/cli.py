"""The command `forebay`.

    forebay run --bootstrap-servers HOST:PORT,… --listen HOST:PORT [--set linger.ms=5]…
    forebay config      every setting with its default and what it is now; checks a file on the way
    forebay clients     who is connected, and who is too old for Kafka 4
    forebay demo        what it does, on an embedded cluster
    forebay --version

Exit codes: 2 for wrong settings or a wrong command line; for the rest see lifecycle.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import click

from forebay_proxy import __version__, logs
from forebay_proxy.commands import config as config_view
from forebay_proxy.config.settings import Servers
from forebay_proxy.config.sources import CONFIG_VARIABLE, Loaded, SettingsError, Sources, load
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.errors import StartError
from forebay_proxy.process.lifecycle import FAILED, WRONG_SETTINGS
from forebay_proxy.produce.partitioner_plugins import known_partitioners

F = TypeVar("F", bound=Callable[..., Any])

FLAGS: Final = ("bootstrap.servers", "listen", "advertised.host", "admin", "workers")
"""Settings with a flag of their own; all others are given by --set."""


def _flag(name: str) -> str:
    return "--" + name.replace(".", "-")


def setting_options(command: F) -> F:
    """--config, --set and the flags."""
    for name in reversed(FLAGS):
        setting = SETTINGS[name]
        command = click.option(
            _flag(name),
            metavar=_METAVARS[name],
            help=setting.description[0].upper() + setting.description[1:] + ".",
        )(command)
    command = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any setting, such as linger.ms=5; several times. `forebay config` lists all.",
    )(command)
    return click.option("--config", metavar="FILE.toml", help=f"Settings in a TOML file (or {CONFIG_VARIABLE}).")(
        command
    )


_METAVARS: Final = {
    "bootstrap.servers": "HOST:PORT,…",
    "listen": "HOST:PORT",
    "advertised.host": "HOST",
    "admin": "HOST:PORT",
    "workers": "N",
}


def _load(options: dict[str, Any], complete: bool) -> Loaded:
    """Settings from everywhere; leaves with 2 and every problem where something is wrong."""
    flags = {_flag(name): (name, value) for name in FLAGS if (value := options[name.replace(".", "_")]) is not None}
    sources = Sources(options["config"], os.environ, options["assignments"], flags)
    try:
        return load(sources, known_partitioners(), complete)
    except SettingsError as error:
        count = len(error.problems)
        click.echo(f"forebay: {count} problem{'s' if count > 1 else ''} in the settings", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
        sys.exit(WRONG_SETTINGS)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="forebay", message="%(prog)s %(version)s")
def main() -> None:
    """A transparent Kafka proxy that gives old producers what only the newest have."""


@main.command()
@setting_options
def run(**options: Any) -> None:
    """Serve until SIGTERM; then drain and leave.

    Settings come from the file, then from FOREBAY_* variables, then from the command line; later ones win.
    """
    settings = _load(options, complete=True).settings
    logs.configure(settings.log_level, settings.log_format)
    from forebay_proxy.process import supervisor

    try:
        code = supervisor.run(settings)
    except StartError as error:
        click.echo(f"forebay: {error}", err=True)
        code = FAILED
    sys.exit(code)


@main.command()
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@setting_options
def config(form: str, **options: Any) -> None:
    """Show every setting: default, current value, what is allowed, what it is for.

    With a file or settings that are wrong it says so and exits with 2, so it checks a file.
    """
    loaded = _load(options, complete=False)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(config_view.as_json(loaded) if form == "json" else config_view.as_table(loaded, width))


@main.command()
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Where clients find Forebay.")
@click.option("--url", metavar="http://HOST:PORT", help="Forebay's admin endpoint.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def clients(bootstrap_servers: str | None, url: str | None, form: str) -> None:
    """List the clients that are connected to a running Forebay, or were; who is too old for Kafka 4 comes first."""
    from forebay_proxy.commands import clients as clients_command

    if (bootstrap_servers is None) == (url is None):
        raise click.UsageError("one of --bootstrap-servers and --url says whom to ask")
    try:
        if url is None:
            url = clients_command.discover(_servers(bootstrap_servers or ""))
        rows = clients_command.fetch(url)
    except clients_command.ClientsError as error:
        click.echo(f"forebay: {error}", err=True)
        sys.exit(FAILED)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(clients_command.as_json(rows) if form == "json" else clients_command.as_table(rows, width))


def _servers(written: str) -> Servers:
    setting = SETTINGS["bootstrap.servers"]
    try:
        return cast(Servers, setting.parse(written))
    except ValueError as error:
        wanted = f"{written!r}: {setting.allowed} is wanted"
        raise click.BadParameter(wanted, param_hint="--bootstrap-servers") from error


@main.command()
def demo() -> None:
    """An embedded cluster with a slow broker; the same load directly and through Forebay, side by side."""
    from forebay_proxy.demo.run import run_demo

    sys.exit(run_demo())


if __name__ == "__main__":
    main(prog_name="forebay")
