"""The command `forebay`.

    forebay run --bootstrap-servers HOST:PORT,… --listen HOST:PORT [--set linger.ms=5]…
    forebay config [NAME]   every setting and its value, or one setting in full; also checks a file
    forebay clients         who is connected, and who is too old for Kafka 4
    forebay demo            direct and through Forebay, side by side, on an embedded cluster
    forebay --version

Exit codes: 2 for wrong settings or a wrong command line; the others are in lifecycle.py.
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
from forebay_proxy.commands.config import FLAGS, flag
from forebay_proxy.commands.text_output import columns
from forebay_proxy.config.settings import ALIASES, Servers
from forebay_proxy.config.sources import CONFIG_VARIABLE, Loaded, SettingsError, Sources, allowed, close_names, load
from forebay_proxy.config.values import SETTINGS, find
from forebay_proxy.errors import StartError
from forebay_proxy.process import core_dumps
from forebay_proxy.process.lifecycle import FAILED, WRONG_SETTINGS
from forebay_proxy.produce.partitioner_plugins import known_partitioners

F = TypeVar("F", bound=Callable[..., Any])


def setting_options(command: F) -> F:
    """Decorates a command with --config, --set and the options of FLAGS."""
    for name in reversed(FLAGS):
        command = click.option(flag(name), metavar=_METAVARS[name], help=SETTINGS[name].description)(command)
    command = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any setting, such as linger.ms=5; may be repeated. `forebay config` lists all settings.",
    )(command)
    return click.option(
        "--config", metavar="FILE.toml", help=f"Read settings from a TOML file (or {CONFIG_VARIABLE})."
    )(command)


_METAVARS: Final = {
    "bootstrap.servers": "HOST:PORT,…",
    "listen": "HOST:PORT",
    "advertised.host": "HOST",
    "admin": "HOST:PORT",
    "workers": "N",
}


def _load(options: dict[str, Any], *, complete: bool) -> Loaded:
    """Settings from all sources; if something is wrong, prints every problem and exits with 2."""
    flags = {flag(name): (name, value) for name in FLAGS if (value := options[name.replace(".", "_")]) is not None}
    sources = Sources(options["config"], os.environ, options["assignments"], flags)
    try:
        return load(sources, known_partitioners(), complete=complete)
    except SettingsError as error:
        count = len(error.problems)
        click.echo(f"forebay: {count} problem{'s' if count > 1 else ''} with the settings", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
        sys.exit(WRONG_SETTINGS)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="forebay", message="%(prog)s %(version)s")
def main() -> None:
    """A transparent Kafka proxy that gives old producers the partitioning and batching of the newest."""
    core_dumps.forbid()


@main.command()
@setting_options
def run(**options: Any) -> None:
    """Serve until SIGTERM, then drain and exit.

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
@click.argument("name", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "list", "table", "json"]),
    default="auto",
    show_default=True,
    help=f"auto: a table if the terminal has {config_view.WIDE} columns, else a list.",
)
@setting_options
def config(name: str | None, form: str, **options: Any) -> None:
    """List all settings, or explain one.

    Values are what this command's options, variables and file make them. NAME is a setting such as linger.ms. Exits
    with 2 if a setting or the file is wrong, so it can be used to check a file.
    """
    known = _known(name)
    loaded = _load(options, complete=False)
    width = columns()
    if form == "json":
        click.echo(config_view.as_json(loaded, known))
    elif known is not None:
        click.echo(config_view.explanation(loaded, known, width, allowed(known, known_partitioners())))
    elif form == "table" or (form == "auto" and width >= config_view.WIDE):
        unfolded = form == "table" and not sys.stdout.isatty()
        click.echo(config_view.as_table(loaded, None if unfolded else width))
    else:
        click.echo(config_view.as_list(loaded, width))


def _known(name: str | None) -> str | None:
    """The proper name of a setting; if there is none like it, says which are close and exits with 2."""
    if name is None or name in SETTINGS:
        return name
    if (of_listener := find(name)) is not None:
        return of_listener.name
    if name in ALIASES:
        return ALIASES[name]
    near = close_names(name, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`forebay config` lists all settings"
    click.echo(f"forebay: unknown setting {name}; {hint}", err=True)
    sys.exit(WRONG_SETTINGS)


@main.command()
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Address that clients use to reach Forebay.")
@click.option("--url", metavar="http[s]://HOST:PORT", help="Address of Forebay's admin endpoint.")
@click.option(
    "--command-config",
    metavar="FILE",
    help="How to reach them, in Kafka's property names: security.protocol, ssl.*; and admin.bearer.token.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def clients(bootstrap_servers: str | None, url: str | None, command_config: str | None, form: str) -> None:
    """List a running Forebay's clients.

    Past ones are included; those too old for Kafka 4 come first.
    """
    from forebay_proxy.commands import clients as clients_command
    from forebay_proxy.commands import command_config as reaching

    if (bootstrap_servers is None) == (url is None):
        raise click.UsageError("give either --bootstrap-servers or --url")
    try:
        config = reaching.read(command_config)
        if url is None:
            url = clients_command.discover(_servers(bootstrap_servers or ""), config)
        rows = clients_command.fetch(url, config)
    except (StartError, clients_command.ClientsError) as error:
        click.echo(f"forebay: {error}", err=True)
        sys.exit(FAILED)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(clients_command.as_json(rows) if form == "json" else clients_command.as_table(rows, width))


def _servers(written: str) -> Servers:
    setting = SETTINGS["bootstrap.servers"]
    try:
        return cast(Servers, setting.parse(written))
    except ValueError as error:
        wanted = f"{written!r} must be {setting.allowed}"
        raise click.BadParameter(wanted, param_hint="--bootstrap-servers") from error


@main.command()
def demo() -> None:
    """Compare direct and through Forebay.

    Sends the same load both ways to an embedded cluster with a slow broker.
    """
    from forebay_proxy.demo.run import run_demo

    sys.exit(run_demo())


if __name__ == "__main__":
    main(prog_name="forebay")
