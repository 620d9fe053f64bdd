"""Which messages belong together."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.systems.consensus.mail.threading import Link, find_roots


def test_answers_belong_to_what_they_answer() -> None:
    links = [
        Link("a", (), "Pumps"),
        Link("b", ("a",), "Re: Pumps"),
        Link("c", ("a", "b"), "Re: Pumps"),
        Link("d", ("c",), "another subject altogether"),
        Link("e", (), "Valves"),
    ]
    assert find_roots(links) == ["a", "a", "a", "a", "e"]


def test_a_message_that_is_not_here_still_names_its_thread() -> None:
    assert find_roots([Link("c", ("a", "b"), "x"), Link("d", ("b",), "y")]) == ["a", "a"]


def test_both_halves_of_a_thread_have_the_same_name() -> None:
    first = [Link("a", (), "Pumps"), Link("b", ("a",), "Re: Pumps")]
    second = [Link("d", ("a", "b", "c"), "Re: Pumps"), Link("e", ("a", "b", "c", "d"), "Re: Pumps")]
    assert {*find_roots(first), *find_roots(second)} == {"a"}


def test_rings_of_references_end_and_have_one_name() -> None:
    ring = [Link("b", ("a",), ""), Link("c", ("b",), ""), Link("a", ("c",), "")]
    assert find_roots(ring) == ["a", "a", "a"]
    assert find_roots(ring[::-1]) == ["a", "a", "a"]
    assert find_roots([Link("a", ("a",), "")]) == ["a"]


def test_replies_that_refer_to_nothing_follow_their_subject() -> None:
    links = [
        Link("a", (), "[dev] Agenda"),
        Link("b", (), "Re: [dev] agenda"),
        Link("c", (), "Agenda"),
        Link("d", (), "AW: Agenda"),
        Link("e", (), "Re: lost beginning"),
        Link("f", (), "Re: Lost Beginning"),
        Link("g", ("f",), "Re: Lost Beginning"),
    ]
    assert find_roots(links) == ["a", "a", "c", "c", "e", "e", "e"]


def test_short_subjects_join_nobody() -> None:
    assert find_roots([Link("a", (), "hi"), Link("b", (), "Re: hi"), Link("c", (), "Re:")]) == [
        "a",
        "b",
        "c",
    ]


_ID = st.sampled_from("abcdefgh")
_LINK = st.builds(
    Link, _ID, st.lists(_ID, max_size=4).map(tuple), st.sampled_from(["Re: pump", "pump", ""])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_LINK, max_size=12))
def test_any_references_end_in_one_thread_for_each_message(links: list[Link]) -> None:
    roots = find_roots(links)
    assert len(roots) == len(links)
    by_id: dict[str, set[str]] = {}
    for link, root in zip(links, roots, strict=True):
        by_id.setdefault(link.message_id, set()).add(root)
    assert all(len(each) == 1 for each in by_id.values())


def test_a_long_chain_is_no_deep_recursion() -> None:
    chain = [Link(str(n), (str(n - 1),), "") for n in range(1, 50_000)]
    assert set(find_roots(chain[::-1])) == {"0"}
