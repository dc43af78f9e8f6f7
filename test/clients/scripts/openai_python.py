import json

import cases as c
from openai import AuthenticationError, OpenAI

client = OpenAI(base_url=c.base_url, api_key=c.api_key, max_retries=0)
messages = [{"role": "user", "content": c.question}]
asked = {"model": c.model, "messages": messages, "max_completion_tokens": c.output_max}
response = {"model": c.model, "input": c.question, "max_output_tokens": c.output_max}


def models():
    assert c.model in [one.id for one in client.models.list()], f"{c.model} is not in the list"
    assert client.models.retrieve(c.model).id == c.model, "another model came back"


def chat():
    answer = client.chat.completions.create(**asked)
    c.expect_text(answer.choices[0].message.content)
    assert answer.usage.completion_tokens > 0, "no usage"


def chat_stream():
    chunks = client.chat.completions.create(**asked, stream=True)
    c.expect_text("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))


def tools():
    tool = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": c.city_schema}}
    answer = client.chat.completions.create(model=c.model, messages=messages, tools=[tool], tool_choice="required")
    assert "city" in json.loads(answer.choices[0].message.tool_calls[0].function.arguments)


def structured():
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": c.city_schema}}
    answer = client.chat.completions.create(model=c.model, messages=messages, response_format=form)
    assert "city" in json.loads(answer.choices[0].message.content)


def embeddings():
    answer = client.embeddings.create(model=c.embedding_model, input=["one", "two"])
    c.expect_vectors([one.embedding for one in answer.data])


def responses_stream():
    events = client.responses.create(**response, stream=True)
    c.expect_text("".join(event.delta for event in events if event.type == "response.output_text.delta"))


def wrong_key():
    stranger = OpenAI(base_url=c.base_url, api_key=c.wrong_key, max_retries=0)
    c.expect_refusal(lambda: stranger.chat.completions.create(**asked), AuthenticationError)


c.run_cases(
    {
        "models": models,
        "chat": chat,
        "chat stream": chat_stream,
        "tools": tools,
        "object": structured,
        "embeddings": embeddings,
        "responses": lambda: c.expect_text(client.responses.create(**response).output_text),
        "responses stream": responses_stream,
        "wrong key": wrong_key,
    }
)
