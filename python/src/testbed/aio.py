"""The functions that take long, as coroutines. Cancelling a coroutine ends its command.

    results = await asyncio.gather(
        aio.compare("persistent_straggler", world="sim"),
        aio.compare("late_join", world="sim"),
    )
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Callable, TypeVar

from . import verbs
from ._binary import Cancel

R = TypeVar("R")


def _awaitable(verb: Callable[..., R]) -> Callable[..., Any]:
    @functools.wraps(verb)
    async def wrapped(*args: Any, **options: Any) -> R:
        cancel = options.pop("cancel", None) or Cancel()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, functools.partial(verb, *args, cancel=cancel, **options))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancel()
            await asyncio.wait([work])
            work.exception()  # the interruption, which is what was asked for
            raise

    return wrapped


simulate = _awaitable(verbs.simulate)
run = _awaitable(verbs.run)
compare = _awaitable(verbs.compare)
sweep = _awaitable(verbs.sweep)
tune = _awaitable(verbs.tune)
verify = _awaitable(verbs.verify)
calibrate = _awaitable(verbs.calibrate)
