# %% [markdown]
# # Measurements as a data frame
#
# A job of RIPE Atlas measurements: what it costs, how it goes, what came of it. Each `# %%` is a cell in Jupyter
# (with jupytext), VS Code, PyCharm and Spyder; `python job_notebook.py` runs all of them.
#
# `pip install 'paceline-client[pandas,progress]'`, and set `PACELINE_URL` and `PACELINE_TOKEN`.

# %%
from __future__ import annotations

from paceline_client import Client
from paceline_client.models.job_documents import JobDocument

client = Client()

# %%
document: JobDocument = {
    "title": "Who reaches us?",
    "measurements": [
        {
            "definitions": [{"type": "ping", "af": 4, "target": target, "description": f"ping {target}"}],
            "probes": [{"requested": 10, "type": "area", "value": "WW"}],
            "is_oneoff": True,
        }
        for target in ("192.0.2.1", "192.0.2.2", "192.0.2.3")
    ],
}
quote = client.jobs.quote(document)
print(f"at most {quote.cost} of {quote.credits_left} credits; fits: {quote.fits}")

# %%
job = client.jobs.submit(document, idempotency_key="who-reaches-us-1")
ended = job.wait(timeout="1h")
print(f"{ended.counts.done} of {ended.counts.total} done, {ended.cost.settled} credits")

# %%
frame = job.results().to_pandas()
rtt = frame.groupby("target")["result.avg"].describe()[["count", "min", "50%", "max"]]
print(rtt)
