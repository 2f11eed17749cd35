"""The official Python client against a running server: produce, consume, store where we are.

Usage: produce_and_consume.py ADDRESS USER PASSWORD
"""

import asyncio
import os
import sys

from apache_iggy import AutoCommit, Consumer, IggyClient, PollingStrategy, SendMessage

MESSAGES = 100


async def main(address: str, user: str, password: str) -> None:
    client = IggyClient.from_connection_string(f"iggy://{user}:{password}@{address}")
    await client.connect()
    await client.ping()
    await client.create_stream("python")
    await client.create_topic("python", "events", 2)

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
    await client.delete_stream("python")
    print(f"python client: {MESSAGES} messages sent, confirmed and read back")


asyncio.run(main(*sys.argv[1:]))
# The client's background threads may abort the interpreter while it shuts down; all is checked by now.
sys.stdout.flush()
os._exit(0)
