"""Where settings come from: a TOML file, then FOREBAY_* variables, then the command line; later ones win.

In: the sources as they are. Out: Settings, and where each value came from. What is wrong is raised as one SettingsError
with every problem at once: the setting, its value, where it was written and what is allowed.

In the file `"linger.ms" = 5` and `[linger] ms = 5` are the same. (In TOML a name is either a value or a table: with
`partitioner` set, `"partitioner.sticky.batch.size"` must be written in quotes.) For a service called forebay Kubernetes
sets variables like FOREBAY_PORT and FOREBAY_SERVICE_HOST in every pod: these are no settings, and are ignored.

A value may refer to a file or a variable that holds it (providers.py). Secrets are shown in no problem, and are taken
neither from the command line, which every user of the machine can read, nor from a file that others can read.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from forebay_proxy.config import providers
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.secret import HIDDEN
from forebay_proxy.config.security import security_conflicts
from forebay_proxy.config.settings import ALIASES, Settings, conflicts
from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS, Setting, find, listener_setting, render

PREFIX: Final = "FOREBAY_"
_OF_LISTENER: Final = "FOREBAY_LISTENER_NAME_"
CONFIG_VARIABLE: Final = "FOREBAY_CONFIG"
DEFAULT_ORIGIN: Final = "default"
COMMAND_LINE: Final = "--set"

# A user and a password in what should be a URL, whatever the password is made of.
_IN_URL: Final = re.compile(r"^([a-z]+://)?.*@", re.DOTALL)

# Read by the build, the tests and the pipeline, and set by Kubernetes for services called forebay….
_NOT_SETTINGS: Final = re.compile(
    r"FOREBAY_(CONFIG|((NO|REQUIRE)_)?COMPILE|OPT_LEVEL|TEST_\w+|WATCH_WEBHOOK"
    r"|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix: a setting, its value as written, where that was written (`origin`), and what is wrong.

    Its text is one line for people. `value` and `origin` may be empty.
    """

    name: str
    value: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value} ({self.origin}): {self.message}" if self.value else self._bare()

    def _bare(self) -> str:
        return f"{self.name} ({self.origin}): {self.message}" if self.origin else f"{self.name}: {self.message}"


class SettingsError(Exception):
    """Settings that Forebay cannot run with. Holds every problem; its text has one line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where. `path`: of the file that it stands in."""

    name: str
    value: object = field(repr=False)
    origin: str
    path: Path | None = None


@dataclass(frozen=True)
class Sources:
    """Everything that may hold settings, unread.

    `config` is the path of a TOML file; `environ` all environment variables, also those that are no settings;
    `assignments` are `name=value`, later ones winning; `flags` are {"--listen": ("listen", "0.0.0.0:9092")}.
    """

    config: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[str] = ()
    flags: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Loaded:
    """Every value is allowed, and none contradicts another.

    `values`: name → value, of all settings that were given or have a default. `origins`: name → the file's path, the
    variable, the flag or DEFAULT_ORIGIN, of all settings. `references`: name → what was written, of those that refer
    to files.
    """

    values: Mapping[str, object]
    origins: Mapping[str, str]
    references: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """All values together. Raises TypeError where a required one is missing, as it may be without `complete`."""
        own: dict[str, object] = {}
        of_listeners: dict[str, dict[str, object]] = {}
        for name, value in self.values.items():
            if name in SETTINGS:
                own[SETTINGS[name].attribute] = value
            elif (found := listener_setting(name)) is not None:
                of_listeners.setdefault(found[0], {})[found[1].attribute] = value
        told = {listener: ListenerSettings(**values) for listener, values in of_listeners.items()}  # type: ignore[arg-type]
        return Settings(**own, listener_name=told, references=dict(self.references))  # type: ignore[arg-type]


def load(sources: Sources, partitioners: Collection[str], *, complete: bool = True) -> Loaded:
    """Read all sources. `partitioners` are the names that `partitioner` may have.

    With `complete`, settings without a default are required, and a listener for clients. Raises SettingsError.
    """
    problems: list[Problem] = []
    given: dict[str, Given] = {}
    for layer in (_file(sources, problems), _environment(sources), _command_line(sources, problems)):
        given.update(_known(layer, problems))
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    of_listeners = {name: setting for name in given if name not in SETTINGS and (setting := find(name)) is not None}
    for name, setting in [*SETTINGS.items(), *of_listeners.items()]:
        origins[name] = DEFAULT_ORIGIN
        if name not in given:
            if not setting.required:
                values[name] = setting.default
            elif complete:
                problems.append(_missing(name))
            continue
        written = given[name]
        origins[name] = written.origin
        try:
            value = _resolved(setting, written, sources.environ)
        except ValueError as error:
            problems.append(Problem(name, _shown(written), written.origin, str(error)))
            continue
        try:
            values[name] = setting.parse(value)
        except ValueError:
            problems.append(Problem(name, _shown(written), written.origin, f"must be {allowed(setting, partitioners)}"))
    if values.get("partitioner", "adaptive") not in partitioners:
        message = f"must be {allowed(SETTINGS['partitioner'], partitioners)}"
        problems.append(Problem("partitioner", str(values["partitioner"]), origins["partitioner"], message))
    if complete and not any(values.get(name, True) for name in ("listen", "listeners")):
        problems.append(_no_listener(given))
    problems += _conflicts(values, origins)
    if problems:
        raise SettingsError(problems)
    return Loaded(values, origins, _references(given))


def _references(given: Mapping[str, Given]) -> dict[str, str]:
    written = {name: each.value for name, each in given.items()}
    return {name: text for name, text in written.items() if isinstance(text, str) and providers.files(text)}


def _resolved(setting: Setting, given: Given, environ: Mapping[str, str]) -> object:
    """The value with its references resolved. Raises ValueError, also for a secret that others can see."""
    written = given.value
    if not isinstance(written, str):
        return written
    if setting.is_secret and written and not providers.is_reference(written):
        if given.origin == COMMAND_LINE:
            raise ValueError("is a secret, and every user can read a command line: refer to it as ${file:path:key}")
        if given.path is not None and providers.public(given.path.stat().st_mode):
            raise ValueError(f"is a secret, and others can read {given.path}: chmod o-rwx {given.path}")
    return setting.resolve(written, environ)


def _shown(given: Given) -> str:
    """The value as it was written, without what is secret. A reference tells only where one is."""
    setting = find(_full_name(given.name))
    assert setting is not None
    if setting.is_secret and given.value and not (isinstance(given.value, str) and providers.is_reference(given.value)):
        return HIDDEN
    shown = render(given.value)
    return _IN_URL.sub(rf"\1{HIDDEN}@", shown) if setting.pattern else shown


def allowed(setting: Setting, partitioners: Collection[str]) -> str:
    """Which values a setting takes, to follow "must be"; `partitioners` as in `load`."""
    return "one of " + ", ".join(sorted(partitioners)) if setting.name == "partitioner" else setting.allowed


def _missing(name: str) -> Problem:
    return Problem(name, "", "", f"is required ({SETTINGS[name].allowed}); {_set_it(name)}")


def _no_listener(given: Mapping[str, Given]) -> Problem:
    """Of `listen` and `listeners` neither is set, or what is set is empty."""
    empty = given.get("listen") or given.get("listeners")
    message = f"is required (host:port that clients connect to), unless listeners names one; {_set_it('listen')}"
    return Problem("listen", "", empty.origin if empty else "", message)


def _set_it(name: str) -> str:
    flag = "--" + name.replace(".", "-")
    return f"set it with {flag}, with {SETTINGS[name].variable} or in the --config file"


def _conflicts(values: Mapping[str, object], origins: Mapping[str, str]) -> Iterator[Problem]:
    """Contradictions among the values that could be read; in place of the others stand defaults, without complaint."""
    standing_in: dict[str, object] = {"bootstrap.servers": ()}
    filled = {name: values.get(name, standing_in.get(name, setting.default)) for name, setting in SETTINGS.items()}
    filled |= {name: value for name, value in values.items() if name not in SETTINGS}
    settings = Loaded(filled, origins).settings
    for name, message in chain(conflicts(settings), security_conflicts(settings)):
        if name in values:
            yield Problem(name, render(values[name]), origins[name], message)
        elif name not in origins:  # a listener's, which was not set
            yield Problem(name, "", "", message)


def _known(layer: Iterable[Given], problems: list[Problem]) -> dict[str, Given]:
    """One source's settings by their proper names, without unknown and contradictory ones."""
    found: dict[str, Given] = {}
    for given in layer:
        name = _full_name(given.name)
        if find(name) is None:
            problems.append(_unknown(given))
        elif name in found and found[name].value != given.value:
            first = found[name]
            message = f"set twice, first to {_shown(first)} as {first.name} ({first.origin})"
            problems.append(Problem(given.name, _shown(given), given.origin, message))
        else:
            found[name] = given
    return found


def _full_name(written: str) -> str:
    """The one name of a setting that may be written in several ways: an alias, a listener's name in capitals."""
    setting = find(written)
    return ALIASES.get(written, written) if setting is None else setting.name


def _unknown(given: Given) -> Problem:
    """Without its value, which may be a secret under a misspelt name."""
    message = "unknown setting; `forebay config` lists all"
    if given.name in LISTENER_SETTINGS:
        return Problem(given.name, "", given.origin, f"is a listener's: listener.name.<name>.{given.name}")
    for name in close_names(given.name, 1):
        setting = find(_full_name(name))
        assert setting is not None
        message = f"unknown setting; did you mean {name} ({setting.allowed})?"
    return Problem(given.name, "", given.origin, message)


def close_names(name: str, max_names: int) -> list[str]:
    """Settings, and other names of theirs, that are spelled like `name`; the closest first. Of a listener: its own."""
    if (listener := re.match(r"listener\.name\.[A-Za-z0-9_-]+\.", name)) is not None:
        near = _close(name[listener.end() :], LISTENER_SETTINGS, max_names)
        if near:
            return [listener[0] + each for each in near]
    return _close(name, [*ALIASES, *SETTINGS], max_names)


def _close(name: str, known: Iterable[str], max_names: int) -> list[str]:
    names = {_spelling(each): each for each in known}
    return [names[near] for near in difflib.get_close_matches(_spelling(name), list(names), n=max_names)]


def _spelling(name: str) -> str:
    return name.removeprefix(PREFIX).lower().replace("_", ".").replace("-", ".")


def _file(sources: Sources, problems: list[Problem]) -> list[Given]:
    path = sources.config or sources.environ.get(CONFIG_VARIABLE)
    if not path:
        return []
    origin = "--config" if sources.config else CONFIG_VARIABLE
    try:
        return list(_flattened(tomllib.loads(providers.read_settings(path)), "", path))
    except OSError as error:
        problems.append(Problem(path, "", origin, f"cannot be read: {error.strerror or error}"))
    except UnicodeDecodeError:
        problems.append(Problem(path, "", origin, "is not UTF-8 text"))
    except ValueError as error:  # TOMLDecodeError, or a number of more digits than Python reads
        problems.append(Problem(path, "", origin, f"is not valid TOML: {error}"))
    except RecursionError:
        problems.append(Problem(path, "", origin, "is nested too deeply"))
    return []


def _flattened(table: Mapping[str, object], prefix: str, origin: str) -> Iterator[Given]:
    for key, value in table.items():
        name = prefix + key
        setting = find(name)
        if isinstance(value, dict) and not (setting and setting.is_map):
            yield from _flattened(value, name + ".", origin)
        else:
            yield Given(name, value, origin, Path(origin))


def _environment(sources: Sources) -> list[Given]:
    names = {setting.variable: setting.name for setting in SETTINGS.values()}
    names |= {PREFIX + alias.upper().replace(".", "_"): alias for alias in ALIASES}
    return [
        Given(names.get(variable) or _name_of_variable(variable), value, variable)
        for variable, value in sorted(sources.environ.items())
        if variable.startswith(PREFIX) and not _NOT_SETTINGS.fullmatch(variable)
    ]


def _name_of_variable(variable: str) -> str:
    """FOREBAY_LISTENER_NAME_MY_OWN_NODE_PORTS → listener.name.my_own.node.ports; else _ stands for a dot."""
    if variable.startswith(_OF_LISTENER):
        for setting in LISTENER_SETTINGS.values():
            end = "_" + setting.attribute.upper()
            if variable.endswith(end) and (name := variable[len(_OF_LISTENER) : -len(end)]):
                return f"listener.name.{name.lower()}.{setting.name}"
    return variable[len(PREFIX) :].lower().replace("_", ".")


def _command_line(sources: Sources, problems: list[Problem]) -> list[Given]:
    assigned: dict[str, Given] = {}
    for assignment in sources.assignments:
        name, separator, value = assignment.partition("=")
        name = name.strip()
        if separator:
            assigned[name] = Given(name, value.strip(), COMMAND_LINE)
        else:
            problems.append(Problem(name, "", COMMAND_LINE, "must be name=value"))
    return [*assigned.values(), *(Given(name, value, flag) for flag, (name, value) in sources.flags.items())]
