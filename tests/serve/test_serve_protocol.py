"""The Open Inference Protocol: every task by tensors, as JSON and as bytes."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from serve_runs import KINDS, in_base64, picture_bytes, wav_bytes

from anaphora.serving.protocol.tensors import TYPES


def tensor(name, datatype, values, shape=None):
    flat = values if datatype == "BYTES" else np.asarray(values)
    size = list(np.shape(flat)) if shape is None else shape
    data = list(flat) if datatype == "BYTES" else flat.ravel().tolist()
    return {"name": name, "datatype": datatype, "shape": size, "data": data}


def padded(rows):
    longest = max(map(len, rows))
    full = np.zeros((len(rows), longest, *np.shape(rows[0])[1:]), np.float32)
    for place, row in zip(full, rows, strict=True):
        place[: len(row)] = row
    return full, [len(row) for row in rows]


def as_tensors(kind, inputs):
    """The JSON inputs of a kind as tensors."""
    if isinstance(inputs[0], str):
        return [tensor("inputs", "BYTES", inputs, [len(inputs)])]
    if kind == "answer":
        return [
            tensor("pictures", "FP32", [x["picture"] for x in inputs]),
            tensor("questions", "BYTES", [x["question"] for x in inputs], [len(inputs)]),
        ]
    if kind == "caption":
        return [tensor("inputs", "FP32", inputs)]
    full, lengths = padded(inputs)
    return [tensor("inputs", "FP32", full), tensor("lengths", "INT64", lengths)]


@pytest.mark.parametrize("kind", KINDS)
def test_infer_gives_what_predict_gives(served, kind):
    ask = served(kind).client
    inputs = KINDS[kind].inputs(3)
    about = ask("GET", f"/v2/models/{kind}").json()
    assert about["name"] == kind
    assert about["platform"] == f"anaphora_{kind.partition('-')[0].replace('vectors', 'classify')}"
    assert ask("GET", f"/v2/models/{kind}/ready").json() == {"name": kind, "ready": True}
    tensors = as_tensors(kind, inputs)
    for given, spec in zip(tensors, about["inputs"], strict=False):
        assert (given["name"], given["datatype"], len(given["shape"])) == (
            spec["name"],
            spec["datatype"],
            len(spec["shape"]),
        )
    answered = ask("POST", f"/v2/models/{kind}/infer", {"id": "7", "inputs": tensors})
    assert answered.status == 200, answered.body
    found = answered.json()
    assert (found["model_name"], found["id"], found["model_version"]) == (kind, "7", about["versions"][0])
    output, *lengths = found["outputs"]
    (spec,) = about["outputs"]
    assert (output["name"], output["datatype"], len(output["shape"])) == (
        spec["name"],
        spec["datatype"],
        len(spec["shape"]),
    )
    plain = ask("POST", "/predict", {"inputs": inputs}).json()["outputs"]
    values = np.array(output["data"], dtype=object).reshape(output["shape"]).tolist()
    if lengths:
        values = [row[:length] for row, length in zip(values, lengths[0]["data"], strict=True)]
    assert values == plain


@pytest.mark.parametrize("kind", KINDS)
def test_details_have_a_tensor_for_each_field(served, kind):
    ask = served(kind).client
    inputs = KINDS[kind].inputs(2)
    details = ask("POST", "/predict", {"inputs": inputs, "details": True}).json()["outputs"]
    body = {"inputs": as_tensors(kind, inputs), "parameters": {"details": True}}
    found = ask("POST", f"/v2/models/{kind}/infer", body).json()["outputs"]
    names = [one["name"] for one in found]
    assert set(details[0]) <= set(names)
    for one in found:
        assert one["datatype"] in (*TYPES, "BYTES")
        assert len(one["data"]) == int(np.prod(one["shape"]))
    first = found[0]
    if first["datatype"] == "BYTES" and len(first["shape"]) == 1:
        assert first["data"] == [one[first["name"]] for one in details]


def binary(head, tail):
    start = json.dumps(head).encode()
    return start + tail, {
        "inference-header-content-length": str(len(start)),
        "content-type": "application/octet-stream",
    }


def test_tensors_as_bytes(served):
    ask = served("classify").client
    texts = ["a b", "b"]
    tail = b"".join(struct.pack("<I", len(text)) + text.encode() for text in texts)
    spec = {
        "name": "inputs",
        "datatype": "BYTES",
        "shape": [2],
        "parameters": {"binary_data_size": len(tail)},
    }
    head = {"inputs": [spec], "parameters": {"binary_data_output": True, "details": True}}
    body, headers = binary(head, tail)
    answered = ask("POST", "/v2/models/classify/infer", body, headers=headers)
    assert answered.status == 200, answered.body
    size = int(answered.headers["inference-header-content-length"])
    found, rest = json.loads(answered.body[:size]), answered.body[size:]
    plain = ask("POST", "/predict", {"inputs": texts, "details": True}).json()["outputs"]
    values = {}
    for one in found["outputs"]:
        values[one["name"]], rest = (
            rest[: one["parameters"]["binary_data_size"]],
            rest[one["parameters"]["binary_data_size"] :],
        )
    assert rest == b""
    assert np.frombuffer(values["probabilities"], "<f8").tolist() == [
        p for one in plain for p in one["probabilities"].values()
    ]
    assert values["label"] == b"".join(
        struct.pack("<I", len(one["label"])) + one["label"].encode() for one in plain
    )


def test_only_the_outputs_that_are_asked_for(served):
    ask = served("classify").client
    body = {
        "inputs": [tensor("inputs", "BYTES", ["a"], [1])],
        "outputs": [{"name": "probabilities", "parameters": {"binary_data": False}}],
        "parameters": {"details": True},
    }
    found = ask("POST", "/v2/models/classify/infer", body).json()["outputs"]
    assert [one["name"] for one in found] == ["probabilities"]


def test_files_as_bytes(served):
    """A picture file is what its pixels are, a sound file what its samples are."""
    picture = KINDS["caption"].inputs(1)[0]
    content = picture_bytes(picture)
    spec = {
        "name": "inputs",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"binary_data_size": len(content) + 4},
    }
    body, headers = binary({"inputs": [spec]}, struct.pack("<I", len(content)) + content)
    ask = served("caption").client
    found = ask("POST", "/v2/models/caption/infer", body, headers=headers).json()
    wanted = ask("POST", "/predict", {"inputs": [picture]}).json()["outputs"]
    assert found["outputs"][0]["data"] == wanted
    assert ask("POST", "/predict", {"inputs": [in_base64(content)]}).json()["outputs"] == wanted


def test_versions(served):
    ask = served("classify").client
    version = ask("GET", "/v2/models/classify").json()["versions"][0]
    assert ask("GET", f"/v2/models/classify/versions/{version}/ready").status == 200
    answered = ask("GET", "/v2/models/classify/versions/7/ready")
    assert (answered.status, "no version '7'" in answered.json()["error"]) == (404, True)


def bad(**changes):
    given = {**tensor("inputs", "BYTES", ["a"], [1]), **changes}
    return {"inputs": [{name: value for name, value in given.items() if value is not None}]}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "must be a list of tensors"),
        ({"inputs": []}, 422, "is missing"),
        (bad(name=None), 400, "has no name"),
        (bad(name="x"), 422, "there is no input 'x'"),
        (bad(datatype="TEXT"), 400, "no datatype"),
        (bad(datatype="FP32"), 400, "not FP32"),
        (bad(shape=[2]), 400, "has 1 values, and its shape asks for 2"),
        (bad(shape=[-1]), 400, "has no shape"),
        (bad(shape=[1] * 9), 400, "has no shape"),
        (bad(shape=[True]), 400, "has no shape"),
        (bad(shape=[1 << 50]), 400, "has no shape"),
        (bad(data=None), 400, "has no data"),
        (bad(data=[["a"], "b"], shape=[2]), 400, "mixes lists"),
        (bad(data=[1]), 400, "must hold texts"),
        (bad(datatype="INT8", data=[300]), 400, "INT8"),
        (bad(datatype="FP32", data=[1.0]), 422, "counts the inputs"),
        (bad(datatype="FP32", data=[1.0], shape=[1, 1]), 422, "is numbers, and this run reads text"),
        (bad(parameters={"binary_data_size": 5}, data=None), 400, "binary_data_size"),
        ({**bad(), "parameters": 3}, 400, "parameters must be an object"),
        ({**bad(), "parameters": {"beam": 3}}, 422, "beam is not a setting"),
        ({**bad(), "outputs": [{"name": "none"}]}, 422, "there is no output 'none'"),
        ({**bad(), "id": 3}, 400, "id must be a text"),
    ],
)
def test_tensors_that_cannot_be_used(served, body, status, text):
    answered = served("classify").client("POST", "/v2/models/classify/infer", body)
    assert answered.status == status, answered.body
    assert text in answered.json()["error"]


def test_lengths_that_do_not_fit(served):
    ask = served("vectors").client
    rows = tensor("inputs", "FP32", np.zeros((2, 3, 2)))
    for lengths in ([3], [0, 3], [4, 3], [-1, 1]):
        answered = ask(
            "POST", "/v2/models/vectors/infer", {"inputs": [rows, tensor("lengths", "INT64", lengths)]}
        )
        assert answered.status == 422
        assert "length" in answered.json()["error"]


def test_the_rate_of_samples(served):
    ask = served("transcribe").client
    samples = KINDS["transcribe"].inputs(1)[0]
    body = {"inputs": [tensor("inputs", "FP32", [samples]), tensor("rates", "INT64", [8000])]}
    found = ask("POST", "/v2/models/transcribe/infer", body).json()["outputs"][0]["data"]
    inputs = [{"samples": samples, "rate": 8000}]
    assert found == ask("POST", "/predict", {"inputs": inputs}).json()["outputs"]
    upload = ask("POST", "/predict", wav_bytes(samples), headers={"content-type": "audio/wav"})
    assert upload.status == 200, upload.body


def test_the_words_of_training_may_be_asked_of_a_transcriber(served):
    ask = served("transcribe").client
    body = {"inputs": KINDS["transcribe"].inputs(2), "lexicon": "train", "word_bonus": 30.0}
    answered = ask("POST", "/predict", body)
    assert answered.status == 200, answered.body
    heard = " ".join(answered.json()["outputs"]).split()
    assert heard
    assert set(heard) <= {"ab", "a", "b"}
    fields = ask("GET", "/openapi.json").json()["components"]["schemas"]["TranscribeRequest"]["properties"]
    assert fields["lexicon"]["enum"] == ["", "train"]
    assert not {"lm", "search"} & set(fields)


def test_an_empty_text_is_refused_where_there_is_no_place_for_no_label(served):
    asked = {"inputs": [tensor("inputs", "BYTES", ["a", " "], [2])]}
    answered = served("classify").client("POST", "/v2/models/classify/infer", asked)
    assert answered.status == 422
    assert answered.json()["error"].startswith("input 2 is empty and has no label")
