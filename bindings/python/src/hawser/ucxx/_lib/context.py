"""UCXX's contexts, options and addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hawser.ucp._libs import config, ucx_api
from hawser.ucp._libs.ucx_api import Feature

from .converted import converted

if TYPE_CHECKING:
    from .worker import UCXWorker


class UCXConfig:
    """The options that UCX would have."""

    @converted
    def __init__(self, user_options: dict[str, str] | None = None) -> None:
        self.config = config.read(config.checked("user_options", {} if user_options is None else user_options))


class UCXAddress(ucx_api.UCXAddress):
    """The address of a worker. Made by the class methods."""

    def __new__(cls, *data: bytes) -> UCXAddress:
        if not data:
            raise TypeError("UCXAddress is made by its class methods")
        return super().__new__(cls, *data)

    @classmethod
    def create_from_worker(cls, worker: UCXWorker) -> UCXAddress:
        """The address of a worker."""
        return cls.from_worker(worker)  # type: ignore[return-value]

    @classmethod
    def create_from_buffer(cls, buf: Any) -> UCXAddress:
        """An address that came as bytes."""
        return cls.from_buffer(buf)  # type: ignore[return-value]

    create_from_string = create_from_buffer

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    def tobytes(self) -> bytes:
        """Its bytes."""
        return bytes(self)


class UCXContext(ucx_api.UCXContext):
    """One UCX context. config_dict: options without the prefix UCX_."""

    _plain_rma = False  # there is no remote memory in UCXX's Python API

    @converted
    def __init__(
        self,
        config_dict: dict[str, str] | None = None,
        feature_flags: Iterable[Feature] = ucx_api.DEFAULT_FEATURES,
    ) -> None:
        super().__init__({} if config_dict is None else config_dict, feature_flags)

    @property
    def config(self) -> dict[str, str]:
        """Its options, without the prefix UCX_."""
        return self.get_config()

    @property
    def feature_flags(self) -> int:
        """UCP's flags."""
        return sum(feature.value for feature in self._features)

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    @property
    def info(self) -> str:  # type: ignore[override]
        """UCX's description."""
        return self._context.info()
