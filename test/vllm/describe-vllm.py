"""
Prints, as JSON, the interface of the installed vLLM: {"fields": …, "routes": […], "metrics": […], "environment": […],
"flags": […]}. `fields` has every field of its own models of requests, by the place in a request at which it stands:
{"/v1/chat/completions": ["messages", …], "messages[].content[]": ["image_url", …], …}.
"""

import argparse
import ast
import dataclasses
import json
import pathlib
import re
import typing

import vllm

from pydantic import BaseModel
from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest, AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingRequest
from vllm.entrypoints.pooling.scoring.protocol import RerankRequest, ScoreRequest
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeRequest, TokenizeChatRequest, TokenizeCompletionRequest

found: dict[str, set[str]] = {}


def fields_of(model: type) -> dict[str, object] | None:
    """The fields of a model by the names that requests give them; None for what is no model."""
    if issubclass(model, BaseModel):
        return {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    if dataclasses.is_dataclass(model):
        hints = typing.get_type_hints(model)
        return {field.name: hints[field.name] for field in dataclasses.fields(model) if field.init}
    # TypedDict, of typing or of typing_extensions.
    if hasattr(model, "__required_keys__"):
        return typing.get_type_hints(model)
    return None


def visit(annotation: object, place: str, root: str | None, within: tuple[type, ...]) -> None:
    """`root` names the place of a whole request, whose fields' own places begin with nothing."""
    arguments = typing.get_args(annotation)
    if isinstance(annotation, type) and not arguments:
        fields = None if annotation in within else fields_of(annotation)
        if fields is None:
            return
        found.setdefault(root or place, set()).update(fields)
        for name, inner in fields.items():
            visit(inner, name if root else f"{place}.{name}", None, (*within, annotation))
        return
    origin = typing.get_origin(annotation)
    holds = isinstance(origin, type) and hasattr(origin, "__iter__") and not issubclass(origin, dict)
    for inner in arguments:
        visit(inner, f"{place}[]" if holds else place, root, within)


visit(ChatCompletionRequest, "", "/v1/chat/completions", ())
visit(CompletionRequest, "", "/v1/completions", ())
# Items, blocks and messages of these are told by other tests, or OpenAI's own: only their own fields are told.
found["/v1/responses"] = set(fields_of(ResponsesRequest) or {})
found["/v1/messages"] = set(fields_of(AnthropicMessagesRequest) or {})
found["/v1/messages/count_tokens"] = set(fields_of(AnthropicCountTokensRequest) or {})
found["/v1/tokenize"] = set(fields_of(TokenizeCompletionRequest) or {}) | set(fields_of(TokenizeChatRequest) or {})
found["/v1/detokenize"] = set(fields_of(DetokenizeRequest) or {})
visit(EmbeddingRequest, "", "/v1/embeddings", ())
visit(RerankRequest, "", "/v1/rerank", ())
visit(ScoreRequest, "", "/v1/score", ())


VERBS = ("get", "post", "put", "patch", "delete", "head")
# What a file with a route or the name of a metric contains. Parsing all files takes twenty seconds.
OF_INTEREST = re.compile(rf"\.(?:{'|'.join(VERBS)}|add_api_route)\(\s*[\"']/|[\"']vllm:")


def trees() -> typing.Iterator[ast.AST]:
    for path in pathlib.Path(vllm.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if OF_INTEREST.search(text):
            yield ast.parse(text)


def routes_of(call: ast.Call) -> typing.Iterator[str]:
    """The routes that a call adds: `router.post("/path")`, or `router.add_api_route("/path", f, methods=["POST"])`."""
    first = call.args[0] if call.args else None
    if not isinstance(call.func, ast.Attribute) or not isinstance(first, ast.Constant):
        return
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    if not isinstance(first.value, str) or not first.value.startswith("/") or not re.search("router|app", owner):
        return
    if call.func.attr in VERBS:
        yield f"{call.func.attr.upper()} {first.value}"
    if call.func.attr == "add_api_route":
        methods = [keyword.value for keyword in call.keywords if keyword.arg == "methods"]
        for method in ast.literal_eval(methods[0]) if methods else ["GET"]:
            yield f"{method} {first.value}"


routes: set[str] = set()
metrics: set[str] = set()
for tree in trees():
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            routes.update(routes_of(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            metrics.update(re.findall(r"^vllm:[a-z0-9_]+$", node.value))


def flags() -> set[str]:
    """The arguments of `vllm serve`."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser: argparse.ArgumentParser = make_arg_parser(FlexibleArgumentParser())
    return {name for action in parser._actions for name in action.option_strings if name.startswith("--")}


description = {
    "version": vllm.__version__,
    "fields": {place: sorted(fields) for place, fields in sorted(found.items())},
    "routes": sorted(routes),
    "metrics": sorted(metrics),
    "environment": sorted(vllm.envs.environment_variables),
    "flags": sorted(flags()),
}
print(json.dumps(description))
