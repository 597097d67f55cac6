// Writes the packages: `toolscout` with the scripts, and one for each platform with the native module. The module of this
// machine is put into its own; those of others are built on theirs.
//
// node make_packages.mjs MODULE FOLDER    after `npm run build`

import { existsSync } from "node:fs";
import { chmod, copyFile, cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

const PLATFORMS = [
  { os: "linux", cpu: "x64", libc: "glibc" },
  { os: "linux", cpu: "arm64", libc: "glibc" },
  { os: "linux", cpu: "x64", libc: "musl" },
  { os: "linux", cpu: "arm64", libc: "musl" },
  { os: "darwin", cpu: "x64" },
  { os: "darwin", cpu: "arm64" },
];
const SUFFIXES = { glibc: "-gnu", musl: "-musl" };
const MODULE = "toolscout.node";

const [module, target] = process.argv.slice(2);
if (!module || !target) throw new Error("usage: node make_packages.mjs MODULE FOLDER");

const read = (file) => readFile(new URL(file, import.meta.url), "utf8");
const { devDependencies: _, scripts: __, napi: ___, ...manifest } = JSON.parse(await read("package.json"));
const { version, license, engines } = manifest;
const licenses = ["LICENSE-APACHE", "LICENSE-DICTIONARY", "LICENSE-MIT"];

async function write(folder, contents) {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "package.json"), `${JSON.stringify(contents, null, 2)}\n`);
  for (const name of licenses) await copyFile(new URL(`../../${name}`, import.meta.url), join(folder, name));
}

await rm(target, { recursive: true, force: true });
const optionalDependencies = {};
for (const { os, cpu, libc } of PLATFORMS) {
  const platform = `${os}-${cpu}${SUFFIXES[libc] ?? ""}`;
  const name = `@toolscout/${platform}`;
  optionalDependencies[name] = version;
  const description = `The native module of the package toolscout for ${platform}.`;
  const only = { os: [os], cpu: [cpu], ...(libc && { libc: [libc] }) };
  const folder = join(target, platform);
  await write(folder, { name, version, description, license, engines, ...only, main: MODULE, files: [MODULE, "LICENSE-*"] });
  const isHere = os === process.platform && cpu === process.arch && libc !== "musl";
  if (!isHere) continue;
  await copyFile(module, join(folder, MODULE));
  // Of what the module is made of, where `scripts/release` has written them.
  const notices = new URL("LICENSE-THIRD-PARTY", import.meta.url);
  if (existsSync(notices)) await copyFile(notices, join(folder, "LICENSE-THIRD-PARTY"));
}

const folder = join(target, "toolscout");
await write(folder, { ...manifest, optionalDependencies });
await cp(new URL("dist", import.meta.url), join(folder, "dist"), { recursive: true });
// Their declarations name it, and the compiler copies no declarations.
await copyFile(new URL("toolscout/binding.d.ts", import.meta.url), join(folder, "dist/binding.d.ts"));
await copyFile(new URL("README.md", import.meta.url), join(folder, "README.md"));
await chmod(join(folder, "dist/program.js"), 0o755);
