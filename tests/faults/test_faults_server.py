"""A server in trouble says so in a line, not in a stack for each request."""

import logging
import signal
import socket

import pytest
import sqlalchemy as sa
from faults_kit import RealServer

from server.store.writer import StorageUnavailable


def test_a_server_that_ends_while_bodies_are_half_sent_writes_no_stack(tmp_path):
    server = RealServer(tmp_path)
    head = (
        f"POST /api/agent/batches HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    for connection in connections:
        connection.sendall(head.encode())
    server.ask("/api/runs")
    server.close()
    assert server.process.returncode != -signal.SIGKILL, "it did not end when it was told to"
    for connection in connections:
        connection.close()
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_disk_that_is_full_is_said_once_and_its_end_once(database, caplog, monkeypatch):
    is_full = True

    def full(connection):
        if is_full:
            raise sa.exc.OperationalError("COMMIT", {}, Exception("database or disk is full"))

    sa.event.listen(database.write_engine, "commit", full)
    caplog.set_level(logging.WARNING)
    try:
        for _ in range(5):
            with pytest.raises(StorageUnavailable):
                database.writer.submit(lambda connection: connection.execute(sa.text("SELECT 1")).scalar())
        assert [record.exc_info for record in caplog.records] == [None]
        assert "disk is full" in caplog.text
        is_full = False
        assert database.writer.submit(lambda connection: connection.execute(sa.text("SELECT 1")).scalar()) == 1
        assert len(caplog.records) == 2
        assert "after 5 groups" in caplog.text
    finally:
        sa.event.remove(database.write_engine, "commit", full)
