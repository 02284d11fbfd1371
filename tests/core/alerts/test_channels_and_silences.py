"""Channels that may be saved, and silences that cover a monitor."""

from __future__ import annotations

import pytest
from apprise.utils.parse import parse_qsd
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.alerts.channel import FORBIDDEN_OPTIONS, ChannelBody, channel_url_problem, check_channel
from paceline.core.alerts.silence import (
    NamedSilence,
    Silence,
    SilenceBody,
    TagSilenceBody,
    monitor_silence,
    silenced_by,
    tag_silence,
)
from paceline.core.targets import URL_CHARS_MAX
from paceline.errors import InvalidInput

NOW_MS = 1_800_000_000_000


def apprise_reads(options: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = parse_qsd(options)  # type: ignore[no-untyped-call]
    return found


@pytest.mark.parametrize(
    "url",
    ["mailto://user:password@example.org", "ntfy://topic", "slack://a/b/c/?footer=no", "discord://a/b?template=x"],
)
def test_apprise_channel_of_a_service_on_the_network_is_saved(url: str) -> None:
    assert channel_url_problem("apprise", url) is None
    check_channel(ChannelBody("apprise", url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ntfy://" + "a" * URL_CHARS_MAX, "at most 2048 characters"),
        ("ntfy://a b", "must be percent-encoded"),
        ("", "must be percent-encoded"),
        ("example.org", "not a URL of apprise"),
        ("NTFY://topic", "not a URL of apprise"),
        ("ntfy://[topic", "not a URL of apprise"),
        ("syslog://host", "syslog:// cannot be used here"),
        ("file:///etc/passwd", "file:// cannot be used here"),
        ("workflows://a/b/c?Template=/etc/passwd", "the option 'template' names a file"),
    ],
)
def test_invalid_apprise_url_and_one_that_reaches_the_machine_are_refused(url: str, words: str) -> None:
    problem = channel_url_problem("apprise", url)
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize("option", sorted(FORBIDDEN_OPTIONS))
@pytest.mark.parametrize("prefix", ["", "+", "-", ":"])
def test_apprise_option_that_names_a_file_is_refused_however_it_is_written(option: str, prefix: str) -> None:
    words = f"the option {option!r} names a file of the machine and cannot be used here"
    url = f"mailto://u:p@example.org?name=x&{prefix}{option.upper()}="
    assert channel_url_problem("apprise", url) == words


@pytest.mark.parametrize(
    "options",
    [
        "%20attach=x",
        "attach%20=x",
        "%2battach=x",
        "att%61ch=x",
        "a=b;attach=x",
        "a=b#c&attach=x",
        "%c2%a0attach",
        "attach",
    ],
)
def test_apprise_option_is_refused_in_every_spelling_that_apprise_itself_reads(options: str) -> None:
    read = apprise_reads(options)
    assert "attach" in read["qsd"] or "attach" in read["qsd+"]
    assert channel_url_problem("apprise", f"mailto://u:p@example.org?{options}") is not None
    assert channel_url_problem("apprise", f"mailto://u:p@example.org#?{options}") is not None


@given(st.text("at+-:;&=%20 cheX#?", max_size=12))
def test_apprise_never_reads_an_option_of_a_saved_channel_that_names_a_file(noise: str) -> None:
    for options in (f"{noise}attach=x", f"attach{noise}=x", f"{noise}&pgpkey{noise}=x"):
        url = f"mailto://u:p@example.org?{options}"
        if channel_url_problem("apprise", url) is None:
            assert not FORBIDDEN_OPTIONS & apprise_reads(url.partition("?")[2])["qsd"].keys()


def test_webhook_channel_needs_a_url_that_can_be_called_and_masked_one_is_kept() -> None:
    check_channel(ChannelBody("webhook", "https://example.org/hook"))
    check_channel(ChannelBody("webhook", "***"))
    with pytest.raises(InvalidInput) as caught:
        check_channel(ChannelBody("webhook", "ntfy://topic"))
    assert [problem.pointer for problem in caught.value.errors] == ["/url"]
    assert "topic" not in caught.value.errors[0].detail


def test_silence_begins_now_and_lasts_as_long_as_asked() -> None:
    assert monitor_silence(SilenceBody("2h", "works"), "web", now_ms=NOW_MS) == Silence(
        "web", None, NOW_MS, NOW_MS + 7_200_000, "works"
    )
    assert tag_silence(TagSilenceBody("prod", "1m"), now_ms=NOW_MS) == Silence(None, "prod", NOW_MS, NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (SilenceBody("59s"), ["/for"]),
        (SilenceBody("366d"), ["/for"]),
        (SilenceBody("soon", "two\nlines"), ["/for", "/reason"]),
        (SilenceBody("1h", "x" * 201), ["/reason"]),
    ],
)
def test_invalid_silence_is_refused_by_its_fields(body: SilenceBody, pointers: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        monitor_silence(body, "web", now_ms=NOW_MS)
    assert [problem.pointer for problem in caught.value.errors] == pointers


@pytest.mark.parametrize("tag", ["", "a\nb", "x" * 1_000])
def test_silence_of_an_invalid_tag_is_refused(tag: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        tag_silence(TagSilenceBody(tag, "1h"), now_ms=NOW_MS)
    assert [problem.pointer for problem in caught.value.errors] == ["/tag"]


silences = st.lists(
    st.builds(
        Silence,
        st.sampled_from(["web", "db", None]),
        st.sampled_from(["prod", "test", None]),
        st.just(NOW_MS),
        st.integers(NOW_MS - 2, NOW_MS + 2),
    ),
    max_size=5,
)


@given(silences)
def test_monitor_is_silenced_by_the_silence_in_force_that_ends_last(found: list[Silence]) -> None:
    named = [NamedSilence(str(index), one) for index, one in enumerate(found)]
    covering = [one for one in found if one.until_ms > NOW_MS and (one.monitor == "web" or one.tag == "prod")]
    by = silenced_by(named, monitor="web", tags=["prod"], now_ms=NOW_MS)
    if by is None:
        assert not covering
    else:
        assert by.silence in covering
        assert by.silence.until_ms == max(one.until_ms for one in covering)
