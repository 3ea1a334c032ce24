"""``anaphora serve RUN…``: trained runs behind HTTP.

How the pieces fit, from the socket to the model:

- `serve` opens the socket, starts uvicorn and drains it on SIGTERM; `supervisor` does that for several processes.
- `guard` is what every request passes first: Host and Origin, token, sizes, deadlines, draining, metrics, and one-sentence errors.
- `app` puts the routes together: `SECTIONS` lists functions that take the `Server` and return their routes. To add routes,
  write such a function and list it there.
- `predicting` (``POST /predict``), `protocol` (Open Inference Protocol v2), `health`, `pages` and `openapi` are such sections.
- `runs` holds the loaded runs by name and loads a replaced folder again. `served` is one of them: ``name``, ``estimator``, ``task``,
  ``config``, ``version``, ``limits``, ``lock``. Within ``with server.runs.using(name) as served`` it is not unloaded.
  Code that computes with ``served.estimator`` in a thread of its own holds ``served.lock`` meanwhile and appends to
  ``served.on_close`` what ends that thread.
- `batching` has the queues of a run, one for quick requests and one for costly ones, each with its thread, and the turns in which
  they use the model; `Served.ask` puts a request into one and awaits its answer.
- `anaphora.web.cost` says what a request costs before it is computed; `limits` holds every bound, and the ledger of what is being
  computed for whom. What asks a model for anything enters its cost there first.
- `exchange` reads inputs, checks options and makes JSON of answers, for every task.
- `refusals` are exceptions with a status and a sentence: raise one anywhere below a route.

**The same request and seed give the same bytes under any load.** Requests share a call of ``predict`` only where no bit of
an answer can depend on its neighbours (`exchange.together`); otherwise each is a call of its own.
"""
