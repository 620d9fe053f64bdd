"""What stands around the description of the API on its page."""

FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; overflow-wrap: break-word }}
code, pre {{ font: .875em/1.5 ui-monospace, monospace; background: #f4f4f2; border-radius: 4px }}
code {{ padding: .1em .25em }}
pre {{ padding: .8rem; margin: .5rem 0; white-space: pre-wrap; overflow-wrap: anywhere }}
h2 {{ margin-top: 2.5rem }}
h3 {{ border-top: 1px solid #ddd; padding-top: 1rem }}
h3 code {{ font-size: 1em; background: none; padding: 0 }}
h4 {{ margin: 1rem 0 .25rem }}
table {{ border-collapse: collapse; width: 100%; font-size: .9375em }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid #e4e4e0 }}
th {{ font-weight: 600 }} td:first-child {{ width: 30% }} td code {{ white-space: nowrap }}
dl {{ display: grid; grid-template-columns: 3rem 1fr; margin: 0 }}
dt {{ font-weight: 600 }} dd {{ margin: 0 0 .5rem; min-width: 0 }}
summary {{ cursor: pointer; color: #555; font-size: .9375em }}
</style></head><body>
<h1>{title}</h1><p>{about}</p>
<p>The same for machines: <a href="/openapi.json">openapi.json</a>. To look at:
<a href="/api/v1/totals">totals</a>, <a href="/api/v1/events">events</a>,
<a href="/api/v1/entities">entities</a>, <a href="/health">health</a>,
<a href="/metrics">metrics</a>.</p>
<h2>Try it</h2><pre>{curl}</pre>
<h2>Requests</h2>{operations}
<h2 id="shapes">Shapes of the events</h2>
<p>An event is one of <a href="#CarCreated">CarCreated</a>, <a href="#LoanCreated">LoanCreated</a>,
<a href="#LoanPaymentSubmitted">LoanPaymentSubmitted</a> and
<a href="#CarServiceDone">CarServiceDone</a>. Fields that are not listed are refused. An <i>id</i>
has {identifier}</p>{shapes}
</body></html>
"""
