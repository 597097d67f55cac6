"""Four times the load that the server takes, and slow clients: memory and descriptors stay level, and a client that
asks now and then is answered."""

import socket
import threading
import time
from urllib.parse import urlsplit

from program import Client, Hang, Scratch, Server, Unreachable, run, ROOT

SLOW_CLIENTS = 400
# Each asks again as soon as it was answered; two cores serve about a quarter of them at a time.
BUSY_CLIENTS = 16
SAMPLES_OF_IDLE = 200
MOST_GROWTH_MIB = 64
MOST_GROWTH_DESCRIPTORS = 64


class Overload:
    name = "overload"

    def __init__(self, random, report, seconds):
        self.random, self.report, self.seconds = random, report, seconds
        self.scratch = Scratch()
        self.data = self.scratch.__enter__() / "data"
        code, _, said = run(self.data, "add", str(ROOT / "fixtures/tools"))
        assert code == 0, said

    def close(self):
        self.scratch.__exit__()

    def round(self):
        server = Server(self.data, "--search-queue", "8").wait_until_ready()
        client = Client(server.url)
        idle = [ask(client, number) for number in range(SAMPLES_OF_IDLE)]
        ended = threading.Event()
        counts = {"answered": 0, "turned away": 0, "cut off": 0}
        threads = [threading.Thread(target=hurry, args=(server.url, ended, counts)) for _ in range(BUSY_CLIENTS)]
        threads.append(threading.Thread(target=dawdle, args=(server.url, ended)))
        for thread in threads:
            thread.start()
        memory, descriptors, busy = self.watch(server, client)
        ended.set()
        for thread in threads:
            thread.join()
        self.judge(memory, descriptors, counts, idle, busy)
        server.stop()
        self.report.end_of(server)

    def watch(self, server, client):
        """Samples of memory, descriptors and the legitimate client's answers, once all clients are there."""
        memory, descriptors, busy = [], [], []
        begin = time.monotonic()
        while time.monotonic() < begin + self.seconds:
            try:
                busy.append(ask(client, len(busy)))
            except Unreachable:
                self.report.loss("the legitimate client was cut off")
            # The first fifth fills caches and queues.
            if time.monotonic() > begin + self.seconds / 5:
                memory.append(server.resident_mib())
                descriptors.append(server.descriptors())
            time.sleep(0.02)
        return memory, descriptors, busy

    def judge(self, memory, descriptors, counts, idle, busy):
        grown, opened = growth(memory), growth(descriptors)
        if grown > MOST_GROWTH_MIB or opened > MOST_GROWTH_DESCRIPTORS:
            self.report.loss(f"memory grew by {grown:.0f} MiB, descriptors by {opened}")
        answered = [seconds for status, seconds in busy if status == 200]
        idle = [seconds for _, seconds in idle]
        if not answered:
            self.report.loss("the legitimate client was never answered")
            return
        self.report.note(
            f"memory {memory[0]:.0f} to {memory[-1]:.0f} MiB (most {max(memory):.0f}), descriptors {descriptors[0]} to "
            f"{descriptors[-1]} (most {max(descriptors)}), {counts}, legitimate client: {len(answered)} of {len(busy)} "
            f"answered, p99 {p99(answered) * 1000:.0f} ms beside {p99(idle) * 1000:.0f} ms when idle"
        )


def ask(client, number):
    begin = time.monotonic()
    status, _ = client.request("POST", "/v1/search", {"query": f"send message number {number % 50} to a friend"})
    return status, time.monotonic() - begin


def hurry(url, ended, counts):
    client, number = Client(url), 0
    while not ended.is_set():
        number += 1
        try:
            status, _ = client.request("POST", "/v1/search", {"query": f"list the files of project {number}"})
            counts["answered" if status == 200 else "turned away"] += 1
        except (Unreachable, Hang):
            counts["cut off"] += 1


def dawdle(url, ended):
    """Connections that send their request a byte at a time, and come again when they are cut off."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    request = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    clients = []
    while not ended.is_set():
        while len(clients) < SLOW_CLIENTS:
            try:
                clients.append([socket.create_connection((host, port), timeout=1), 0])
            except OSError:
                break
        for client in list(clients):
            connection, sent = client
            try:
                connection.send(request[sent : sent + 1] or b"x")
                client[1] += 1
            except OSError:
                connection.close()
                clients.remove(client)
        ended.wait(0.2)
    for connection, _ in clients:
        connection.close()


def growth(samples):
    """Of the highest mark from one half of the time to the other: connections come and go in waves."""
    half = len(samples) // 2
    return max(samples[half:]) - max(samples[:half])


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]
