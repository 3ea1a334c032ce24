"""The pages, and the document from which one of them is made."""

from __future__ import annotations

import re

import pytest
from serve_runs import KINDS


@pytest.mark.parametrize("path", ["/", "/docs", "/page.js", "/page.css"])
def test_pages_hold_nothing_inline_and_load_nothing_from_elsewhere(start, path):
    answered = start("classify", token="secret").app
    from serve_runs import Client

    answered = Client(answered)("GET", path)  # pages need no token
    assert answered.status == 200
    assert "default-src 'none'" in answered.headers["content-security-policy"]
    content = answered.body.decode()
    assert not re.search(r"https?://|<style|<script>|onclick|innerHTML|eval\(|style=", content)


def test_the_document_names_every_run_and_its_options(start):
    ask = start("classify", "translate").client
    found = ask("GET", "/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert {"/runs/classify/predict", "/runs/translate/predict", "/v2/models/translate/infer"} <= set(
        found["paths"]
    )
    assert "/predict" not in found["paths"]
    schemas = found["components"]["schemas"]
    fields = schemas["TranslateRequest"]["properties"]
    assert {"inputs", "details", "beam", "seed", "n_best"} <= set(fields)
    assert not {"lm", "search", "lexicon", "source_field"} & set(fields)
    text = ask("GET", "/openapi.json").body.decode()
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in schemas


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_of_the_types_that_the_document_names(served, kind):
    from anaphora.serving.openapi import answer_model, request_model

    one = served(kind)
    run = next(iter(one.runs))
    for details in (False, True):
        body = {"inputs": KINDS[kind].inputs(2), "details": details}
        request_model(run).model_validate(body)
        answer_model(run).model_validate(one.client("POST", "/predict", body).json())


def test_runs_are_listed(start):
    found = start("classify", "caption").client("GET", "/runs").json()["runs"]
    assert [(run["name"], run["task"], run["input"]) for run in found] == [
        ("classify", "classify", "text"),
        ("caption", "caption", "picture"),
    ]
