"""What certificates' owners are called. What is expected is what Kafka said (tests/integration asks it anew)."""

from __future__ import annotations

import pytest

from forebay_proxy.config.principal_mapper import NoMatchingRule, PrincipalMapper

TILL = "CN=Till-7,OU=Ponds,O=Forebay,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", TILL),
        ("RULE:^CN=([^,]*),OU=Ponds.*$/$1/", "Till-7"),
        ("RULE:^CN=(.*?),.*$/$1@ponds/L", "till-7@ponds"),
        ("RULE:^CN=(.*?),.*$/$1/U", "TILL-7"),
        ("RULE:^CN=nobody.*$/x/, DEFAULT", TILL),
        (" RULE:^CN=nobody.*$/x/ ,\n RULE:^CN=(?<who>.*?),.*$/${who}/ , ", "Till-7"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2$4/", "Till-7@Ponds$4"),
        ("RULE:^CN=(.*?),.*$/a\\/b\\$1/", "a/b$1"),
        ("RULE:.*/x/", "xx"),
        ("RULE:CN=(.*?)/$1/", "Till-7,OU=Ponds,O=Forebay,C=DE"),
        ("RULE:^CN=.*$/$0/L", TILL.lower()),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str) -> None:
    assert PrincipalMapper(rules).name(TILL) == name


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("", "no rule of"),
        (" , ", "no rule of"),
        ("RULE:^CN=nobody.*$/x/", "no rule of"),
        ("RULE:CN=Till-7/x/", "no rule of"),
        ("RULE:^CN=.*$/$1/,DEFAULT", "cannot be applied: there is no group 1"),
        ("RULE:^(CN)=.*$/$4 $5/,DEFAULT", "cannot be applied"),
    ],
)
def test_where_no_rule_has_a_name_nobody_comes(rules: str, why: str) -> None:
    with pytest.raises(NoMatchingRule, match=why):
        PrincipalMapper(rules).name(TILL)


@pytest.mark.parametrize(
    "rules",
    [
        *("default", "DEFAULTS", "DEFAULT DEFAULT", "x", "RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "RULE:a/b/LU"),
        *("RULE:a/b/c/", "RULE:a/b/\nRULE:c/d/", "RULE:a/b/ DEFAULT", "RULE:[/b/", "RULE:(a/b/", "RULE:\\p{L}/b/"),
    ],
)
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match="is no") as error:
        PrincipalMapper(rules)
    assert not isinstance(error.value, NoMatchingRule)
