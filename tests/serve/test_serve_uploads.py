"""``/predict`` by the body itself and by forms."""

from __future__ import annotations

import io

import numpy as np
import pytest
from serve_runs import KINDS, in_base64, picture_bytes, wav_bytes


def form(*parts):
    """Fields ``(name, text)`` and files ``(name, bytes)`` as multipart."""
    edge = b"----edge"
    lines = []
    for name, value in parts:
        file = f'; filename="{name if "." in name else f"{name}.bin"}"' if isinstance(value, bytes) else ""
        head = f'Content-Disposition: form-data; name="{name}"{file}'.encode()
        content = value if isinstance(value, bytes) else value.encode()
        lines += [b"--" + edge, head, b"", content]
    body = b"\r\n".join([*lines, b"--" + edge + b"--", b""])
    return body, {"content-type": f"multipart/form-data; boundary={edge.decode()}"}


def npy(values):
    held = io.BytesIO()
    np.save(held, np.asarray(values))
    return held.getvalue()


def test_a_text_as_the_body(served):
    ask = served("translate").client
    wanted = ask("POST", "/predict", {"inputs": ["a b"], "beam": 2, "details": True}).json()["outputs"]
    answered = ask("POST", "/predict?beam=2&details=true", b"a b\n", headers={"content-type": "text/plain"})
    assert answered.json()["outputs"] == wanted
    answered = ask("POST", "/predict", b"\xff", headers={"content-type": "text/plain"})
    assert (answered.status, answered.json()["error"]) == (
        422,
        "the body is not UTF-8 text (byte 1); save it as UTF-8.",
    )


def test_a_form_of_texts(served):
    ask = served("classify").client
    wanted = ask("POST", "/predict", {"inputs": ["a b", "c"], "details": True}).json()["outputs"]
    body, headers = form(("inputs", "a b"), ("file", b"c\n"), ("details", "true"))
    assert ask("POST", "/predict", body, headers=headers).json()["outputs"] == wanted


@pytest.mark.parametrize("name", ["mine.csv", "mine.TSV", "mine.jsonl.gz"])
def test_a_table_is_not_answered_as_one_text(served, name):
    for kind in ("classify", "tag"):
        ask = served(kind).client
        body, headers = form((name, b"text,label\na b,x\nc,y\n"))
        answered = ask("POST", "/predict", body, headers=headers)
        assert answered.status == 422
        assert answered.json()["error"].startswith(
            f"{name} is a table, and a file is read as one text here; "
        )


@pytest.mark.parametrize("kind", ["transcribe", "caption", "vectors", "forecast"])
def test_files_of_each_kind(served, kind):
    ask = served(kind).client
    x = KINDS[kind].inputs(1)[0]
    if kind == "transcribe":
        content = wav_bytes(x)
        given = in_base64(content)
    elif kind == "caption":
        content, given = picture_bytes(x), x
    else:
        content, given = npy(x), x
    wanted = ask("POST", "/predict", {"inputs": [given]}).json()["outputs"]
    as_body = ask("POST", "/predict", content, headers={"content-type": "application/octet-stream"})
    assert as_body.status == 200, as_body.body
    assert as_body.json()["outputs"] == wanted
    body, headers = form(("a", content))
    assert ask("POST", "/predict", body, headers=headers).json()["outputs"] == wanted
    body, headers = form(("a", content), ("b", content))
    assert len(ask("POST", "/predict", body, headers=headers).json()["outputs"]) == 2


def test_questions_about_one_picture(served):
    ask = served("answer").client
    x = KINDS["answer"].inputs(1)[0]
    other = "what is it"
    wanted = ask("POST", "/predict", {"inputs": [x, {**x, "question": other}]}).json()["outputs"]
    body, headers = form(
        ("picture", picture_bytes(x["picture"])), ("question", x["question"]), ("question", other)
    )
    assert ask("POST", "/predict", body, headers=headers).json()["outputs"] == wanted
    chosen = ask("POST", "/predict", {"inputs": [{**x, "choices": ["no", "yes"]}]})
    assert chosen.json()["outputs"][0] in ("no", "yes")
    body, headers = form(("picture", picture_bytes(x["picture"])))
    answered = ask("POST", "/predict", body, headers=headers)
    assert (answered.status, "0 fields question" in answered.json()["error"]) == (422, True)


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        ("transcribe", b"RIFFxxxx", "the body"),
        ("caption", b"\x89PNG\r\n", "the body"),
        ("vectors", b"\x93NUMPY\x01\x00", "is not an .npy file"),
        ("forecast", b"1,2\n", "is not an .npy file"),
        ("answer", b"x", "without a question"),
    ],
)
def test_files_that_cannot_be_read(served, kind, content, text):
    answered = served(kind).client("POST", "/predict", content, headers={"content-type": "image/png"})
    assert answered.status == 422, answered.body
    assert text in answered.json()["error"]
    assert "/tmp" not in answered.json()["error"]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("transcribe", "/etc/passwd"),
        ("caption", "/etc/passwd"),
        ("forecast", "/etc/passwd"),
        ("forecast", ["/etc/passwd"]),
        ("vectors", "/etc/passwd"),
        ("answer", ["/etc/passwd", "what"]),
        ("answer", {"picture": "/etc/passwd", "question": "what"}),
    ],
)
def test_a_text_is_never_the_name_of_a_file(served, kind, given):
    answered = served(kind).client("POST", "/predict", {"inputs": [given]})
    assert answered.status == 422, answered.body
    assert "/etc/passwd" not in answered.json()["error"]


def test_curl_without_a_content_type_is_explained(served):
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answered = served("classify").client("POST", "/predict", b'{"inputs": ["a"]}', headers=headers)
    assert (answered.status, "Content-Type: application/json" in answered.json()["error"]) == (415, True)
