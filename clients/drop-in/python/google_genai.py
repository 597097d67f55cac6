"""Gemini with Google's SDK. `GEMINI_API_KEY` has the key."""

from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from google import genai
from google.genai import types

client = genai.Client(http_options=types.HttpOptions(base_url=TOOLSCOUT))

functions = [
    types.FunctionDeclaration(name=tool["name"], description=tool["description"], parameters_json_schema=tool["parameters"])
    for tool in TOOLS
]
config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=functions)])
chat = client.chats.create(model="gemini-3-flash", config=config)
for question in QUESTIONS:
    answer = chat.send_message(question)
    while answer.function_calls:
        results = [
            types.Part.from_function_response(name=wanted.name, response={"result": call(wanted.name, wanted.args)})
            for wanted in answer.function_calls
        ]
        answer = chat.send_message(results)
    print(answer.text)
