// A certified authorization server for an MCP server that another process is, with access tokens that are valid for
// three seconds. Whoever visits its pages is logged in and agrees.
//
//     oidc_provider.mjs PORT RESOURCE
//
// Looked up from the working directory, where it was installed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(`${process.cwd()}/`);
const { Provider } = await import(pathToFileURL(installed.resolve("oidc-provider")));
const [port, resource] = process.argv.slice(2);
const LIFETIME_S = 3;

const provider = new Provider(`http://127.0.0.1:${port}`, {
  scopes: ["openid", "offline_access", "tools"],
  ttl: { AccessToken: LIFETIME_S, Grant: 600, Interaction: 600, RefreshToken: 600, Session: 600 },
  rotateRefreshToken: true,
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, { uid }) => `/interaction/${uid}` },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, asked) => {
        if (asked !== resource) throw new Error(`tokens are for ${resource}, not ${asked}`);
        return { scope: "tools", audience: asked, accessTokenFormat: "jwt", accessTokenTTL: LIFETIME_S };
      },
    },
  },
});

async function agreed({ prompt, params, session, grantId }) {
  if (prompt.name === "login") return { login: { accountId: "ada" } };
  const known = grantId && (await provider.Grant.find(grantId));
  const grant = known || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  grant.addResourceScope(resource, "tools");
  return { consent: { grantId: await grant.save() } };
}

provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith("/interaction/")) return next();
  const details = await provider.interactionDetails(ctx.req, ctx.res);
  return provider.interactionFinished(ctx.req, ctx.res, await agreed(details));
});
provider.on("server_error", (_, error) => console.error(error));
for (const refused of ["authorization.error", "grant.error", "registration_create.error"]) {
  provider.on(refused, (_, error) => console.error(refused, error.message, error.error_description));
}
provider.listen(Number(port), "127.0.0.1");
