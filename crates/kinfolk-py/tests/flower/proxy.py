"""A TCP proxy that delays, cuts and half-opens connections, as networks do."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from loopback import HOST


class Proxy:
    """Passes on what comes, until it is told otherwise. What is told holds for connections that are open."""

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        """Seconds that every piece is late."""
        self.connections = 0
        self._to = port
        self._open: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections, wherever they are."""
        with self._lock:
            for each in self._open:
                # Without a word of farewell, as far as TLS is concerned.
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def half_open(self) -> None:
        """Lets all connections be, and passes nothing on any more: neither end is told."""
        with self._lock:
            self._silent.update(self._open)

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection((HOST, self._to))
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self.connections += 1
                    self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                if source not in self._silent:
                    sink.sendall(piece)
            if source in self._silent:
                return
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
