"""Many threads at once, with the interpreter switching between them as often as it can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable


def storm(jobs: Iterable[Callable[[], object]], interval: float = 1e-5) -> None:
    """Run each job in a thread of its own to its end. interval: seconds between switches. An exception of a job is raised here."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]
