"""Answers that are kept for as long as computing them was dear."""

from __future__ import annotations

import asyncio

import pytest

from paceline.shells.api.http.kept import KeptAnswers


def test_slow_answer_is_computed_once_for_concurrent_requests_and_cached_for_a_while() -> None:
    computed = list[int]()

    async def slowly() -> int:
        computed.append(1)
        await asyncio.sleep(0.05)
        return len(computed)

    async def story() -> None:
        kept = KeptAnswers()
        assert await asyncio.gather(*(kept.get("a", slowly) for _ in range(5))) == [1] * 5
        assert await kept.get("a", slowly) == 1
        await asyncio.sleep(0.8)
        assert await kept.get("a", slowly) == 2

    asyncio.run(story())


def test_answer_of_one_key_does_not_wait_for_that_of_another_and_errors_are_not_kept() -> None:
    async def never() -> int:
        await asyncio.sleep(60)
        return 0

    async def fails() -> int:
        raise LookupError

    async def one() -> int:
        return 1

    async def story() -> None:
        kept = KeptAnswers()
        hanging = asyncio.create_task(kept.get("slow", never))
        await asyncio.sleep(0)
        with pytest.raises(LookupError):
            await kept.get("quick", fails)
        assert await asyncio.wait_for(kept.get("quick", one), 1) == 1
        hanging.cancel()

    asyncio.run(story())
