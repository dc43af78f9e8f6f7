import cases as c
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from openai import AuthenticationError
from pydantic import BaseModel

settings = {"model": c.model, "api_base": c.base_url, "api_key": c.api_key, "max_retries": 0}
like = {**settings, "is_chat_model": True, "is_function_calling_model": True, "strict": True}
llm = OpenAILike(**like, max_tokens=c.output_max)
free = OpenAILike(**like)
responses = OpenAIResponses(**settings, context_window=8192, max_output_tokens=c.output_max)
messages = [ChatMessage(role="user", content=c.question)]


class Place(BaseModel):
    city: str


def stream_of(model):
    return "".join(part.delta or "" for part in model.stream_chat(messages))


def tools():
    def get_weather(city: str) -> str:
        """The weather of a city"""
        return f"sunny in {city}"

    tool = FunctionTool.from_defaults(fn=get_weather)
    answer = free.chat_with_tools([tool], chat_history=messages, tool_required=True)
    assert "city" in free.get_tool_calls_from_response(answer)[0].tool_kwargs


def embeddings():
    client = OpenAILikeEmbedding(model_name=c.embedding_model, api_base=c.base_url, api_key=c.api_key)
    c.expect_vectors(client.get_text_embedding_batch(["one", "two"]))


def wrong_key():
    stranger = OpenAILike(**{**like, "api_key": c.wrong_key})
    c.expect_refusal(lambda: stranger.chat(messages), AuthenticationError)


c.run_cases(
    {
        "chat": lambda: c.expect_text(llm.chat(messages).message.content),
        "chat stream": lambda: c.expect_text(stream_of(llm)),
        "tools": tools,
        "object": lambda: c.expect_text(free.as_structured_llm(Place).chat(messages).raw.city),
        "embeddings": embeddings,
        "responses": lambda: c.expect_text(responses.chat(messages).message.content),
        "responses stream": lambda: c.expect_text(stream_of(responses)),
        "wrong key": wrong_key,
    }
)
