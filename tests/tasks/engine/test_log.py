"""What engines write: why one died, what its start says of its memory, metrics pages, answer letters and programs."""

import pytest

from tasks.engine.log import GIB, GRAPHS, KV_CACHE, KV_TOKENS, MOST_CHARS, WEIGHTS, cause, startup_memory
from tasks.meters import parse
from tasks.sandbox.run import program_of
from tasks.steps.eval_tiny import drawn, first_letter, last_letter

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


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (NO_MEMORY, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."),
        (KILLED, "Worker proc VllmWorker-0 died unexpectedly (-9)"),
        ([WARNED, POINTER], POINTER),
        ([WARNED, "Killed"], None),
    ],
    ids=["of the core, not what points to it", "killed, not who missed it", "pointers alone", "none but a warning"],
)
def test_the_exception_that_says_why_is_the_cause(log: list[str], why: str | None) -> None:
    assert cause(log) == why


def test_what_pydantic_refused_is_told_with_its_reason_in_one_line() -> None:
    told = "for ModelConfig: Value error, max_model_len (100000000) is greater than the derived one."
    assert str(cause(REFUSED)).endswith(told)
    assert len(cause(["ValueError: " + "x" * 999]) or "") == MOST_CHARS, "it is of one line of a table"


H200 = """
(EngineCore_DP0 pid=212) INFO 11-20 12:00:08 [gpu_model_runner.py:425] Model loading took 31.53 GiB and 4.322828 seconds
(EngineCore_DP0 pid=212) INFO 11-20 12:00:31 [gpu_worker.py:298] Available KV cache memory: 91.06 GiB
(EngineCore_DP0 pid=212) INFO 11-20 12:00:31 [kv_cache_utils.py:1087] GPU KV cache size: 179,881 tokens
(EngineCore_DP0 pid=212) INFO 11-20 12:00:31 [kv_cache_utils.py:1091] Maximum concurrency for 16,384 tokens per request: 10.98x
(EngineCore_DP0 pid=212) INFO 11-20 12:00:52 [gpu_model_runner.py:3480] Graph capturing finished in 21 secs, took 1.60 GiB
"""  # noqa: E501

LATER = """
(Worker pid=7) INFO 11-20 12:00:08 [gpu_model_runner.py:5150] Model loading took 30.64 GiB memory and 3.063984 seconds
(Worker pid=7) INFO 11-20 12:00:31 [gpu_worker.py:760] Available KV cache memory: 93.33 GiB
(EngineCore pid=3) INFO 11-20 12:00:31 [kv_cache_utils.py:2327] GPU KV cache size: 184,367 tokens, Maximum concurrency for 16,384 tokens per request: 11.25x
(Worker pid=7) INFO 11-20 12:00:50 [gpu_model_runner.py:6582] Graph capturing finished in 19 secs, took 0.84 GiB
"""  # noqa: E501

CPU = """
(Worker pid=32372) INFO 11-22 17:47:05 [default_loader.py:501] Loading weights took 0.01 seconds
(Worker pid=32372) INFO 11-22 17:47:07 [cpu_worker.py:260] Explicitly set (1.0/18.34) GiB for KV cache on node 0.
(EngineCore pid=32097) INFO 11-22 17:47:07 [kv_cache_utils.py:2327] CPU KV cache size: 671,088 tokens, Maximum concurrency for 2,048 tokens per request: 327.68x
"""  # noqa: E501


@pytest.mark.parametrize(
    ("log", "weights", "cache", "tokens", "graphs"),
    [(H200, 31.53, 91.06, 179_881, 1.60), (LATER, 30.64, 93.33, 184_367, 0.84)],
    ids=["0.25.1", "0.32.0"],
)
def test_both_wordings_of_vllm_are_read(log: str, weights: float, cache: float, tokens: int, graphs: float) -> None:
    said = startup_memory(log)
    assert said.weights_bytes == round(weights * GIB) and said.kv_cache_bytes == round(cache * GIB)
    assert said.kv_tokens == tokens and said.graph_bytes == round(graphs * GIB)
    assert said.unsaid == ()


def test_an_engine_on_the_cpu_says_its_cache_and_nothing_of_weights_and_graphs() -> None:
    said = startup_memory(CPU)
    assert (said.kv_cache_bytes, said.kv_tokens) == (GIB, 671_088)
    assert said.weights_bytes is None and said.graph_bytes is None and said.unsaid == (WEIGHTS, GRAPHS)
    log = "Initial free memory 138.2 GiB, reserved 20.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes"
    assert startup_memory(log).kv_cache_bytes == 20 * GIB, "a size that was an argument is read, too"


def test_workers_of_one_engine_agree_on_the_least_cache_and_engines_add_up_their_tokens() -> None:
    two = startup_memory(LATER + LATER.replace("93.33", "92.12").replace("30.64", "30.70"))
    assert two.kv_cache_bytes == round(92.12 * GIB) and two.weights_bytes == round(30.70 * GIB)
    assert two.kv_tokens == 2 * 184_367


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("Model loading took", "Weights occupy", WEIGHTS),
        ("Available KV cache memory:", "KV cache gets", KV_CACHE),
        ("KV cache size:", "KV capacity:", KV_TOKENS),
        ("GiB and 4", "MiB and 4", WEIGHTS),
        ("took 1.60 GiB", "took 1638.4 MiB", GRAPHS),
    ],
)
def test_other_words_or_another_unit_are_no_figure(old: str, new: str, missing: str) -> None:
    assert old in H200
    assert startup_memory(H200.replace(old, new)).unsaid == (missing,)


def test_what_the_log_rounds_to_nothing_is_unknown_but_was_said() -> None:
    log = "Model loading took 0.0 GiB memory and 0.3 seconds\nGraph capturing finished in 1 secs, took -0.01 GiB"
    said = startup_memory(log)
    assert said.weights_bytes is None and said.graph_bytes is None
    assert said.unsaid == (KV_CACHE, KV_TOKENS)
    command = "vllm serve m --kv-cache-memory-bytes 21474836480 --gpu-memory-utilization 0.9"
    assert startup_memory(command).unsaid == (WEIGHTS, KV_CACHE, KV_TOKENS, GRAPHS), "the head of a log says nothing"


PAGE = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 512.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 8.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 2.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 1.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 200.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 150.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 90.0
"""


def test_counters_are_summed_over_engines_and_labels_and_deltas_are_of_the_work_between() -> None:
    counters = parse(PAGE)
    assert counters.generation_tokens == 520
    assert counters.requests_finished == 3
    assert counters.accepted_by_position == (90, 60)
    later = parse(PAGE.replace("150.0", "170.0").replace("} 90.0", "} 110.0"))
    counted = later.since(counters)
    assert counted.accepted_tokens == 20
    assert counted.accepted_by_position == (20, 0)


def test_a_counter_the_server_lacks_is_null_not_zero() -> None:
    counters = parse("vllm:generation_tokens_total 5\n")
    assert counters.drafts is None
    assert counters.since(counters).drafts is None
    assert counters.since(counters).generation_tokens == 0


@pytest.mark.parametrize(
    ("body", "letter"),
    [
        ("The answer is (C)", "C"),
        ("(A) is wrong, so (B)", "B"),
        ("<think>(A)? no, (D)</think>The answer is (B)", "B"),
        ("<think>cut off in the middle (A)", None),
        ("no letter at all", None),
        ("", None),
    ],
)
def test_the_last_letter_of_the_body_is_the_answer(body: str, letter: str | None) -> None:
    assert last_letter(body) == letter
    assert first_letter("maybe (A) ? fox gold (C)", "The answer is (C)") == "A", "the trap of the thinking"


def test_an_evaluation_of_one_kind_asks_only_that_kind() -> None:
    lookups = drawn(48, 0, "lookup")
    assert {question.kind for question in lookups} == {"lookup"}
    assert len({question.item_id for question in lookups}) == 48
    assert lookups == drawn(48, 0, "lookup")
    assert lookups[:24] == [question for question in drawn(48, 0, None) if question.kind == "lookup"], "paired items"


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("```python\nx = 1\n```\n```py\nx = 1\nprint(x)\n```\n```\npython x.py\n```\n", "x = 1\nprint(x)\n"),
        ("```json\n{}\n```\n```bash\nls -la /\n```\n", None),
        ("```python\na = 1\n```\nNo, better:\n```python\na = 2\n```\n", "a = 2\n"),
        ("```python\nprint(1)\n", None),
        ("```python\nprint(1)\n```\n```python\nprint(123456789)\n", "print(1)\n"),
        ("print(1)", None),
        ("", None),
        ("```python\n\n```\n", None),
        ("````python\nprint('''\n```\n''')\n````\n", "print('''\n```\n''')\n"),
        ("~~~ python title=x\nprint(1)\n~~~\n", "print(1)\n"),
        ("``` Python3\nprint(1)\n```", "print(1)\n"),
    ],
    ids=["longest", "other languages", "equally long", "cut off", "cut off behind one", "no block", "empty", "blank",
         "longer fence", "tildes", "capital"],
)  # fmt: skip
def test_the_longest_block_of_python_that_is_ended_is_the_program(answer: str, program: str | None) -> None:
    assert program_of(answer) == program
