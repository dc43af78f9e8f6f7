import json

import cases as c
from anthropic import Anthropic, AuthenticationError

client = Anthropic(base_url=c.address, api_key=c.api_key, max_retries=0)
asked = {"model": c.model, "max_tokens": c.output_max, "messages": [{"role": "user", "content": c.question}]}
long = {**asked, "max_tokens": 512}


def models():
    assert c.model in [one.id for one in client.models.list(limit=1)], f"{c.model} is not in the list"
    c.expect_text(client.models.retrieve(c.model).display_name)


def tools():
    tool = {"name": "get_weather", "strict": True, "input_schema": c.city_schema}
    answer = client.messages.create(**long, tools=[tool], tool_choice={"type": "any"})
    assert any(part.type == "tool_use" and "city" in part.input for part in answer.content), "no tool was called"


def structured():
    form = {"type": "json_schema", "schema": c.city_schema}
    answer = client.messages.create(**long, output_config={"format": form})
    assert "city" in json.loads(text_of(answer))


def text_of(message):
    return "".join(part.text for part in message.content if part.type == "text")


def messages_stream():
    with client.messages.stream(**asked) as stream:
        c.expect_text("".join(stream.text_stream))


def wrong_key():
    stranger = Anthropic(base_url=c.address, api_key=c.wrong_key, max_retries=0)
    c.expect_refusal(lambda: stranger.messages.create(**asked), AuthenticationError)


c.run_cases(
    {
        "models": models,
        "tools": tools,
        "object": structured,
        "messages": lambda: c.expect_text(text_of(client.messages.create(**asked))),
        "messages stream": messages_stream,
        "wrong key": wrong_key,
    }
)
