"""Shared parts of the scripts. They run with a Python that has one client installed."""

import json
import os

address = os.environ["CLIENT_GATEWAY"]
base_url = f"{address}/v1"
api_key = os.environ["CLIENT_API_KEY"]
model = os.environ["CLIENT_MODEL"]
embedding_model = os.environ.get("CLIENT_EMBEDDING_MODEL", "")
wrong_key = "sk-hg-wrong"
output_max = 24

question = "What is the weather in Paris?"
city_schema = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def run_cases(cases):
    """Runs cases one after the other, and prints a line of JSON for each."""
    for name, run in cases.items():
        result = "ok"
        try:
            run()
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        print(json.dumps({"case": name, "result": result}), flush=True)
    # Some clients leave threads.
    os._exit(0)


def expect_text(text):
    assert isinstance(text, str) and text != "", f"expected text, not {text!r}"


def expect_vectors(vectors):
    assert len(vectors) == 2 and len(vectors[0]) > 8, "no vectors"


def expect_refusal(run, kind):
    """Runs what a wrong key must end with an error of this class."""
    try:
        run()
    except kind:
        return
    raise AssertionError("a wrong key was accepted")
