import asyncio

import cases as c
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, AuthenticationError
from pydantic import BaseModel

set_tracing_disabled(True)
# No output limit: an answer that reaches it is an error for this client.
free = ModelSettings()


class Place(BaseModel):
    city: str


def chat(key=c.api_key):
    return OpenAIChatCompletionsModel(model=c.model, openai_client=client_of(key))


def responses(key=c.api_key):
    return OpenAIResponsesModel(model=c.model, openai_client=client_of(key))


def client_of(key):
    return AsyncOpenAI(base_url=c.base_url, api_key=key, max_retries=0)


def agent_of(model, settings=free, **more):
    return Agent(name="Weather", instructions="Be brief.", model=model, model_settings=settings, **more)


def answer(agent):
    return asyncio.run(Runner.run(agent, c.question)).final_output


def stream_of(model):
    async def read():
        result = Runner.run_streamed(agent_of(model), c.question)
        text = ""
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        return text

    return asyncio.run(read())


def tools():
    cities = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather of a city"""
        cities.append(city)
        return f"sunny in {city}"

    answer(agent_of(responses(), ModelSettings(tool_choice="required"), tools=[get_weather]))
    assert cities, "no tool was called"


def structured():
    c.expect_text(answer(agent_of(responses(), output_type=Place)).city)


c.run_cases(
    {
        "chat": lambda: c.expect_text(answer(agent_of(chat()))),
        "chat stream": lambda: c.expect_text(stream_of(chat())),
        "tools": tools,
        "object": structured,
        "responses": lambda: c.expect_text(answer(agent_of(responses()))),
        "responses stream": lambda: c.expect_text(stream_of(responses())),
        "wrong key": lambda: c.expect_refusal(lambda: answer(agent_of(responses(c.wrong_key))), AuthenticationError),
    }
)
