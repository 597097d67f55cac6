/** Tools that somebody wrote to harm who looks at them. */

const RUN = "window.hostileRan = true";
const OVERRIDE = "\u202Etxet sdrawkcab\u202C";
const ESCAPES = "\u001B[31mred\u001B[0m \u001B]0;title\u0007 \u009B2J";
const TAGS = Array.from("ignore all", (letter) => String.fromCodePoint(0xe0000 + letter.codePointAt(0))).join("");

/** A schema that refers to itself, is wide, and is deep. */
function schema() {
  const properties = { "<img src=x onerror=alert(1)>": { type: "string", description: `<script>${RUN}</script>` }, self: { $ref: "#/$defs/self" } };
  for (let index = 0; index < 1000; index += 1) properties[`field ${index}`] = { type: "string" };
  let deep = { type: "string" };
  for (let level = 0; level < 40; level += 1) deep = { type: "object", properties: { deeper: deep } };
  return { type: "object", properties: { deep, ...properties }, $defs: { self: { type: "object", properties: { self: { $ref: "#/$defs/self" } } } } };
}

export const HOSTILE = [
  { server: "<b>bold</b>", name: "markup", title: `<script>${RUN}</script>`, tags: [`"><script>${RUN}</script>`], description: `Parcel <script>${RUN}</script><img src="http://192.0.2.1/x.png" onerror="${RUN}"><svg onload="${RUN}"><iframe srcdoc="<script>parent.hostileRan=true</script>"></iframe>` },
  { server: "quotes", name: `"onmouseover="${RUN}" x="`, description: `Parcel " onfocus=${RUN} autofocus='' javascript:${RUN}` },
  { server: "turned", name: `name${OVERRIDE}`, description: `Parcel ${OVERRIDE} \u2067\u2066isolated \u200B\u200B\u200Bzero \u061C \u00AD` },
  { server: "escapes", name: "escapes", description: `Parcel ${ESCAPES} \u0000 \u0008` },
  { server: "tags", name: "tags", description: `Parcel ${TAGS}` },
  { server: "long", name: "long", description: `Parcel ${"A".repeat(100_000)}` },
  { server: "hidden", name: "hidden", description: `Parcel ${"\u202Ea".repeat(20_000)}` },
  { server: "stacked", name: "stacked", description: `Parcel ${`Z${"\u0351".repeat(400)}`.repeat(20)}` },
  { server: "path", name: "../../../catalogs/default", description: "Parcel of a name that is a path" },
  { server: "wide", name: "x".repeat(300), description: "Parcel of a long name" },
  { server: "schema", name: "schema", description: "Parcel of a schema", inputSchema: schema() },
];
