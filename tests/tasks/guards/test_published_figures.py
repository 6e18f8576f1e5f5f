"""Published figures before our guards: what can't be right is flagged, and nothing that is sound."""

from __future__ import annotations

import pytest

from tasks.guards.published import judge_write_up, judged_write_ups
from warehouse.published.judged import JudgedRow
from warehouse.published.read import WriteUp
from warehouse.verdicts import Reason


def of(name: str) -> list[JudgedRow]:
    return [judged for judged in judged_write_ups() if judged.write_up.name == name]


def changed(judged: JudgedRow, **columns: object) -> JudgedRow:
    """The row's judgement had its write-up printed other figures."""
    write_up, row = judged.write_up, judged.row
    planted = row.model_copy(update=columns)
    tables = tuple(
        table.model_copy(update={"rows": tuple(planted if each is row else each for each in table.rows)})
        for table in write_up.tables
    )
    other: WriteUp = write_up.model_copy(update={"tables": tables})
    [again] = [each for each in judge_write_up(other) if each.row is planted]
    return again


def test_the_flagged_rows_are_these_and_no_others() -> None:
    flagged = {
        (judged.write_up.name, judged.row.model, judged.row.condition, *map(str, judged.reasons))
        for judged in judged_write_ups()
        if judged.verdict != "ok"
    }
    assert flagged == {
        ("mtp-transformers-h100", "gemma-4-31b", "one prompt", "too_slow"),
        ("mtp-transformers-h100", "gemma-4-31b", "one prompt", "no_baseline"),
        ("mtp-diffusion-h100", "qwen3.6", "short", "stream_mismatch"),
        ("mtp-diffusion-h100", None, "accuracy", "at_chance"),
        ("mtp-gb10", "gemma-4", "unpatched image", "dead_draft"),
        ("mtp-gb10", "gemma-4-31b", "max_tokens=600", "speedup_above_acceptance"),
        ("mtp-gb10", "gemma-4-31b", "news summarization", "speedup_above_acceptance"),
    }
    assert sum(judged.verdict != "ok" for judged in judged_write_ups()) == 8
    assert {judged.verdict for name in ("mtp-dflash-h100", "mtp-spark") for judged in of(name)} == {"ok"}


def test_a_dense_31b_at_8_8_tokens_per_second_on_an_h100_is_too_slow_and_its_speedup_rests_on_that() -> None:
    ar, mtp = of("mtp-transformers-h100")
    assert (ar.verdict, ar.reasons) == ("suspect", (Reason.TOO_SLOW,))
    assert ar.sentences == ("8.8 tok/s without prefill; this machine's memory gives 21 or more",)
    assert (mtp.verdict, mtp.reasons) == ("suspect", (Reason.NO_BASELINE,))
    assert mtp.sentences[0].startswith("3.1 x AR, and that AR row is not ok: 8.8 tok/s")


def test_a_streamed_loss_where_the_same_work_gains_without_streaming_is_rejected() -> None:
    [burst] = [judged for judged in of("mtp-diffusion-h100") if judged.row.mode == "stream"]
    assert (burst.verdict, burst.reasons) == ("rejected", (Reason.STREAM_MISMATCH,))
    honest = changed(burst, speedup=1.6)
    assert honest.verdict == "ok"


def test_pooled_acceptance_beside_the_speedup_of_one_prompt_is_flagged_and_the_speedup_itself_is_not() -> None:
    rows = {judged.row.speedup: judged for judged in of("mtp-gb10") if judged.row.acceptance_length}
    assert rows[3.52].reasons == (Reason.SPEEDUP_ABOVE_ACCEPTANCE,) and rows[1.83].verdict == "ok"
    [headline] = [judged for judged in of("mtp-gb10") if judged.row.speedup == 3.52 and judged.row.wall_s]
    assert headline.verdict == "ok", "another prompt's acceptance bounds nothing: K + 1 = 5 does"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"speedup": 2.9}, Reason.FIGURES_DISAGREE),
        ({"tok_s": 700.0, "speedup": None}, Reason.IMPOSSIBLE_SPEED),
        ({"tok_s": 400.0, "speedup": 9.93}, Reason.SPEEDUP_ABOVE_ACCEPTANCE),
    ],
)
def test_a_figure_that_can_not_be_is_caught_in_a_sound_row(columns: dict[str, object], reason: Reason) -> None:
    sound = next(judged for judged in of("mtp-dflash-h100") if judged.row.speedup == 3.11)
    assert changed(sound, **columns).reasons == (reason,)


def test_published_acceptance_must_be_possible() -> None:
    [counted] = [judged for judged in of("mtp-gb10") if judged.row.drafts == 1890]
    assert counted.verdict == "ok"
    rising = changed(counted, acceptance_by_position=(0.4, 0.5, 0.65, 0.628))
    assert rising.reasons == (Reason.ACCEPTANCE_OUT_OF_RANGE,)
    assert changed(counted, accepted_per_draft=3.18).reasons == (Reason.FIGURES_DISAGREE,)
