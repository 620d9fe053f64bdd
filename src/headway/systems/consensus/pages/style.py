"""How pages look: by themselves, on light and dark screens, and on paper. Nothing is loaded."""

from html import escape

CSS = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #5a636e; --line: #d9dee4; --page: #fcfcfb;
  --card: #ffffff; --link: #0b5cad; --mark: #fff2b8; --yes: #1c6b3c; --yes-bg: #dff3e6;
  --no: #5a636e; --no-bg: #eceff2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --soft: #9aa5b1; --line: #343b43;
  --page: #16191d; --card: #1d2126; --link: #7db8f5; --mark: #57491a; --yes: #8fdcab;
  --yes-bg: #173825; --no: #a9b3bd; --no-bg: #2b3138; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 5rem; max-width: 50rem; background: var(--page);
  color: var(--ink); font: 1rem/1.6 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
body.wide { max-width: 68rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .4rem 0 .6rem; overflow-wrap: anywhere;
  text-wrap: balance; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
ul { padding-left: 1.2rem; margin: .3rem 0; }
li { margin: .35rem 0; overflow-wrap: anywhere; }
.facts, nav, footer { color: var(--soft); font-size: .92rem; }
.badge { display: inline-block; padding: .1rem .55rem; border-radius: 1rem; font-size: .85rem;
  font-weight: 600; white-space: nowrap; }
.yes { color: var(--yes); background: var(--yes-bg); }
.no { color: var(--no); background: var(--no-bg); }
.summary { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .4rem 1.4rem 1.1rem; margin: 1.4rem 0; }
.summary h3 { text-transform: uppercase; letter-spacing: .05em; font-size: .8rem;
  color: var(--soft); }
.cite { font-size: .8em; vertical-align: .15em; white-space: nowrap; }
article { border-top: 1px solid var(--line); padding: 1rem 0 .4rem; }
article header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
article header time, article header .number { color: var(--soft); font-size: .9rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; }
.aside { color: var(--soft); font-size: .92rem; }
mark { background: var(--mark); color: inherit; border-radius: .2rem; padding: 0 .1rem;
  scroll-margin-top: 6rem; }
mark:target, article:target { outline: 2px solid var(--link); outline-offset: 3px; }
summary { cursor: pointer; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-size: .85rem; color: var(--soft); font-weight: 600; }
th, td { padding: .5rem .7rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.subject { overflow-wrap: anywhere; } .threads td.subject { min-width: 14rem; }
.count { text-align: right; }
.dates { padding-left: 1.2rem; }
@media (max-width: 40rem) { body { padding: 1.2rem .9rem 4rem; }
  .threads, .threads tbody { display: block; } .threads thead, .threads .count { display: none; }
  .threads tr { display: grid; grid-template-columns: 1fr auto; gap: .1rem .8rem;
    padding: .6rem 0; border-bottom: 1px solid var(--line); }
  .threads td, .threads td.subject { border: 0; padding: 0; min-width: 0; }
  .threads td:last-child { grid-area: 1 / 2; }
  .threads .dates { grid-area: 2 / 1 / 3 / 3; color: var(--soft); font-size: .9rem; }
  .threads .badge::before { content: "decision: "; } }
@media print { body { max-width: none; } nav { display: none; } }
""".strip()


def page(title: str, body: str, *, wide: bool = False) -> str:
    """Put a whole page together; the title is text, the body HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<style>
{CSS}
</style>
</head>
<body{' class="wide"' if wide else ""}>
{body}
</body>
</html>
"""


def badge(word: str, *, decided: bool) -> str:
    return f'<span class="badge {"yes" if decided else "no"}">{escape(word)}</span>'
