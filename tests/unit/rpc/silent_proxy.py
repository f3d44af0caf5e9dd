"""A way between client and server that can go dead without a goodbye, as when a machine loses its power."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SilentProxy:
    """Passes everything on, until `silent` is set: from then on nothing, with all connections left open."""

    def __init__(self, upstream: str) -> None:
        self.silent = False
        self.address = ""
        self._upstream = upstream
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._upstream.rpartition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        self._writers += [writer, upstream_writer]
        for source, sink in ((reader, upstream_writer), (upstream_reader, writer)):
            self._pumps.append(asyncio.create_task(self._pump(source, sink)))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if not self.silent:
                sink.write(data)

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


@asynccontextmanager
async def silent_proxy(upstream: str) -> AsyncIterator[SilentProxy]:
    """A proxy before that address."""
    proxy = SilentProxy(upstream)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
