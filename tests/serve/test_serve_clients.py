"""Clients of others, where they are installed: Triton's talks the Open Inference Protocol to the server."""

from __future__ import annotations

import numpy as np
import pytest
from serve_runs import KINDS
from test_serve_socket import Process

pytestmark = pytest.mark.xdist_group("serve")


@pytest.fixture(scope="module")
def server(folder_of):
    started = Process(str(folder_of("classify")), str(folder_of("vectors")), "--device", "cpu")
    yield started
    assert started.end() == 0


@pytest.mark.parametrize("binary", [True, False])
def test_the_client_of_triton(server, binary):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("classify")
        assert client.get_server_metadata()["name"] == "anaphora"
        about = client.get_model_metadata("classify")
        assert [one["datatype"] for one in about["inputs"]] == ["BYTES"]
        texts = KINDS["classify"].inputs(3)
        given = triton.InferInput("inputs", [3], "BYTES")
        given.set_data_from_numpy(np.array(texts, dtype=np.object_), binary_data=binary)
        wanted = triton.InferRequestedOutput("outputs", binary_data=binary)
        found = client.infer("classify", [given], outputs=[wanted], request_id="7").as_numpy("outputs")
        plain = [one.decode() if isinstance(one, bytes) else one for one in found.tolist()]
        assert set(plain) <= {"vowel", "consonant"}
        rows = np.array([KINDS["vectors"].inputs(1)[0]], dtype=np.float32)
        numbers = triton.InferInput("inputs", list(rows.shape), "FP32")
        numbers.set_data_from_numpy(rows, binary_data=binary)
        assert client.infer("vectors", [numbers]).as_numpy("outputs").shape == (1,)
        refused = pytest.importorskip("tritonclient.utils").InferenceServerException
        with pytest.raises(refused, match="there is no run 'none' here"):
            client.infer("none", [given])
    finally:
        client.close()
