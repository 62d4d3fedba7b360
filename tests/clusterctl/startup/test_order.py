"""Joining tokens."""

from __future__ import annotations

import pytest

from clusterctl.startup.order import JoinToken

TOKEN = JoinToken(
    address="10.0.0.1:4321",
    secret="it is secret",
    resources={"CPU": 2.0},
    labels={"zone": "a"},
    node_type="w",
    instance_id="i",
)


def test_a_token_is_one_word_and_says_all() -> None:
    text = TOKEN.text()
    assert len(text.split()) == 1
    assert JoinToken.parse(text) == TOKEN
    assert text == JoinToken.parse(text).text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "it is secret",
        TOKEN.text()[:-10],
        TOKEN.text() + "!",
        "clusterctl-join-1.e30=",
        "clusterctl-join-2." + TOKEN.text().partition(".")[2],
    ],
)
def test_what_is_no_token_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="joining token") as caught:
        JoinToken.parse(text)
    assert not text or text not in str(caught.value)
