"""The command `forebay`.

    forebay run --bootstrap-servers HOST:PORT,… --listen HOST:PORT [--set linger.ms=5]…
    forebay config [NAME]   every setting and its value, or one setting in full; also checks a file
    forebay check           whether it could serve: brokers, ports, addresses, memory, descriptors, journal
    forebay explain         whether records of a client and a topic may be touched, and which pattern says so
    forebay clients         who is connected, and who is too old for Kafka 4
    forebay users           who may log in by SCRAM, at the brokers and at Forebay: add, list, delete
    forebay top             brokers, topics and clients, anew each second
    forebay reload          read the settings of a running Forebay again, as SIGHUP does
    forebay override        change a live setting of a running Forebay for a while; `overrides` lists them
    forebay avoid, drain    have records without a key go to other brokers for a while
    forebay dump            the internal state of all workers of a running Forebay
    forebay completion      completion for bash, zsh and fish
    forebay demo            direct and through Forebay, side by side, on an embedded cluster
    forebay --version

Exit codes: 2 for wrong settings or a wrong command line; the others are in lifecycle.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

import click
from click.shell_completion import get_completion_class

from forebay_codecs.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS
from forebay_proxy import __version__, logs
from forebay_proxy.commands import config as config_view
from forebay_proxy.commands.admin_endpoint import AdminEndpoint, AdminError, by_socket, by_url, discover
from forebay_proxy.commands.config import FLAGS, flag
from forebay_proxy.commands.config_schema import schema
from forebay_proxy.commands.text_output import columns, json_text
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import ALIASES, Servers
from forebay_proxy.config.sources import CONFIG_VARIABLE, Loaded, SettingsError, Sources, close_names, load
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.errors import StartError
from forebay_proxy.process import core_dumps
from forebay_proxy.process.lifecycle import FAILED, WRONG_SETTINGS, ignore_what_would_read_anew, leave_when_told
from forebay_proxy.produce.partitioner_plugins import known_partitioners

LOOK_S: Final = 1.0
"""Between two looks at what is still under way."""
_SOCKET: Final = SETTINGS["admin.socket"].variable

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


def _sources(options: dict[str, Any]) -> Sources:
    flags = {flag(name): (name, value) for name in FLAGS if (value := options[name.replace(".", "_")]) is not None}
    return Sources(options["config"], os.environ, options["assignments"], flags)


def _load(options: dict[str, Any], *, complete: bool) -> Loaded:
    """Settings from all sources; if something is wrong, prints every problem and exits with 2."""
    try:
        return load(_sources(options), known_partitioners(), complete=complete)
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
    ignore_what_would_read_anew()
    leave_when_told()
    loaded = _load(options, complete=True)
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    from forebay_proxy.commands.told import told_of
    from forebay_proxy.process import supervisor
    from forebay_proxy.process.in_force import Read

    def read_again() -> Read:
        try:
            again = load(_sources(options), known_partitioners())
        except SettingsError as error:
            raise StartError("; ".join(map(str, error.problems))) from None
        return Read(again.settings, told_of(again))

    try:
        code = supervisor.run(settings, told=told_of(loaded), load=read_again)
    except StartError as error:
        click.echo(f"forebay: {error}", err=True)
        code = FAILED
    sys.exit(code)


@main.command()
@click.argument("name", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "list", "table", "json", "schema"]),
    default="auto",
    show_default=True,
    help=f"auto: a table if the terminal has {config_view.WIDE} columns, else a list. schema: JSON Schema of a file.",
)
@click.option("--socket", metavar="PATH", help="The admin.socket of a running Forebay: show its overrides, too.")
@setting_options
def config(name: str | None, form: str, socket: str | None, **options: Any) -> None:
    """List all settings, or explain one.

    Values are what this command's options, variables and file make them. NAME is a setting such as linger.ms. Exits
    with 2 if a setting or the file is wrong, so it can be used to check a file.
    """
    if form == "schema":
        click.echo(json_text(schema()))
        return
    known = _known(name)
    loaded = _load(options, complete=False)
    if socket is not None:
        from forebay_proxy.commands import steer

        loaded = steer.overlaid(loaded, _steered(socket, None, "GET", "overrides"))
    width = columns()
    if form == "json":
        click.echo(config_view.as_json(loaded, known))
    elif known is not None:
        click.echo(config_view.explanation(loaded, known, width, known_partitioners()))
    elif form == "table" or (form == "auto" and width >= config_view.WIDE):
        unfolded = form == "table" and not sys.stdout.isatty()
        click.echo(config_view.as_table(loaded, None if unfolded else width))
    else:
        click.echo(config_view.as_list(loaded, width))


def _known(name: str | None) -> str | None:
    """The proper name of a setting; if there is none like it, says which are close and exits with 2."""
    if name is None:
        return None
    if (setting := config_view.known(name)) is not None:
        return setting.name
    if name in ALIASES:
        return ALIASES[name]
    near = close_names(name, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`forebay config` lists all settings"
    click.echo(f"forebay: unknown setting {name}; {hint}", err=True)
    sys.exit(WRONG_SETTINGS)


@main.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@setting_options
def check(form: str, **options: Any) -> None:
    """Say whether Forebay could serve with these settings.

    Reaches all brokers as it would and logs in (where it only passes clients' logins through, the bootstrap servers
    only), and looks at ports, the addresses clients would be told, memory, descriptors, the journal, and whether its
    code is compiled. Exits with 1 if something would not work, with 2 if a setting is wrong. Ports that a running
    Forebay holds count as taken.
    """
    settings = _load(options, complete=True).settings
    logs.configure("error", settings.log_format)
    from forebay_proxy.commands import check as check_command

    findings = check_command.check(settings, os.environ)
    click.echo(json_text(findings) if form == "json" else check_command.as_text(findings))
    sys.exit(FAILED if any(finding.verdict == check_command.FAILURE for finding in findings) else 0)


@main.command()
@click.option("--topic", required=True, help="Where the records go.")
@click.option("--client-id", help="Who sends them; without it, any client that is not excluded.")
@click.option("--url", metavar="http[s]://HOST:PORT", help="Ask the Forebay that has this admin endpoint.")
@click.option("--socket", metavar="PATH", help="Ask the Forebay that has this admin.socket.")
@click.option("--command-config", metavar="FILE", help="With --url: how to reach it, as in forebay clients.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@setting_options
def explain(
    topic: str,
    client_id: str | None,
    url: str | None,
    socket: str | None,
    command_config: str | None,
    form: str,
    **options: Any,
) -> None:
    """Say whether Forebay would touch a client's records for a topic.

    Names the pattern that decides, by the settings that this command's options, variables and file give; with --url or
    --socket by those of a running Forebay, which also says if the client seems to pick partitions itself.
    """
    from forebay_proxy.commands import explain as explain_command

    if url is not None or socket is not None:
        with _told_in_a_line():
            endpoint = _endpoint(url=url, socket=socket, command_config=command_config)
            told = explain_command.asked(endpoint, client_id, topic)
        click.echo(json_text(told) if form == "json" else told["text"])
        return
    found = explain_command.decisions(_load(options, complete=False).values, client_id, topic)
    click.echo(json_text(found) if form == "json" else explain_command.as_text(found))


def reaching_options(command: F) -> F:
    """Decorates a command with the ways to name a running Forebay."""
    for option in reversed(
        (
            click.option(
                "--bootstrap-servers", metavar="HOST:PORT,…", help="Address that clients use to reach Forebay."
            ),
            click.option("--url", metavar="http[s]://HOST:PORT", help="Address of Forebay's admin endpoint."),
            click.option("--socket", metavar="PATH", help=f"Forebay's admin.socket, on the same host (or {_SOCKET})."),
            click.option(
                "--command-config",
                metavar="FILE",
                help="How to reach them, in Kafka's property names: security.protocol, ssl.*; and admin.bearer.token.",
            ),
        )
    ):
        command = option(command)
    return command


def _endpoint(
    *,
    bootstrap_servers: str | None = None,
    url: str | None = None,
    socket: str | None = None,
    command_config: str | None = None,
) -> AdminEndpoint:
    """The admin endpoint that the options name. Raises AdminError, StartError, UsageError."""
    from forebay_proxy.commands import command_config as reaching

    if bootstrap_servers is None and url is None and socket is None:
        socket = os.environ.get(_SOCKET) or None
    if sum(way is not None for way in (bootstrap_servers, url, socket)) != 1:
        raise click.UsageError("give one of --bootstrap-servers, --url and --socket")
    if socket is not None:
        return by_socket(socket)
    config = reaching.read(command_config)
    return by_url(discover(_servers(bootstrap_servers or ""), config) if url is None else url, config)


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    """What keeps a command from asking Forebay, or that it refuses, is one line, and exit code 1."""
    try:
        yield
    except (StartError, AdminError) as error:
        click.echo(f"forebay: {error}", err=True)
        sys.exit(FAILED)


@main.command()
@reaching_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def clients(form: str, **reached: str | None) -> None:
    """List a running Forebay's clients.

    Past ones are included; those too old for Kafka 4 come first.
    """
    from forebay_proxy.commands import clients as clients_command

    with _told_in_a_line():
        known = clients_command.fetch(_endpoint(**reached))
    click.echo(clients_command.as_json(known.rows) if form == "json" else clients_command.as_table(known, _width()))


@main.group()
def users() -> None:
    """Users who log in by SCRAM, at the brokers and at Forebay alike.

    Where Forebay checks logins itself, it must know the salt and keys that brokers have; they tell them to nobody. So
    users are added here, to the brokers (as with kafka-configs) and to Forebay's file of credentials.
    """
    logs.configure("error", "auto")


def users_options(command: F) -> F:
    """Decorates a command with how to reach brokers, and the file of credentials."""
    for option in reversed(
        (
            click.option("--bootstrap-servers", metavar="HOST:PORT,…", required=True, help="The brokers."),
            click.option(
                "--command-config",
                metavar="FILE",
                help="How to reach them as somebody who may change users, in Kafka's property names: "
                "security.protocol, ssl.*, sasl.*.",
            ),
            click.option("--credentials", metavar="FILE", required=True, help="Forebay's file of credentials."),
        )
    ):
        command = option(command)
    return command


def mechanism_option(command: F) -> F:
    """Decorates a command with the mechanisms that it is about, all by default."""
    return click.option(
        "--mechanism",
        "mechanisms",
        type=click.Choice(list(HASHES)),
        multiple=True,
        default=list(HASHES),
        help="May be repeated; both by default.",
    )(command)


@users.command("add")
@click.argument("name")
@users_options
@mechanism_option
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=LEAST_ITERATIONS,
    show_default=True,
    help="More of them make passwords slower to guess for whoever has stolen the keys, and logins slower.",
)
@click.option(
    "--password-file", metavar="FILE", help="Where the password stands; else it is asked for, or read from stdin."
)
def users_add(
    name: str,
    bootstrap_servers: str,
    command_config: str | None,
    credentials: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: str | None,
) -> None:
    """Add a user, or give one another password.

    The password is never an argument, which everybody on this machine could see.
    """
    from forebay_proxy.commands import users as users_command

    if not name:
        raise click.UsageError("the user's name is empty")
    brokers = users_command.Brokers(_servers(bootstrap_servers), command_config)
    with _told_in_a_line():
        if password_file is None and sys.stdin.isatty():
            password = Secret(click.prompt("Password", hide_input=True, confirmation_prompt=True))
        else:
            password = users_command.read_password(password_file, sys.stdin)
        for mechanism in mechanisms:
            users_command.add(brokers, credentials, name, password, mechanism, iterations)
            click.echo(f"{name} can log in by {mechanism}: at the brokers, and by {credentials}.")


@users.command("list")
@users_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def users_list(bootstrap_servers: str, command_config: str | None, credentials: str, form: str) -> None:
    """List users, and who knows them: the brokers, the file, or both."""
    from forebay_proxy.commands import users as users_command

    brokers = users_command.Brokers(_servers(bootstrap_servers), command_config)
    with _told_in_a_line():
        rows = users_command.listed(brokers, credentials)
    click.echo(json_text(rows) if form == "json" else users_command.as_table(rows, _width()))


@users.command("delete")
@click.argument("name")
@users_options
@mechanism_option
def users_delete(
    name: str, bootstrap_servers: str, command_config: str | None, credentials: str, mechanisms: tuple[str, ...]
) -> None:
    """Take a user's passwords away, at the brokers and in the file.

    Who is logged in stays so until brokers or Forebay want another login.
    """
    from forebay_proxy.commands import users as users_command

    brokers = users_command.Brokers(_servers(bootstrap_servers), command_config)
    with _told_in_a_line():
        gone = [each for each in mechanisms if users_command.delete(brokers, credentials, name, each)]
        if not gone:
            where = f"at the brokers or in {credentials}"
            raise StartError(f"{name} has no password for {' or '.join(mechanisms)}, {where}")
    click.echo(f"{name} cannot log in by {' or '.join(gone)} any more.")


@main.command()
@reaching_options
@click.option("--once", is_flag=True, help="Print what there is now, as text, and exit.")
def top(*, once: bool, **reached: str | None) -> None:
    """Watch a running Forebay: how it fares, its brokers, topics and clients.

    In a terminal, anew each second; needs `pip install '.[top]'` in a clone of Forebay, but not with --once.
    """
    from forebay_proxy.commands import top_view

    with _told_in_a_line():
        endpoint = _endpoint(**reached)
        sorts = {kind: each.sort for kind, each in top_view.KINDS.items()}
        now = top_view.look(endpoint, sorts, rows=top_view.SHORT)
    if once:
        click.echo(top_view.as_text(now, _width()))
        return
    try:
        from forebay_proxy.commands.top_app import TopApp
    except ModuleNotFoundError as error:
        click.echo(f"forebay: {error.name} is missing: pip install '.[top]' in a clone of Forebay, or --once", err=True)
        sys.exit(FAILED)
    TopApp(endpoint).run()


def _servers(written: str) -> Servers:
    setting = SETTINGS["bootstrap.servers"]
    try:
        return cast(Servers, setting.parse(written))
    except ValueError as error:
        wanted = f"{written!r} must be {setting.allowed}"
        raise click.BadParameter(wanted, param_hint="--bootstrap-servers") from error


def steering_options(command: F) -> F:
    """Decorates a command that goes through `admin.socket` with the two ways to say where it is."""
    command = click.option(
        "--config", metavar="FILE.toml", help=f"Find the socket as admin.socket of this file (or {CONFIG_VARIABLE})."
    )(command)
    return click.option("--socket", metavar="PATH", envvar=_SOCKET, help=f"Forebay's admin.socket (or {_SOCKET}).")(
        command
    )


def _steered(socket: str | None, config: str | None, method: str, what: str, body: object | None = None) -> Any:
    """What the Forebay behind a socket answers; if it refuses, or cannot be asked, says why and exits with 1."""
    from forebay_proxy.commands.admin_client import AdminClient

    if socket is None:
        nothing = {"config": config, "assignments": (), **dict.fromkeys(name.replace(".", "_") for name in FLAGS)}
        socket = str(_load(nothing, complete=False).values["admin.socket"])
    if not socket:
        raise click.UsageError("give --socket PATH, or a --config FILE.toml that has admin.socket")
    with _told_in_a_line():
        return AdminClient(socket).ask(method, what, body)


@main.command()
@steering_options
def reload(socket: str | None, config: str | None) -> None:
    """Have a running Forebay read its settings again.

    All of them, as on SIGHUP, and certificates and secrets. Reports what was changed and renewed; if settings
    were refused or something could not be renewed, says why and exits with 1.
    """
    from forebay_proxy.commands import steer

    told = _steered(socket, config, "POST", "reload")
    click.echo(steer.reloaded(told))
    if told["not_renewed"]:
        sys.exit(1)


@main.command()
@steering_options
def restart(socket: str | None, config: str | None) -> None:
    """Replace the running Forebay with a successor.

    The same command, on the same sockets. As SIGUSR2 does, but reports the result; exits with 1 if there is no
    successor: the running one then goes on.
    """
    click.echo(f"Process {_steered(socket, config, 'POST', 'restart')['process']} serves now; the other one drains.")


@main.command()
@click.argument("assignments", nargs=-1, required=True, metavar="NAME[+]=VALUE…")
@click.option("--reason", required=True, help="Why; shown to everybody who looks.")
@click.option("--for", "duration", metavar="TIME", help="For how long: 90s, 30m, 2h, 1d. An hour by default.")
@steering_options
def override(
    assignments: tuple[str, ...], reason: str, duration: str | None, socket: str | None, config: str | None
) -> None:
    """Change live settings of a running Forebay for a while.

    An override wins over all of Forebay's sources of settings, in all workers, until its time is up or `forebay
    overrides --remove` ends it. A list replaces the one in the sources; NAME+=VALUE adds to it. `forebay config NAME`
    says whether a setting is live.
    """
    from forebay_proxy.commands import steer

    try:
        asked = steer.override(assignments, reason, None if duration is None else steer.milliseconds(duration))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    click.echo(steer.overrides(_steered(socket, config, "POST", "overrides", asked), _width()))


@main.command()
@click.option("--remove", metavar="NAME", help="End this one now.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@steering_options
def overrides(remove: str | None, form: str, socket: str | None, config: str | None) -> None:
    """List the settings of a running Forebay that are overridden."""
    from forebay_proxy.commands import steer

    if remove is None:
        told = _steered(socket, config, "GET", "overrides")
    else:
        told = _steered(socket, config, "DELETE", f"overrides/{quote(remove, safe='')}")
    click.echo(json_text(told["rows"]) if form == "json" else steer.overrides(told, _width()))


@main.command()
@click.argument("node_id", type=click.IntRange(0), metavar="ID")
@click.option("--reason", help="Why (required, except with --end); shown to everybody who looks.")
@click.option("--for", "duration", metavar="TIME", help="For how long: 90s, 30m, 2h, 1d. An hour by default.")
@click.option("--end", is_flag=True, help="End it now.")
@steering_options
def avoid(
    node_id: int, reason: str | None, duration: str | None, socket: str | None, config: str | None, *, end: bool
) -> None:
    """Have records without a key go to other brokers for a while.

    What waits for broker ID and may go elsewhere goes, too. Records with a key, and what passes untouched, are not
    affected. Refused where no other broker would be left.
    """
    from forebay_proxy.commands import steer

    path = f"brokers/{node_id}/avoid"
    if end:
        told = _steered(socket, config, "DELETE", path)
    else:
        told = _steered(socket, config, "POST", path, _avoided(reason, duration))
    click.echo(steer.overrides(told, _width()))


def _avoided(reason: str | None, duration: str | None) -> dict[str, Any]:
    from forebay_proxy.commands import steer

    if not reason:
        raise click.UsageError("give a --reason")
    try:
        return {"reason": reason} | ({} if duration is None else {"for_ms": steer.milliseconds(duration)})
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@main.command()
@click.argument("node_id", type=click.IntRange(0), metavar="ID")
@click.option("--reason", help="Why (required); shown to everybody who looks.")
@click.option("--for", "duration", metavar="TIME", help="Avoid it for how long: 90s, 30m, 2h, 1d. An hour by default.")
@click.option("--confirm", is_flag=True, help="Required: the broker will get as little as possible.")
@click.option("--wait", "wait_s", type=click.IntRange(0), default=60, show_default=True, help="Seconds to wait for it.")
@steering_options
def drain(
    node_id: int,
    reason: str | None,
    duration: str | None,
    wait_s: int,
    socket: str | None,
    config: str | None,
    *,
    confirm: bool,
) -> None:
    """Avoid a broker, and say when nothing waits or is under way for it.

    Records with a key go on to the partitions that it leads: move its leaders away to have it get none. Exits with 1
    if something still waits after --wait seconds.
    """
    from forebay_proxy.commands import steer

    if not confirm:
        raise click.UsageError(f"broker {node_id} will get as little as possible: add --confirm")
    path = f"brokers/{node_id}/drain"
    told = _steered(socket, config, "POST", path, {**_avoided(reason, duration), "confirm": True})
    until = time.monotonic() + wait_s
    while not told["drained"] and time.monotonic() < until:
        time.sleep(LOOK_S)
        told = _steered(socket, config, "GET", path)
    click.echo(steer.drained(node_id, told))
    sys.exit(0 if told["drained"] else FAILED)


@main.command()
@steering_options
def dump(socket: str | None, config: str | None) -> None:
    """Print the internal state of all workers, as JSON.

    What waits for which broker, who holds memory, which clients are held and why, where tasks stand. Names and numbers,
    never records or secrets.
    """
    click.echo(json_text(_steered(socket, config, "GET", "debug/dump")))


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands and options.

    For bash: forebay completion bash > ~/.local/share/bash-completion/completions/forebay
    """
    made = get_completion_class(shell)
    assert made is not None, "click has all of these"
    click.echo(made(main, {}, "forebay", "_FOREBAY_COMPLETE").source())


@main.command()
def demo() -> None:
    """Compare direct and through Forebay.

    Sends the same load both ways to an embedded cluster with a slow broker.
    """
    from forebay_proxy.demo.run import run_demo

    sys.exit(run_demo())


if __name__ == "__main__":
    main(prog_name="forebay")
