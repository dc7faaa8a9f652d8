"""What the tests of UCXX's asyncio API share: its connections."""

import asyncio

from hawser import ucxx


async def connected(serve, **options):
    """A listener, and an endpoint that has connected to it."""
    listener = ucxx.create_listener(serve, **options)
    return listener, await ucxx.create_endpoint(ucxx.get_address(), listener.port, **options)


async def pair():
    """A listener, an endpoint of it in a list, and a client's."""
    kept = []
    listener, client = await connected(kept.append)
    while not kept:
        await asyncio.sleep(0.001)
    return listener, kept, client
