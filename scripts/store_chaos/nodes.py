"""The nodes: real servers, each with a data folder and a port of its own, that are killed, paused and started again."""

import os
import signal
import subprocess
import tempfile
import threading
import time

from program import Client, Hang, Unreachable, binary, panics

from postgres import PASSWORD, free_port

PATIENCE_S = 60


class Node:
    def __init__(self, name, data, store, embedder="table"):
        """Without a store it is a single machine."""
        self.name, self.data, self.store, self.embedder = name, data, store, embedder
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = tempfile.TemporaryFile()
        self.process = None
        # Held while it is killed, paused or started.
        self.changing = threading.Lock()

    def start(self):
        address = self.url.removeprefix("http://")
        command = [binary(), "--data", self.data, "--embedder", self.embedder, "serve", "--listen", address, "--log", "warn"]
        command += ["--store", self.store] if self.store else []
        environment = os.environ | {"PGPASSWORD": PASSWORD, "TOOLSCOUT_NODE": self.name}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log, env=environment)

    def wait_until_ready(self, patience_s=PATIENCE_S):
        client, end = Client(self.url), time.monotonic() + patience_s
        while time.monotonic() < end:
            try:
                if client.request("GET", "/readyz")[0] == 200:
                    client.close()
                    return
            except Unreachable:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended: {self.said()}")
            time.sleep(0.02)
        raise Hang(f"{self.name} was not ready after {patience_s} s")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def panics(self):
        return panics(self.said())

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.kill()
        self.log.close()
