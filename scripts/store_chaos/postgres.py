"""PostgreSQL servers for a test: a primary, and a hot standby that every commit waits for."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "not-a-secret"
USER = DATABASE = "tools"
PATIENCE_S = 60
# PostgreSQL does not run as root.
NOBODY = 65534


def programs():
    """The folder of the programs, which TOOLSCOUT_TEST_POSTGRES names or scripts/postgres.sh installs."""
    named = os.environ.get("TOOLSCOUT_TEST_POSTGRES")
    return Path(named or subprocess.check_output([ROOT / "scripts/postgres.sh"], text=True).strip())


def free_port():
    """A port below those that the system gives to others, so that it stays free while its server is down."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Postgres:
    def __init__(self, settings=()):
        self.programs = programs()
        self.settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="toolscout-postgres-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.process = None
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)

    @classmethod
    def primary(cls, settings=()):
        """`settings`, such as `shared_buffers=1GB`, come after those of every test."""
        server = cls(settings)
        password = server.folder / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            os.chown(password, NOBODY, NOBODY)
        server.run_program(
            "initdb", "--pgdata", server.data, "--username", USER, "--auth", "scram-sha-256", "--pwfile", password,
            "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )
        server.start()
        server.query(f"CREATE DATABASE {DATABASE}", "postgres")
        return server

    def standby(self):
        """A hot standby, which has every commit before it is acknowledged from then on."""
        standby = Postgres()
        standby.run_program(
            "pg_basebackup", "--host", "127.0.0.1", "--port", self.port, "--username", USER, "--pgdata", standby.data,
            "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
        )
        standby.start()
        self.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.query("SELECT pg_reload_conf()")
        end = time.monotonic() + PATIENCE_S
        while self.query("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1":
            if time.monotonic() > end:
                raise RuntimeError("the standby does not follow")
            time.sleep(0.1)
        return standby

    def start(self):
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=32MB", "log_min_messages=fatal"]
        settings += self.settings
        flags = [part for setting in settings for part in ("-c", setting)]
        command = self.unprivileged("postgres", "-D", self.data, "-p", self.port, *flags)
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        end = time.monotonic() + PATIENCE_S
        while not self.answers():
            if time.monotonic() > end:
                raise RuntimeError("PostgreSQL is not ready")
            time.sleep(0.1)

    def kill(self):
        """Ends it at once, as a crash would, with all of its processes."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE_S)
        self.process = None

    def promote(self):
        self.query("SELECT pg_promote()")

    def answers(self):
        try:
            return self.query("SELECT 1", "postgres") == "1"
        except subprocess.CalledProcessError:
            return False

    def query(self, sql, database=DATABASE):
        command = [
            self.programs / "psql", "--host", "127.0.0.1", "--port", str(self.port), "--username", USER,
            "--dbname", database, "-v", "ON_ERROR_STOP=1", "-qAtc", sql,
        ]
        output = subprocess.run(command, env=self.environment(), check=True, capture_output=True, text=True)
        return output.stdout.strip()

    def environment(self):
        return os.environ | {"PGPASSWORD": PASSWORD}

    def unprivileged(self, program, *arguments):
        command = [str(self.programs / program), *map(str, arguments)]
        if os.geteuid() == 0:
            return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
        return command

    def run_program(self, program, *arguments):
        command = self.unprivileged(program, *arguments)
        subprocess.run(command, env=self.environment(), check=True, cwd="/", stdout=subprocess.DEVNULL)

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
