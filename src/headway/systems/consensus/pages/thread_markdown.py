"""The page of a thread as Markdown, for whoever reads or keeps it as a text."""

import re

from headway.systems.consensus.markdown import escaped
from headway.systems.consensus.pages.report import Post, Report, day, many, span

_NUMBER = re.compile(r"(?<!\\)\[(\d{1,4})\]")
_FENCE = re.compile(r"`{3,}")


def thread_markdown(report: Report) -> str:
    """Give the page; numbers lead to the messages below."""
    places = report.places()

    def linked(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"[\\[{number}\\]](#m{places[number]})" if number in places else found[0]

    facts = [
        many(len(report.posts), "message", "messages"),
        span(*report.dates),
        ", ".join(escaped(each) for each in report.people),
    ]
    return "\n\n".join(
        [
            f"# {escaped(report.title)}",
            " · ".join(facts),
            _NUMBER.sub(linked, report.summary.strip()),
            "## Messages",
            *(_post(number, each) for number, each in enumerate(report.posts, 1)),
            f"Summary by {escaped(report.made_by)}.\n",
        ]
    )


def _post(number: int, post: Post) -> str:
    text = post.speech.body.strip()
    # Longer than any fence inside, so that nothing in a mail ends it.
    longest = max((len(each) for each in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    who, when = escaped(post.speech.sender), day(post.speech.date)
    head = f'### <a id="m{number}"></a>{number}. {who}, {when}'
    return f"{head}\n\n{fence}text\n{text}\n{fence}"
