"""A way to a server that can be cut: nothing comes through, and nothing says so."""

import socket
import threading

CHUNK = 1 << 16


class Proxy:
    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.is_open = threading.Event()
        self.is_open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def cut(self):
        self.is_open.clear()

    def mend(self):
        self.is_open.set()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        self.is_open.wait()
        try:
            server = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        threading.Thread(target=self.carry, args=(client, server), daemon=True).start()
        self.carry(server, client)

    def carry(self, source, target):
        try:
            while data := source.recv(CHUNK):
                self.is_open.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self):
        self.listener.close()
        self.mend()
