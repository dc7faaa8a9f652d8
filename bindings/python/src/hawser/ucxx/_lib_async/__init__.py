"""The asyncio API of UCXX."""

from .application_context import ApplicationContext
from .endpoint import Endpoint
from .listener import Listener

__all__ = ["ApplicationContext", "Endpoint", "Listener"]
