"""A FastMCP server over HTTP, of the old transport or with tokens of an authorization server.

    fastmcp_http.py sse PORT
    fastmcp_http.py guarded PORT ISSUER
"""

import sys

from fastmcp import Context, FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier

kind, port = sys.argv[1], int(sys.argv[2])
base = f"http://127.0.0.1:{port}"
auth = None
if kind == "guarded":
    issuer = sys.argv[3]
    tokens = JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=["tools"])
    auth = RemoteAuthProvider(token_verifier=tokens, authorization_servers=[issuer], base_url=base)
server = FastMCP(kind, auth=auth)


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
async def count(to: int, context: Context) -> str:
    """Counts, and says how far it is."""
    for step in range(1, to + 1):
        await context.report_progress(step, to)
    return "done"


transport = "sse" if kind == "sse" else "http"
server.run(transport=transport, host="127.0.0.1", port=port, show_banner=False, log_level="error")
