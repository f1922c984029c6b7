"""The socket's file: whose it is, what it replaces, and what it leaves."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics.admin_socket import AdminSocket


def test_only_its_owner_may_use_it_and_it_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    before = os.umask(0)
    try:
        opened = AdminSocket(str(path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    opened.close()
    assert not path.exists()


def test_what_a_dead_process_has_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    opened = AdminSocket(str(path))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    opened.close()


def test_a_process_that_runs_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    opened = AdminSocket(str(path))
    with pytest.raises(StartError, match=r"^admin\.socket = .*: a process that runs listens there"):
        AdminSocket(str(path))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    opened.close()


def test_one_whose_queue_is_full_runs_as_well(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(StartError, match="a process that runs listens there"):
            AdminSocket(str(path))


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    path.write_text("precious")
    with pytest.raises(StartError, match="something else is there, not a socket"):
        AdminSocket(str(path))
    assert path.read_text() == "precious"


def test_a_folder_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"^admin\.socket = .*/none/s: cannot listen: No such file or directory$"):
        AdminSocket(str(tmp_path / "none" / "s"))


def test_a_path_that_no_socket_can_have_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"^admin\.socket = .*: cannot listen: "):
        AdminSocket(str(tmp_path / ("x" * 120)))


def test_what_another_has_put_there_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    opened = AdminSocket(str(path))
    path.rename(tmp_path / "moved")
    other = AdminSocket(str(path))
    opened.close()
    assert path.exists()
    other.close()
    opened.close()


def test_a_successor_listens_at_the_same_file_and_removes_it_once_it_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    first = AdminSocket(str(path))
    for owned in (False, True):
        second = AdminSocket(str(path), Inherited([first.socket.dup()]))
        if owned:
            second.own()
            first.leave()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        second.close()
        assert path.exists() != owned
    assert first.socket.fileno() == -1
