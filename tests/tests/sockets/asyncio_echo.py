"""Clients that send to a server of the same thread, and compare what it sends back."""
import asyncio
import os
import sys

PORT = int(sys.argv[1])


async def serve(reader, writer):
    length = int.from_bytes(await reader.readexactly(4), "big")
    writer.write(await reader.readexactly(length))
    await writer.drain()
    writer.close()


async def client(number):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    data = os.urandom(200000 + number)
    writer.write(len(data).to_bytes(4, "big") + data)
    await writer.drain()
    assert await reader.read() == data
    writer.close()
    return number


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    done = await asyncio.gather(*(client(number) for number in range(30)))
    server.close()
    print(len(done), "clients")


asyncio.run(main())
