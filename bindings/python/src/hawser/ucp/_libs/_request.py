"""Communications under way, and what they take."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from hawser import _constants as c
from hawser import _core
from hawser._check import function, integer, one

from .arr import Array
from .exceptions import ErrorCode, HawserError, UCXMsgTruncated, log_errors, translate

if TYPE_CHECKING:
    from ._endpoint import UCXEndpoint


class UCXRequest:
    """A communication that goes on."""

    _uids = itertools.count(1)

    def __init__(self, operation: Any = None) -> None:
        self._operation = operation
        self._uid = next(self._uids)
        self.info: dict[str, Any] = {"status": "pending"}
        self._is_closed = False

    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._operation = None

    @property
    def handle(self) -> int:
        return 0 if self._operation is None else self._operation.id

    def _finish(self) -> None:
        self.info["status"] = "finished"

    def __hash__(self) -> int:
        return self._uid

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)

    def __repr__(self) -> str:
        if self._is_closed:
            return "<UCXRequest closed>"
        return f"<UCXRequest handle={hex(self.handle)} uid={self._uid} info={self.info}>"


class Callback(NamedTuple):
    """What is called with a request and its exception, or None, when it ends."""

    func: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})

    def __call__(self, request: Any, exception: Exception | None) -> object:
        return self.func(request, exception, *self.args, **self.kwargs)


def callback(func: Any, args: Any, kwargs: Any) -> Callback:
    """That of a caller's arguments. Before anything is posted: a message could not be told of with wrong ones."""
    return Callback(
        function("cb_func", func),
        () if args is None else one("cb_args", args, tuple),
        {} if kwargs is None else one("cb_kwargs", kwargs, dict),
    )


class Call:
    """One request under way: when it ends the callback is called with what UCX-Py would say."""

    __slots__ = ("_callback", "_expected", "_name", "_operation", "_owner", "_request")

    def __init__(
        self,
        operation: Any,
        callback: Callback,
        name: str,
        expected: int = -1,
        owner: UCXEndpoint | None = None,
    ) -> None:
        self._operation = operation
        self._callback = callback
        self._name = name
        self._expected = expected
        self._request: UCXRequest | None = None
        # What is sent keeps its endpoint. A receive does not: an endpoint that is forgotten closes, which ends it.
        self._owner: Callable[[], UCXEndpoint | None] = (lambda: owner) if expected < 0 or owner is None else ref(owner)

    @property
    def id(self) -> int:
        return 0 if self._operation is None else self._operation.id

    def done(self) -> bool:
        return bool(self._operation.done())

    def start(self) -> UCXRequest:
        self._request = UCXRequest(self)
        owner = self._owner()
        if owner is not None:
            owner._inflight.add(self)
        self._operation._on_end(self._ended)
        if owner is not None and not owner.is_alive() and not self._operation.done():
            owner.worker._cancel_later(self.cancel_request)  # nobody is told of its peer's end any more
        return self._request

    def cancel_request(self) -> int:
        """Ask for the end; 1 if it has not ended yet."""
        if self._operation.done():
            return 0
        with contextlib.suppress(HawserError):
            _core.cancel(self._operation.id)
        return 1

    def exception(self) -> Exception | None:
        try:
            length = self._operation.result()
        except HawserError as e:
            return translate(e, self._name)
        return check_length(self._name, length, self._expected)

    def call(self) -> None:
        request = self._request or UCXRequest()
        request._finish()
        with log_errors():
            self._callback(request, self.exception())

    def _ended(self, _operation: Any) -> None:
        owner = self._owner()
        if owner is not None:
            owner._inflight.discard(self)
        self.call()
        if self._request is not None:
            self._request._operation = None


def start_send(call: Call) -> UCXRequest | None:
    """The request of what sends; None if it is done: nobody is told then."""
    return None if call.done() else call.start()


def start_recv(call: Call) -> UCXRequest | None:
    """The request of what receives; None if it is done: the callback has been called then."""
    if not call.done():
        return call.start()
    call.call()
    return None


class Flush(Call):
    """A peer that said goodbye has had everything that was sent before: UCX's flush succeeds then."""

    __slots__ = ()

    def exception(self) -> Exception | None:
        if self._operation is None or self._operation.status == ErrorCode.PEER_CLOSED:
            return None
        return super().exception()


def check_length(name: str, got: int, expected: int) -> UCXMsgTruncated | None:
    """A message that is shorter than the buffer is an error in UCX-Py."""
    if expected >= 0 and got != expected:
        return UCXMsgTruncated(f"{name}: length mismatch: {got} (got) != {expected} (expected)")
    return None


def flush(post: Callable[[], Any], callback: Callback) -> UCXRequest:
    try:
        operation = post()
    except HawserError as e:
        if e.code != ErrorCode.PEER_CLOSED:
            raise translate(e, "flush") from e
        operation = None
    call = Flush(operation, callback, "flush")
    if operation is not None:
        return call.start()
    request = call._request = UCXRequest(call)
    call.call()
    return request


def posted(post: Callable[..., Any], name: str, *args: Any) -> Any:
    try:
        return post(*args)
    except HawserError as e:
        raise translate(e, name) from e


def fitting(name: str, value: int, most: int, kind: str) -> int:
    """A number that an unsigned one of C takes, whose type is `kind`. Raises TypeError, OverflowError."""
    number = integer(name, value)
    if not 0 <= number <= most:
        said = "value too large to convert" if number > 0 else "can't convert negative value"
        raise OverflowError(f"{name}: {said} to {kind}")
    return number


def tag_number(tag: int) -> int:
    """A tag that is used as it is: one that was cut off would match messages of another."""
    return fitting("tag", tag, c.FOREVER, "ucp_tag_t")


class _CudaBytes:
    """The first bytes of an array in a GPU's memory."""

    def __init__(self, array: Array, nbytes: int) -> None:
        self._array = array  # holds the memory
        interface = {**array.source.__cuda_array_interface__, "shape": (nbytes,), "typestr": "|u1", "strides": None}
        self.__cuda_array_interface__ = {k: v for k, v in interface.items() if k != "descr"}


def _bytes_at(buffer: Array) -> memoryview:
    """The bytes of an array in the order in which they lie."""
    found: Any = (ctypes.c_ubyte * buffer.nbytes).from_address(buffer.ptr)
    found.holds = buffer
    return memoryview(found)


def view_of(buffer: Array, nbytes: int, writable: bool) -> Any:
    """The first bytes of an array, as something to send or receive into."""
    if not buffer.contiguous:
        raise ValueError("Array must be C or F contiguous")
    if writable and buffer.readonly:
        raise ValueError("writing to readonly buffer!")
    nbytes = fitting("nbytes", nbytes, c.FOREVER, "size_t")
    if nbytes > buffer.nbytes:
        raise ValueError(f"{nbytes} bytes are more than the buffer has, {buffer.nbytes}")
    if nbytes == buffer.nbytes:
        return buffer.source
    _core.memory(buffer.source)  # which refuses what holds Python objects; of a part it is not to be seen any more
    if buffer.cuda:
        return _CudaBytes(buffer, nbytes)
    view = memoryview(buffer.source)
    if not view.c_contiguous:  # memoryviews refuse to see an array of columns as bytes
        view = _bytes_at(buffer)
    return (view if view.format == "B" and view.ndim == 1 else view.cast("B"))[:nbytes]
