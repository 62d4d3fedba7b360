"""What a queue says of requests that wait, and of those that it refuses."""

from __future__ import annotations

import asyncio

import pytest

from runtime.serve._caller import queue as queues
from runtime.serve.exceptions import BackPressureError
from tests.runtime.serve._caller.site import a_site, call, on_a_site, until


@on_a_site
async def test_a_refused_request_has_the_answer_that_its_deployment_names(site):
    await site.add(slots=1)
    site.publish(most_queued=1, backpressure={"status_code": 429, "retry_after_s": 3.0})
    await site.connected()
    running = await site.queue.begin(call("wait"))
    waiting = asyncio.create_task(site.queue.begin(call()))
    await until(lambda: site.queue.waiting == 1)
    with pytest.raises(BackPressureError) as caught:
        await site.queue.begin(call())
    assert (caught.value.status_code, caught.value.retry_after_s) == (429, 3.0)
    waiting.cancel()
    running.cancel()


@on_a_site
async def test_a_queue_says_what_its_requests_wait_for(site):
    with pytest.raises(TimeoutError, match="no such deployment runs in this cluster"):
        await site.queue.begin(call(), timeout_s=0.01)
    site.publish()
    await until(lambda: site.queue.targets is not None)
    with pytest.raises(TimeoutError, match="no replica that serves"):
        await site.queue.begin(call(), timeout_s=0.01)
    replica = await site.add(slots=1)
    await site.connected()
    running = await site.queue.begin(call("wait"))
    with pytest.raises(TimeoutError, match=r"1 requests wait here. No slot of .* is free"):
        await site.queue.begin(call(), timeout_s=0.01)
    running.cancel()
    replica.close()
    await until(lambda: not site.queue.borrower.replicas)
    with pytest.raises(TimeoutError, match=r"None of the 1 replicas of .* can be reached"):
        await site.queue.begin(call(), timeout_s=0.01)


def test_a_warning_follows_when_no_request_moves(caplog, monkeypatch):
    monkeypatch.setattr(queues, "STALL_S", 0.01)

    async def main() -> None:
        async with a_site() as site:
            waiting = asyncio.create_task(site.queue.begin(call()))
            await until(lambda: "1 requests wait for more than 0.01 s. Nothing is known of" in caplog.text)
            waiting.cancel()
            await until(lambda: site.queue._stall is None)

    asyncio.run(main())
