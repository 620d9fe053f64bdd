"""Everything that the documentation says about code is run, and every link leads somewhere."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("C*.md")])
_BLOCK = re.compile(r"(?:<!-- (postgres|rabbitmq) -->\s*)?```python\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    code: str
    needs: str | None
    """The server that has to be there."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets() -> list[Snippet]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in _BLOCK.finditer(text):
            line = text[: block.start(2)].count("\n")
            needs = "postgres" if "servers import PostgreSQL" in block[2] else block[1]
            found.append(Snippet(page, line, block[2], needs))
    return found


@pytest.mark.parametrize("snippet", snippets(), ids=str)
def test_snippet_runs(snippet: Snippet, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    code = snippet.code
    if snippet.needs == "postgres":
        url = request.getfixturevalue("postgres_database")
        code = code.replace("postgresql://localhost/app", url)
    elif snippet.needs == "rabbitmq":
        url = request.getfixturevalue("rabbitmq_vhost")
        code = code.replace("amqp://headway:PASSWORD@localhost:5672/shop", url)
    file = tmp_path / "snippet.py"
    file.write_text(code)
    run = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", file],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, f"{snippet}:\n{run.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in _LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = {"#" + re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}
            assert anchor in anchors, f"{page.name} links to {path}{anchor}"


def test_reference_pages_are_what_the_code_says() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_page_is_reached_from_the_index() -> None:
    linked = set()
    for page in PAGES:
        linked |= {
            (page.parent / path).resolve() for path, _ in _LINK.findall(page.read_text()) if path
        }
    lost = [str(page.relative_to(ROOT)) for page in PAGES if page not in linked]
    assert set(lost) <= {"README.md", "CHANGELOG.md", "docs/README.md"}
