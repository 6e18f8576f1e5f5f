"""Why an engine died: logs of vLLM 0.32 on a CPU that it would not start on, shortened, and what is told of them."""

from __future__ import annotations

from tasks.engine.log import MOST_CHARS, cause

WARNED = (
    "(APIServer pid=5) WARNING 11-24 22:52:10 [system_utils.py:255] Found ulimit of 20000 and failed: "
    "OSError: [Errno 24] Too many open files"
)

POINTER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"

NO_MEMORY = f"""\
{WARNED}
(EngineCore pid=1943) ERROR 11-24 22:52:22 [core.py:1510]     raise ValueError(
(EngineCore pid=1943) ERROR 11-24 22:52:22 [core.py:1510] ValueError: No available memory for the cache blocks. Try
Traceback (most recent call last):
    raise ValueError(
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.
  File "vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup
    raise RuntimeError(
{POINTER}""".splitlines()

REFUSED = """\
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, max_model_len (100000000) is greater than the derived one. [type=value_error, input_value=ArgsKwargs(())]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error""".splitlines()

KILLED = """\
(EngineCore pid=7) ERROR 11-24 22:52:22 [multiproc_executor.py:316] Worker proc VllmWorker-0 died unexpectedly (-9)
(APIServer pid=5) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) \
for the root cause.""".splitlines()


def test_the_exception_of_the_core_is_told_and_not_the_one_that_points_to_it() -> None:
    told = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
    assert cause(NO_MEMORY) == told


def test_what_pydantic_refused_is_told_with_its_reason_in_one_line() -> None:
    told = cause(REFUSED)
    assert told is not None and told.endswith("for ModelConfig: Value error, max_model_len (100000000) is greater than "
        "the derived one.")  # fmt: skip


def test_a_process_that_got_to_say_nothing_is_told_rather_than_who_missed_it() -> None:
    assert cause(KILLED) == "Worker proc VllmWorker-0 died unexpectedly (-9)"


def test_an_exception_that_points_to_none_is_all_there_is() -> None:
    assert cause([WARNED, POINTER]) == POINTER, "what was only warned of is no cause"


def test_a_log_without_an_exception_says_nothing() -> None:
    assert cause([WARNED, "Killed"]) is None


def test_a_cause_is_of_one_line_of_a_table() -> None:
    assert len(cause(["ValueError: " + "x" * 999]) or "") == MOST_CHARS
