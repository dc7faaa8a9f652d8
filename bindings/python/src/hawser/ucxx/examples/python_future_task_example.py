"""Awaits what another thread completes: python -m hawser.ucxx.examples.python_future_task_example"""

from __future__ import annotations

import asyncio
import random

from hawser.ucxx.examples.python_future_task_app import PythonFutureTaskApplication


def submit_task(
    cpp_app: PythonFutureTaskApplication, num_tasks: int = 10, max_task_duration: float = 1.0
) -> list[asyncio.Future[int]]:
    """Tasks numbered from 0 on, that take at most so many seconds each."""
    return [cpp_app.submit(duration=random.random() * max_task_duration, id=i) for i in range(num_tasks)]


async def main() -> None:
    """Ten tasks of up to 3 seconds."""
    with PythonFutureTaskApplication(asyncio.get_running_loop()) as app:
        tasks = submit_task(app, max_task_duration=3.0)
        print("Tasks submitted")
        results = await asyncio.gather(*tasks)
        print(f"Future results={results}")
        assert results == list(range(len(tasks)))


if __name__ == "__main__":
    asyncio.run(main())
