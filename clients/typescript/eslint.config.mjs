import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "node_modules", "fetch", "tests", "examples", "toolscout/api_types.ts", "toolscout/binding.d.ts"] },
  js.configs.recommended,
  {
    files: ["toolscout/**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: "./tsconfig.json", tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // What is thrown by a script goes back to it as it is.
      "@typescript-eslint/only-throw-error": "off",
      // Callers without types may pass anything.
      "@typescript-eslint/no-unnecessary-condition": "off",
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
      "@typescript-eslint/no-confusing-void-expression": "off",
    },
  },
  {
    files: ["*.mjs", "benches/*.mjs"],
    languageOptions: {
      globals: {
        AbortSignal: "readonly",
        URL: "readonly",
        console: "readonly",
        fetch: "readonly",
        performance: "readonly",
        process: "readonly",
        setTimeout: "readonly",
      },
    },
    rules: { "no-unused-vars": ["error", { varsIgnorePattern: "^_" }] },
  },
);
