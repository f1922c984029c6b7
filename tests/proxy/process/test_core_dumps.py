"""A process that forbids its dumps leaves none, and still reads its own keys, which OpenSSL takes from /proc only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.certificates import Authority

PROGRAM = """
import ctypes, os, resource, sys
from pathlib import Path
from forebay_proxy.config.secret import Secret
from forebay_proxy.process.core_dumps import forbid
from forebay_proxy.security.pem import certificates, private_key
from forebay_proxy.security.tls import TlsSettings, server_context

text = Path(sys.argv[1]).read_text()
stores = TlsSettings(
    ("TLSv1.3",), keystore_certificate_chain=certificates("", text), keystore_key=Secret(private_key("", text))
)
server_context(stores, "none")  # imports what it needs, which nobody may read later
os.chdir(sys.argv[3])
if os.getuid() == 0:  # whom nothing is denied
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
hard = {"usual": hard, "none": 0}[sys.argv[2]]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
forbid()
server_context(stores, "none")
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)[0], flush=True)
os.abort()
"""


@pytest.mark.parametrize(("limit", "told"), [("usual", "1 1"), ("none", "0 0")])
def test_dumps_are_off_and_keys_are_read(tmp_path: Path, limit: str, told: str) -> None:
    keystore = str(Authority(tmp_path).issue("own", "a.example"))
    folder = tmp_path / "dumps"
    folder.mkdir()
    folder.chmod(0o777)
    command = [sys.executable, "-P", "-c", PROGRAM, keystore, limit, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=None, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read() == f"{told}\n"
        _, status = os.waitpid(process.pid, 0)
        assert os.WIFSIGNALED(status)
        assert not os.WCOREDUMP(status)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert list(folder.iterdir()) == []
