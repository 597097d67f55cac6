"""Search for the tools of agent frameworks, in the places that they have for it.

One module a framework, which needs that framework: `pip install toolscout[langchain]`.
"""
