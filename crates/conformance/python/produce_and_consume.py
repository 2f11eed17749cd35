"""The official Python client against a running server.

Produce and consume, consumer groups with stored offsets, users, and errors with their names.

Usage: produce_and_consume.py ADDRESS USER PASSWORD
"""

import asyncio
import datetime
import os
import sys

from apache_iggy import (
    AutoCommit,
    AutoCommitWhen,
    Consumer,
    IggyClient,
    PollingStrategy,
    SendMessage,
)

MESSAGES = 100
GROUP_PATIENCE_SECONDS = 30


async def produce_and_consume(client: IggyClient) -> None:
    for number in range(MESSAGES):
        response = await client.send_messages(
            "python", "events", 1, [SendMessage(f"message {number}")]
        )
        confirmation = response.confirmations[0]
        assert confirmation.partition_id == 1, confirmation.partition_id
        assert confirmation.base_offset == number, (confirmation.base_offset, number)

    received = []
    while len(received) < MESSAGES:
        batch = await client.poll_messages(
            "python",
            "events",
            consumer=Consumer.Single("reader"),
            polling_strategy=PollingStrategy.Next(),
            count=30,
            auto_commit=True,
            partition_id=1,
        )
        assert batch, f"nothing after {len(received)} messages"
        received.extend((message.offset(), message.payload().decode()) for message in batch)
    expected = [(number, f"message {number}") for number in range(MESSAGES)]
    assert received == expected, "messages differ"

    topic = await client.get_topic("python", "events")
    assert topic.messages_count == MESSAGES, topic.messages_count


async def join_group(client: IggyClient):
    return await client.consumer_group(
        "workers",
        "python",
        "events",
        polling_strategy=PollingStrategy.Next(),
        batch_length=10,
        auto_commit=AutoCommit.When(AutoCommitWhen.PollingMessages()),
        poll_interval=datetime.timedelta(milliseconds=10),
    )


async def read(consumer, count: int) -> list[int]:
    offsets = []
    async for message in consumer.iter_messages():
        offsets.append(message.offset())
        if len(offsets) == count:
            break
    return offsets


async def group_with_offsets(client: IggyClient, address: str, login: str) -> None:
    consumer = await join_group(client)
    group = await client.get_consumer_group("python", "events", "workers")
    assert (group.name, group.members_count) == ("workers", 1), group.members_count
    assert sorted(group.members[0].partitions) == [0, 1], group.members[0].partitions
    offsets = await asyncio.wait_for(read(consumer, 20), GROUP_PATIENCE_SECONDS)
    assert offsets == list(range(20)), offsets
    await consumer.store_offset(14, 1)

    # Another connection sees the group.
    other = IggyClient.from_connection_string(f"iggy://{login}@{address}")
    await other.connect()
    groups = await other.get_consumer_groups("python", "events")
    assert [entry.name for entry in groups] == ["workers"], groups


async def errors(client: IggyClient) -> None:
    async def refused(call, text: str) -> None:
        try:
            await call
        except RuntimeError as error:
            assert text.lower() in str(error).lower(), f"{text!r} is not in {error}"
        else:
            raise AssertionError(f"no error, expected {text}")

    await refused(client.create_stream("python"), "already exists")
    await refused(client.create_topic("nowhere", "events", 1), "not found")
    await refused(client.create_consumer_group("python", "events", "workers"), "already exists")
    await refused(client.delete_topic("python", "nothing"), "not found")
    await refused(client.create_user("python", "secret"), "already exists")
    assert await client.get_stream("nowhere") is None
    assert await client.get_user("nobody") is None
    await client.ping()


async def main(address: str, user: str, password: str) -> None:
    login = f"{user}:{password}"
    client = IggyClient.from_connection_string(f"iggy://{login}@{address}")
    await client.connect()
    await client.ping()
    await client.create_stream("python")
    await client.create_topic("python", "events", 2)
    await client.create_user("python", "secret")

    await produce_and_consume(client)
    await group_with_offsets(client, address, login)
    await errors(client)

    stats = await client.get_stats()
    assert stats.messages_count >= MESSAGES, stats.messages_count
    await client.delete_user("python")
    await client.delete_stream("python")
    print(f"python client: {MESSAGES} messages sent, confirmed and read back; group and errors")


asyncio.run(main(*sys.argv[1:]))
# The client's background threads may abort the interpreter while it shuts down; all is checked by now.
sys.stdout.flush()
os._exit(0)
