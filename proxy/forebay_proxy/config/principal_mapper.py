"""`ssl.principal.mapping.rules` (KIP-371): what a client is called whose certificate is for a distinguished name.

    RULE:^CN=([^,]*),OU=Ponds.*$/$1/L,DEFAULT      CN=Till-7,OU=Ponds,O=Forebay → till-7
                                                   CN=admin,O=Forebay           → CN=admin,O=Forebay

In: the rules, and a name as `distinguished_name` has it. Out: what Kafka's SslPrincipalMapper makes of it: of the first
rule that matches the whole name, `RULE:pattern/replacement/`, with an L or a U in lower or upper case; DEFAULT leaves a
name as it is. Rules that Kafka refuses, or skips without a word, raise ValueError, and so do those whose meaning here
would be another one (java_regex).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from forebay_proxy.config import java_regex

DEFAULT: Final = "DEFAULT"
_BELOW_BLANK: Final = "".join(map(chr, range(33)))
_RULE: Final = re.compile(
    r"""\s*
    (?: (?P<default>DEFAULT)
      | RULE: (?P<pattern>(?:\\[^\n\r\u0085\u2028\u2029]|[^\\/])*)
            / (?P<replacement>(?:\\[^\n\r\u0085\u2028\u2029]|[^\\/])*)
            / (?P<case>[LU]?)
    )?
    \s*(?P<end>,|\Z)""",
    re.VERBOSE | re.ASCII,
)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")


class NoMatchingRule(ValueError):
    """No rule has a name for such a certificate, so nobody comes with it."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        made = java_regex.replaced(self.pattern, name, self.replacement)
        if self.case == "L":
            return made.lower()
        return made.upper() if self.case == "U" else made


class PrincipalMapper:
    """Raises ValueError for rules that are none."""

    def __init__(self, rules: str = DEFAULT) -> None:
        self._rules = list(_parsed(rules))

    def name(self, distinguished_name: str) -> str:
        """What the client is called, as in User:name. Raises NoMatchingRule."""
        for rule in self._rules:
            if rule is None:
                return distinguished_name
            try:
                found = rule.apply(distinguished_name)
            except ValueError as error:  # Kafka refuses the connection, too
                raise NoMatchingRule(f"a rule of ssl.principal.mapping.rules cannot be applied: {error}") from None
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules is for {distinguished_name}")


def _parsed(rules: str) -> list[_Rule | None]:
    """None stands for DEFAULT."""
    text = rules.strip(_BELOW_BLANK)
    found: list[_Rule | None] = []
    at = 0
    while at < len(text):
        rule = _RULE.match(text, at)
        if rule is None:
            raise ValueError(
                f"is no list of DEFAULT and RULE:pattern/replacement/, with L or U after it, from here on: {text[at:]}"
            )
        if rule["default"]:
            found.append(None)
        elif rule["pattern"] is not None:
            pattern = java_regex.compiled(rule["pattern"])
            found.append(_Rule(pattern, _literal_beyond(rule["replacement"], pattern.groups), rule["case"]))
        at = rule.end()
    return found


def _literal_beyond(replacement: str, groups: int) -> str:
    """With references to groups that are not there as they stand. Example: `$1@$4` of one group → `$1@\\$4`.

    `$12` of one group is its first, and a 2. With no groups at all nothing is done, so that there any `$1` is wrong.
    """
    if not groups:
        return replacement
    made = replacement
    for reference in _REFERENCE.finditer(replacement):
        number = int(reference[1])
        if reference[1].startswith("0"):
            continue
        while number > groups and number >= 10:
            number //= 10
        if number > groups:  # Kafka counts in what it began with: a second one is escaped a place too early
            made = f"{made[: reference.start()]}\\{made[reference.start() :]}"
    return made
