#!/usr/bin/env node
// The command line: the program itself, in this process.

import { binding } from "./native.js";

process.exit(binding.runProgram(process.argv.slice(2), process.argv[1]));
