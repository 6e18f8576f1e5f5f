"""The real sandbox against programs that mean harm: each is stopped, and named. And whether a right one is found so."""

import errno
import os
import socket
import struct
import sys
from pathlib import Path

import pytest

from configs.steps.prompts import Case, Check, Workload, workloads_of
from tasks.sandbox.fences import AARCH64, ALLOW, REFUSE, X86_64, filter_of
from tasks.sandbox.run import Programs, Ran, checked, run, why_no_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fences are Linux's")

NOTHING = Case(stdout="")


@pytest.fixture(scope="module", autouse=True)
def fences() -> None:
    missing = why_no_sandbox()
    if missing is not None:
        pytest.skip(missing)


def ran(source: str, seconds: float = 30, memory_mib: int = 512, case: Case = NOTHING, fenced: bool = True) -> Ran:
    check = Check(cases=(case,), seconds=seconds, memory_mib=memory_mib)
    return run(source, check, case, fenced=fenced)


def test_the_standard_library_is_there_and_nothing_else_besides_the_input() -> None:
    found = ran("print(sum(map(int, input().split())))", case=Case(stdin="1 2 3\n", stdout="6"))
    assert found == Ran("ended", "6\n", "")
    source = (
        "from __future__ import annotations\nimport csv, dataclasses, datetime, heapq, itertools, json, re\n"
        "import zoneinfo, unicodedata, fractions, hashlib, zlib, decimal, random, typing, enum, functools, statistics\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    y: typing.ClassVar[int] = 2\n"
        "print(Point(1), hashlib.sha256(b'').hexdigest()[:4], random.Random(1).random() < 1)\n"
    )
    assert ran(source).stdout == "Point(x=1) e3b0 True\n"
    assert ran("import pydantic").reason.startswith("line 1: ModuleNotFoundError")
    assert ran("import configs").reason.startswith("line 1: ModuleNotFoundError")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("open('/etc/passwd')", "line 1: PermissionError: [Errno 13] Permission denied: '/etc/passwd'"),
        ("import os\nos.listdir('/')", "line 2: PermissionError"),
        ("open('/proc/self/environ')", "line 1: PermissionError"),
        ("open('mine.txt', 'w')", "line 1: PermissionError: [Errno 1] Operation not permitted: 'mine.txt'"),
        ("import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)", "line 2: PermissionError: [Errno 1]"),
        ("import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())", "line 2: PermissionError: [Errno 1]"),
        ("import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_ASYNC)", "line 2: PermissionError: [Errno 1]"),
        ("import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')", "line 2: PermissionError: [Errno 1]"),
        ("import os\nos.mkdir('mine')", "line 2: PermissionError"),
        ("import os\nos.chmod('VICTIM', 0)", "line 2: PermissionError"),
        ("import os\nopen(os.__file__, 'r+')", "line 2: PermissionError"),
        ("import os\nos.unlink('VICTIM')", "line 2: PermissionError"),
        ("import os\nos.symlink('a', 'b')", "line 2: PermissionError"),
        ("import os\nwhile True: os.fork()", "line 2: PermissionError"),
        ("import threading\nthreading.Thread(target=print).start()", "line 2: RuntimeError: can't start new thread"),
        ("import subprocess\nsubprocess.run(['ls'])", "line 2: PermissionError"),
        ("import os\nos.execv('/bin/ls', ['ls'])", "line 2: PermissionError"),
        ("import os\nos.kill(os.getppid(), 0)", "line 2: PermissionError"),
        ("import os\nos.setuid(0)", "line 2: PermissionError"),
        ("import os\nos.nice(5)", "line 2: PermissionError"),
        ("import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (9, 9))", "line 2: "),
        ("import multiprocessing as m\nm.Process(target=print).start()", "line 2: PermissionError"),
        ("import mmap\nmmap.mmap(-1, 1 << 33)", "line 2: OSError: [Errno 12]"),
    ],
)
def test_what_reaches_beyond_the_program_is_refused(tmp_path: Path, source: str, said: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("x", encoding="ascii")
    found = ran(source.replace("VICTIM", str(victim)))
    assert found.ending == "failed" and found.reason.startswith(said), found
    assert victim.read_text(encoding="ascii") == "x"


def test_nobody_is_reached_over_the_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = ran(f"import socket\nsocket.create_connection(('127.0.0.1', {port}))")
        assert found.reason == "line 2: PermissionError: [Errno 1] Operation not permitted"
        for kind in ("AF_INET6, socket.SOCK_STREAM", "AF_INET, socket.SOCK_DGRAM", "AF_UNIX, socket.SOCK_STREAM"):
            assert "PermissionError" in ran(f"import socket\nsocket.socket(socket.{kind})").reason


def test_the_kernel_refuses_it_to_c_as_well() -> None:
    source = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print([libc.syscall(n, 2, 1, 0, 0, 0) for n in (424, 425, 434, 435, 438, 444)], ctypes.get_errno())\n"
    )
    assert ran(source).stdout == "[-1, -1, -1, -1, -1, -1] 1\n"  # pidfd, io_uring, clone3, Landlock


def test_a_program_that_never_ends_is_ended_though_it_closed_its_output() -> None:
    for source in ("while True: pass", "import time\ntime.sleep(60)", "sum(range(10 ** 12))"):
        assert ran(source, seconds=1) == Ran("timed_out", "", "still running after 1 s"), source
    assert ran("import os\nos.close(1)\nos.close(2)\nwhile True: pass", seconds=1).ending == "timed_out"


def test_a_program_that_eats_memory_or_prints_a_gigabyte_gets_no_more() -> None:
    found = ran("x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mib=128)
    assert (found.ending, found.reason) == ("failed", "line 2: MemoryError")
    found = ran("import sys\nfor _ in range(1024): sys.stdout.write('x' * (1 << 20))")
    assert (found.ending, found.reason) == ("failed", "printed more than 64 KiB")
    assert len(found.stdout) < 1 << 20
    assert ran("import sys\nwhile True: sys.stderr.write('x' * 9999)").reason == "printed more than 64 KiB"


def test_errors_are_named_in_one_line() -> None:
    assert ran("x = 1\nprint(x / 0)").reason == "line 2: ZeroDivisionError: division by zero"
    assert ran("def f(:\n").reason.startswith("line 1: SyntaxError")
    assert ran("import sys\nsys.exit(3)").reason == "exit code 3"
    assert ran("raise ValueError('a\\nb' * 500)").reason.count("\n") == 0
    assert ran("import ctypes\nctypes.string_at(0)").reason == "ended by SIGSEGV"


def test_it_sees_neither_this_environment_nor_another_s_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert "HF_TOKEN" not in ran("import os\nprint(dict(os.environ))").stdout
    secret = tmp_path / "secret"
    secret.write_text("x", encoding="ascii")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        found = ran(f"import os\nprint(os.read({file.fileno()}, 9))")
    assert found.reason.startswith("line 2: OSError: [Errno 9]")


def test_its_folder_is_empty_and_gone_afterwards_and_it_can_not_say_that_it_was_not_run() -> None:
    cwd = ran("import os\nprint(os.getcwd())").stdout.strip()
    assert "specsweep-program-" in cwd and not Path(cwd).exists()
    assert ran("import sys\nprint('no sandbox here', file=sys.stderr)\nsys.exit(97)").ending == "failed", "it was run"


def test_without_fences_only_limits_are_left() -> None:
    assert ran("print(len(open('/etc/passwd').read()) > 0)", fenced=False).stdout == "True\n"
    assert ran("while True: pass", seconds=1, fenced=False).ending == "timed_out"
    found = ran("print('x', file=open('mine.txt', 'w'), flush=True)", fenced=False)
    assert found.ending == "failed", "no file may have a byte"


def test_where_the_kernel_has_no_fences_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Python that takes itself for another machine's: there is no list of system calls for it."""
    lying = tmp_path / "python"
    program = (
        "import platform, runpy, sys\nplatform.machine = lambda: 'riscv64'\n"
        "sys.argv[:] = sys.argv[1:]\nrunpy.run_path(sys.argv[0], {}, '__main__')\n"
    )
    started = f'#!/bin/sh\nexec "{sys.executable}" -I -S -B -X utf8 -c "\n{program}" "$6" "$7"\n'
    lying.write_text(started, encoding="ascii")
    lying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(lying))
    found = ran("print(1)")
    assert (found.ending, found.stdout) == ("not_run", "")
    assert found.reason == "no sandbox here: OSError: [Errno 38] seccomp: no list of system calls for riscv64"
    assert why_no_sandbox() == found.reason


def test_where_nobody_can_tell_when_it_ends_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's old seccomp profile, or a kernel in user space, has no pidfd_open."""

    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    found = ran("while True: pass")
    said = "no sandbox here: nobody can tell when it ends: pidfd_open: [Errno 38] Function not implemented"
    assert found == Ran("not_run", "", said) and why_no_sandbox() == said


SYSTEM_PYTHON = Path("/usr/bin/python3")
"""One that everybody may read, wherever the one of this test lies."""


@pytest.mark.skipif(os.geteuid() != 0 or not SYSTEM_PYTHON.exists(), reason="needs root, and a Python for everybody")
def test_it_is_the_same_for_a_user_without_privileges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = tmp_path / "python"
    become = "/usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all"
    plain.write_text(f'#!/bin/sh\nexec {become} {SYSTEM_PYTHON} "$@"\n', encoding="ascii")
    plain.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(plain))
    found = ran("import os\nprint(os.getuid())")
    if "Permission denied" in found.reason:
        pytest.skip(f"this checkout is root's alone: {found.reason}")
    assert found == Ran("ended", "65534\n", "")
    assert why_no_sandbox() is None


@pytest.mark.parametrize("machine", [X86_64, AARCH64])
def test_a_filter_ends_in_a_refusal_and_names_each_call_once(machine: object) -> None:
    assert isinstance(machine, type(X86_64))
    assert len(set(machine.allowed)) == len(machine.allowed) < 250, "jumps are one byte long"
    calls = [*machine.allowed, machine.openat, machine.fcntl, machine.ioctl]
    assert len(set(calls)) == len(calls)
    steps = [*struct.iter_unpack("=HBBI", filter_of(machine))]
    assert [step[3] for step in steps[-2:]] == [REFUSE, ALLOW]
    for place, (_, if_so, if_not, _) in enumerate(steps):
        assert place + 1 + max(if_so, if_not) < len(steps) or place == len(steps) - 1, "no jump leaves the filter"


def block(source: str) -> str:
    return f"Sure!\n\n```python\n{source}\n```\nIt prints what you asked for."


NO_PROGRAM = "no program: no code block in the answer that is ended"
TWICE = Check(function="twice", cases=(Case(arguments=(2,), stdout="4"), Case(arguments=("ab",), stdout="abab")))


@pytest.mark.parametrize(
    ("source", "outcome", "reason"),
    [
        ("def twice(x):\n    return x + x", "correct", "all of 2 cases"),
        ("print('hello')\ndef twice(x):\n    return 2 * x\nprint(twice(1))", "correct", "all of 2 cases"),
        ("def twice(x):\n    return x * x", "failed", "case 2: line 2: TypeError: can't multiply sequence by non-int"),
        ("def twice(x):\n    return 5", "wrong", "case 1: printed '5', right is '4'"),
        ("def double(x):\n    return x + x", "failed", "case 1: NameError: no function 'twice' in the program"),
        ("if __name__ == '__main__':\n    exit(1)\ndef twice(x):\n    return x + x", "correct", "all of 2 cases"),
    ],
)
def test_a_function_is_held_to_its_cases(source: str, outcome: str, reason: str) -> None:
    found = checked(block(source), TWICE, fenced=True)
    assert found.outcome == outcome and found.reason.startswith(reason), found


def test_a_program_is_held_to_what_it_prints_and_blanks_at_ends_do_not_count() -> None:
    check = Check(cases=(Case(stdin="3\n", stdout="1\n2\n3\n"),))
    right = "for i in range(int(input())): print(i + 1, end=' \\n')\nprint()"
    assert checked(block(right), check, fenced=True).outcome == "correct"
    wrong = checked(block("print(1)\nprint(2)"), check, fenced=True)
    assert (wrong.outcome, wrong.reason) == ("wrong", r"case 1: printed '1\n2', right is '1\n2\n3'")
    slow = Check(cases=check.cases, seconds=1)
    assert checked(block("while True: pass"), slow, fenced=True).outcome == "timed_out"
    assert checked("I can't.", TWICE, fenced=True) == ("failed", NO_PROGRAM)


LONGEST_RUN = '''
def longest_run(numbers: list[int]) -> list[int]:
    """Start and length of the longest stretch of numbers that rise by one."""
    best, start = [0, 0], 0
    for place in range(len(numbers)):
        if place and numbers[place] != numbers[place - 1] + 1:
            start = place
        if place - start + 1 > best[1]:
            best = [start, place - start + 1]
    return best
'''

SHOP = """
import sys
from dataclasses import dataclass


@dataclass
class Article:
    count: int
    price: int


stock: dict[str, Article] = {}
for line in map(str.strip, sys.stdin):
    match line.split():
        case []:
            continue
        case ["add", name, count, price]:
            stock.setdefault(name, Article(0, 0)).count += int(count)
            stock[name].price = int(price)
        case ["sell", name, wanted]:
            article, count = stock.get(name, Article(0, 0)), int(wanted)
            if article.count < count:
                print(f"only {article.count} {name} left")
            else:
                article.count -= count
                print(f"sold {count} {name} for {count * article.price}")
        case ["value"]:
            print(sum(article.count * article.price for article in stock.values()))
        case ["list"]:
            for name, article in sorted(stock.items()):
                if article.count:
                    print(name, article.count, article.price)
        case _:
            print(f"unknown command: {line}")
"""


@pytest.mark.parametrize(("name", "source"), [("code", LONGEST_RUN), ("longcode", SHOP)])
def test_a_right_answer_to_a_shipped_workload_is_right(name: str, source: str) -> None:
    [asked] = [each for each in workloads_of("seeds") if each.name == name]
    assert asked.check is not None
    assert checked(block(source), asked.check, fenced=True).outcome == "correct"
    broken = source.replace("+ 1 >", "+ 2 >").replace("article.count -= count", "article.count -= 1")
    assert checked(block(broken), asked.check, fenced=True).outcome == "wrong"


WORKLOAD = Workload(name="w", language="Python", prompt="p", max_tokens=64, check=TWICE)


def test_without_a_sandbox_nothing_is_run_unless_configuration_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.sandbox.run.why_no_sandbox", lambda: "no sandbox here: OSError: Landlock")
    right = block("def twice(x):\n    return x + x")
    refused = Programs(unfenced=False).columns(WORKLOAD, right)
    assert refused == {"program": "not_run", "program_reason": "no sandbox here: OSError: Landlock"}
    told = Programs(unfenced=True).columns(WORKLOAD, right)
    assert told == {"program": "correct", "program_reason": "ran without fences; all of 2 cases"}
    assert Programs(unfenced=True).columns(WORKLOAD, "I can't.")["program_reason"] == NO_PROGRAM
    unchecked = WORKLOAD.model_copy(update={"check": None})
    assert Programs(unfenced=False).columns(unchecked, block("import os")) == {"program": None, "program_reason": None}
