import cases as c
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import AuthenticationError

settings = {"base_url": c.base_url, "api_key": c.api_key, "max_retries": 0}
chat = ChatOpenAI(**settings, model=c.model, max_tokens=c.output_max)
free = ChatOpenAI(**settings, model=c.model)
responses = ChatOpenAI(**settings, model=c.model, max_tokens=c.output_max, use_responses_api=True)


def get_weather(city: str) -> str:
    """The weather of a city"""
    return f"sunny in {city}"


def stream_of(model):
    return "".join(chunk.text for chunk in model.stream(c.question))


def tools():
    answer = free.bind_tools([get_weather], tool_choice="required", strict=True).invoke(c.question)
    assert "city" in answer.tool_calls[0]["args"]


def structured():
    schema = {"title": "place", **c.city_schema}
    assert "city" in free.with_structured_output(schema, method="json_schema").invoke(c.question)


def embeddings():
    # Otherwise it sends token ids of OpenAI's tokenizer.
    client = OpenAIEmbeddings(**settings, model=c.embedding_model, check_embedding_ctx_length=False)
    c.expect_vectors(client.embed_documents(["one", "two"]))


def wrong_key():
    stranger = ChatOpenAI(**{**settings, "api_key": c.wrong_key}, model=c.model)
    c.expect_refusal(lambda: stranger.invoke(c.question), AuthenticationError)


c.run_cases(
    {
        "chat": lambda: c.expect_text(chat.invoke(c.question).text),
        "chat stream": lambda: c.expect_text(stream_of(chat)),
        "tools": tools,
        "object": structured,
        "embeddings": embeddings,
        "responses": lambda: c.expect_text(responses.invoke(c.question).text),
        "responses stream": lambda: c.expect_text(stream_of(responses)),
        "wrong key": wrong_key,
    }
)
