"""Items of lists and streams, fetched as they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from paceline_client.answers import document_of

if TYPE_CHECKING:
    import pandas as pd

T_co = TypeVar("T_co", covariant=True)


class Items(Generic[T_co]):
    """Items of a list or a stream. Each loop asks the service again; nothing is kept."""

    def __init__(self, begin: Callable[[], Iterator[T_co]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[T_co]:
        return self._begin()

    def to_list(self) -> list[T_co]:
        return list(self)

    def to_pandas(self) -> pd.DataFrame:
        """Returns a data frame with a row for each item. Needs ``pip install 'paceline-client[pandas]'``."""
        return _frame(self)


class AsyncItems(Generic[T_co]):
    """Like ``Items``, for ``async for``."""

    def __init__(self, begin: Callable[[], AsyncIterator[T_co]]) -> None:
        self._begin = begin

    def __aiter__(self) -> AsyncIterator[T_co]:
        return self._begin()

    async def to_list(self) -> list[T_co]:
        return [item async for item in self]

    async def to_pandas(self) -> pd.DataFrame:
        """Returns a data frame with a row for each item. Needs ``pip install 'paceline-client[pandas]'``."""
        return _frame(await self.to_list())


def _frame(items: Iterable[Any]) -> pd.DataFrame:
    """Returns a data frame. Documents inside an item become columns with dots: ``result.avg``, ``schedule.counter``."""
    import pandas as pd  # noqa: PLC0415  an extra, and slow to import

    return pd.json_normalize([document_of(item) for item in items])
