"""The tables of the dataset, declared as data. This file is the data dictionary; analysts need no other.

Raw tables are declared in `warehouse/ledger/`, also as data. Columns are added, never renamed and never reused. What
does not apply is null, never 0 or "".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warehouse.ledger.tables import FIRST_CHUNK, MEMORY_COLUMNS, PROVENANCE_COLUMNS, Column, Table

CANVAS = (
    Column("denoising_steps", "i64", "most passes over a canvas that were asked for; null: the checkpoint's own"),
    Column("canvas_length", "i64", "denoised together, as asked for; null: the checkpoint's own", "tokens"),
)  # fmt: skip
"""What a row may ask of block diffusion."""

MADE_UP = Column(
    "made_up", "str", "what was not really so, so that it is never taken for a measurement of the model: "
    "weights=dummy, acceptance=replayed:<source>, denoising_steps=N (replayed); null: nothing",
)  # fmt: skip

COUNTING_EXTRACTORS = ("last-letter", "last-in-body", "checker")
"""Extractors whose score is an evaluation's result, one of them per evaluation."""

DIAGNOSTIC_EXTRACTORS = ("first-letter", "strict", "flexible", "first", "framework", "reported")
"""Other readers of the same answers, kept to show what they would have published: diagnostics, never results."""

ANY_OF = "any-of-k"
"""Extractor of pass@k: an item counts as right if one of k answers is. It stands beside the score and is none."""

SMOKE = "smoke"  # metric of the smoke step, whose handful of questions is no evaluation


def counts(row: Mapping[str, Any]) -> bool:
    """Whether a row's score is the result of an evaluation."""
    return row["extractor"] in COUNTING_EXTRACTORS and row["metric"] != SMOKE


RESULTS_CONSOLIDATED = Table("results_consolidated", "one cell x step x condition (x metric) of one run", (
    Column("run_id", "str", "the run", required=True),
    Column("cell_key", "str", "the cell", required=True),
    Column("model", "str", "the target's short name", required=True),
    Column("family", "str", "the target's family", required=True),
    Column("precision", "str", "number format of the weights", required=True),
    Column("technique", "str", "how tokens are decoded", required=True),
    Column("k", "i64", "tokens drafted per step, where the technique has a K", "tokens"),
    Column("compared_as", "str", "the model whose AR it is compared with: its own, unless held against another's"),
    Column("engine", "str", "what served", required=True),
    Column("gpu", "str", "kind of machine, as the sweep names it", required=True),
    Column("weights", "str", "real or dummy"),
    Column("acceptance_source", "str", "measured, or replayed:<source>; null: nothing is drafted"),
    *CANVAS,
    MADE_UP,
    Column("step", "str", "the measurement", required=True),
    Column("condition", "str", 'short human name, e.g. "short c=1"'),
    Column("context_tokens", "i64", "prompt length asked for", "tokens"),
    Column("output_tokens", "i64", "output length asked for", "tokens"),
    Column("concurrency", "i64", "requests in flight"),
    Column("mode", "str", "fixed, natural, stream or open (rates of the last are its schedule's: it has none); of a "
           "depth: prefill or decode"),
    Column("depth_tokens", "i64", "of a depth: context_tokens that stand before those whose processing is named",
           "tokens"),
    Column("repeats", "i64", "repeats measured"),
    Column("tok_s", "f64", "completion tokens over wall clock: all repeats of a visit together, geometric mean over "
           "visits; with several requests in flight, of the time in which all of them are; of prompts, from first "
           "sending to last byte. Of a depth's prefill: prompt tokens until the first answer token; of its decode: "
           "streamed tokens behind the first chunk", "tokens/s"),
    Column("tok_s_mean", "f64", "of a depth: arithmetic mean over runs, of all visits", "tokens/s"),
    Column("tok_s_sd", "f64", "its standard deviation, n - 1; null: one run", "tokens/s"),
    Column("peak_tok_s", "f64", "of a depth's decode: most tokens per second in any window of a run, mean over runs; "
           "null: the runs were shorter than the window", "tokens/s"),
    Column("peak_tok_s_sd", "f64", "its standard deviation, n - 1; null: one run", "tokens/s"),
    Column("peak_window_s", "f64", "how long that window is", "s"),
    Column("tok_s_lo", "f64", "lower end of its 95 % interval; `interval_scope` says over what", "tokens/s"),
    Column("tok_s_hi", "f64", "upper end", "tokens/s"),
    Column("interval_scope", "str", "between starts, or within one start: then it says nothing about another one"),
    Column("visits", "i64", "engine starts behind the figure; one that was interrupted and resumed on its machine "
           "counts once, an unsteady one that was left out does not"),
    Column("repeat_sd", "f64", "standard deviation of a repeat's rate within a visit, over the rate"),
    Column("start_sd", "f64", "standard deviation from start to start, over the rate; pooled over the run"),
    Column("cv", "f64", "standard deviation over mean of the repeats within a visit"),
    Column("ttft_ms", "f64", "time to first token, median, streamed; of throughput's with several in flight it favours "
           "drafts: AR's answers of one length end together, so the next prompts wait for one another. Compare a load "
           "step's", "ms"),
    FIRST_CHUNK,
    Column("tpot_ms", "f64", "time per output token after the first, median, streamed, by token counts", "ms"),
    Column("chars_s", "f64", "output characters over wall clock, ramp and tail included, which tok_s leaves out with "
           "several in flight", "characters/s"),
    Column("acceptance_length", "f64", "1 + accepted / drafts: tokens per verification step", "tokens"),
    Column("acceptance_by_position", "list[f64]", "accepted / drafts at draft position 1..K"),
    Column("drafts", "i64", "verification steps that had a draft, as far as they were counted"),
    Column("drafted_tokens", "i64", "tokens drafted in them", "tokens"),
    Column("accepted_tokens", "i64", "of them accepted", "tokens"),
    Column("tokens_per_step", "f64", "tokens over decoding steps: steps without a draft, as prefills, count too, which "
           "acceptance_length leaves out; and no token that was accepted behind an answer's end, which "
           "acceptance_length counts", "tokens"),
    Column("prompt_tokens", "f64", "tokens of a prompt as it was sent, mean, by the engine's usage", "tokens"),
    Column("answer_tokens", "f64", "tokens of an answer that ends by itself, mean; null: as asked", "tokens"),
    Column("mbu", "f64", "achieved over peak memory bandwidth, at least: of a mixture of experts those of one token "
           "are counted per step, and several tokens read more; null without a known peak"),
    Column("energy_j_per_token", "f64", "energy of all cards over completion tokens, all windows together; null where "
           "no card tells", "J/token"),
    Column("power_w", "f64", "mean power of all cards together over the same windows", "W"),
    Column("baseline_energy_j_per_token", "f64", "the same of the AR that `speedup` is over: mean over its starts; "
           "null without a speedup", "J/token"),
    Column("throttle_reasons", "list[str]", "what held a clock down in any of these windows, as in `windows`; null: "
           "the driver doesn't say"),
    Column("speedup", "f64", "tok_s over AR's on the same machine, same run, condition: the cell's control, or the "
           "run's AR cell; null unless both rows are ok"),
    Column("speedup_lo", "f64", "lower end of its 95 % interval, of this cell alone, so that one above 1 is no claim "
           "yet: `conclusion` is; null within one start, or withheld because the placebo failed or is missing (`pairs` "
           "keeps the interval)"),
    Column("speedup_hi", "f64", "upper end"),
    Column("conclusion", "str", "what the speedup claims, as in `pairs`, corrected for the other cells of the run: "
           "faster, slower or inconclusive; null: there is no comparison. Claims are rows that are faster or slower "
           "here and have null in `made_up`"),
    Column("metric", "str", "what score is, e.g. accuracy"),
    Column("score", "f64", "value of the metric, 0 to 1"),
    Column("score_stderr", "f64", "standard error of the score"),
    Column("n", "i64", "items scored"),
    Column("truncated", "i64", "answers cut off by the length limit; of a fixed length none is"),
    Column("blank", "i64", "answers without a body"),
    Column("extractor", "str",
           f"how answers were read: {', '.join((*DIAGNOSTIC_EXTRACTORS, ANY_OF))} don't count; nor does a score of "
           f"metric {SMOKE}, of a handful of questions; all others do (exact: needles found)"),
    Column("score_lo", "f64", "lower end of the score's 95 % interval over items"),
    Column("score_hi", "f64", "upper end"),
    Column("samples", "i64", "answers per item"),
    Column("readers_agree", "f64", "share of answers in which another reading finds the same as the counting one, 0 to "
           "1"),
    Column("framework", "str", "which evaluation framework asked: lm-eval, inspect, hret"),
    Column("framework_version", "str", "of its package"),
    Column("parity_equal", "i64", "prompts whose greedy output equals the AR cell's, token for token"),
    Column("parity_n", "i64", "prompts compared"),
    Column("first_divergence", "i64", "smallest token index at which an output left the AR cell's", "tokens"),
    Column("parity_near_ties", "i64", "prompts whose outputs parted at a near tie of the two best tokens"),
    Column("divergence_margin", "f64", "largest gap between the two best tokens where outputs parted", "nats"),
    Column("depth_percent", "i64", "needle: share of the prompt before the hidden sentence", "%"),
    *MEMORY_COLUMNS,
    Column("kv_bytes_per_token", "f64", "kv_cache_bytes of all cards over kv_tokens", "B/token"),
    Column("baseline_kv_tokens", "i64", "kv_tokens of AR under the same serving arguments: of the cell's control, else "
           "of the run's AR cell", "tokens"),
    Column("gpu_memory_peak_bytes", "i64", "most memory in use on the fullest card, by anybody, over a request of full "
           "length, as the driver says", "B"),
    Column("language", "str", "prompts: of the answer, as the workload says"),
    Column("answer_s", "f64", "prompts: request sent to last byte, median over requests", "s"),
    Column("programs", "i64", "prompts: programs that were run or that answers lacked, of every copy of the prompt; 0: "
           "no sandbox"),
    Column("programs_distinct", "i64", "different answers behind them: copies of a greedy prompt mostly write the same "
           "one, and are one trial"),
    Column("programs_correct", "f64", "share of them that did what the prompt asked, 0 to 1"),
    Column("gpu_s", "f64", "seconds of the node that this row took, of all attempts: its share of its step, further "
           "visits and controls included. Any rows may be summed; once a cell is measured, all its rows sum to smoke_s "
           "+ measure_s of its `attempts` (of a killed one as of its last heartbeat). Null on rows that took none, "
           "such as further readings of the same answers. What starting engines and idling took: `attempts` has the "
           "bill", "s"),
    Column("cost_usd", "f64", "gpu_s at the price_usd_h of the machines that took them, also where `attempts` says "
           "they were not charged; sums like gpu_s", "USD"),
    Column("usd_per_mtok", "f64", "price_usd_h over tok_s, per million output tokens", "USD"),
    Column("verdict", "str", "ok, suspect or rejected; only ok rows enter comparisons", required=True),
    Column("reasons", "list[str]", "reason codes of the guards; empty when ok", required=True),
    Column("details", "list[str]", "one sentence per reason, with the figures"),
    Column("attempts", "i64", "tries of the cell so far", required=True),
    Column("attempt", "i64", "the try that committed the step"),
    Column("measured_at", "str", "when the step was committed, ISO 8601, UTC", required=True),
    *(column for column in PROVENANCE_COLUMNS if column.name != "weights"),
))  # fmt: skip

BILLED_PHASES = {
    "provision": "from renting the machine to submitting the node runner",
    "setup": "from there until the runner took the cell",
    "load": "starting the engine: weights, compiling",
    "smoke": "the smoke step",
    "measure": "all other steps, without the work that was not kept",
    "idle": "everything else until the machine was down",
    "lost": "measured, and lost with the machine",
}
"""What the seconds of a rented machine were spent on, in order; they sum to `rented_s`."""

ATTEMPTS = Table("attempts", "one try of one cell, ended well or not; kept for ever", (
    Column("run_id", "str", "the run", required=True),
    Column("cell_key", "str", "the cell", required=True),
    Column("model", "str", "the target's short name"),
    Column("precision", "str", "number format of the weights"),
    Column("technique", "str", "how the cell decodes"),
    Column("k", "i64", "tokens drafted per step, where the technique has a K", "tokens"),
    Column("engine", "str", "what should serve"),
    Column("gpu", "str", "kind of machine, as the sweep names it"),
    Column("weights", "str", "real or dummy, as planned"),
    Column("acceptance_source", "str", "measured, or replayed:<source>; null: nothing is drafted"),
    *CANVAS,
    MADE_UP,
    Column("attempt", "i64", "which try, from 1; null: rented, but no node runner ever took the cell"),
    Column("outcome", "str", "completed, failed, stopped, notice, lost or superseded", required=True),
    Column("reason", "str", "why, in one sentence"),
    Column("unmeasured", "list[str]", "what no try of the cell has committed: names of steps and visits "
           "(throughput@2); empty: all is measured. A cell that never started has a row here and none in "
           "results_consolidated"),
    Column("owner", "str", "host and process that ran it"),
    Column("started_at", "str", "ISO 8601, UTC"),
    Column("ended_at", "str", "ISO 8601, UTC"),
    Column("wall_s", "f64", "length of the try", "s"),
    Column("cost_usd", "f64", "rented_s at price_usd_h, 0 if not charged; on a machine that was not rented, wall_s at "
           "its price", "USD"),
    Column("log_tail", "str", "last lines of the node's log"),
    Column("exit_code", "i64", "of the node runner, where it had one"),
    Column("cluster", "str", "name of the rented cluster; null: the try was on no rented machine, or it is still up"),
    Column("cloud", "str", "aws, gcp, ..."),
    Column("region", "str", "cloud region"),
    Column("zone", "str", "cloud zone"),
    Column("instance_type", "str", "cloud instance type"),
    Column("spot", "bool", "whether the machine could be taken away"),
    Column("price_usd_h", "f64", "price of the machine", "USD/h"),
    Column("price_source", "str", "where that price comes from, with its date"),
    Column("tried", "str", "offers that had no capacity before this one"),
    Column("ended", "str", "how the machine ended: done, stopped, preempted, setup_failed, silent, autodowned, ..."),
    Column("rented_s", "f64", "from renting the machine until it was down", "s"),
    Column("estimated", "bool", "true: nobody saw the machine end; it is billed until the last that was heard of it, "
           "plus its timer's time"),
    Column("charged", "bool", "false: its cloud took the machine back so soon that it charges nothing (AWS: an hour)"),
    *(Column(f"{phase}_s", "f64", meaning, "s") for phase, meaning in BILLED_PHASES.items()),
    *(Column(f"{phase}_usd", "f64", f"{phase}_s at price_usd_h; 0: not charged", "USD") for phase in BILLED_PHASES),
))  # fmt: skip

VISITS = Table("visits", "one condition of a timed step in one visit on one machine; controls included. A visit is one "
               "engine start; one that was interrupted and resumed on the same machine may be two", (
    Column("run_id", "str", "the run", required=True),
    Column("cell_key", "str", "the cell that was measured, or that brought the control along", required=True),
    Column("served_cell_key", "str", "what was served: the cell itself, or its AR twin", required=True),
    Column("model", "str", "of what was served", required=True),
    Column("precision", "str", "number format of the weights", required=True),
    Column("technique", "str", "of what was served", required=True),
    Column("k", "i64", "tokens drafted per step, where the technique has a K", "tokens"),
    MADE_UP,
    Column("engine", "str", "what served", required=True),
    Column("gpu", "str", "kind of machine, as the sweep names it", required=True),
    Column("step", "str", "the measurement", required=True),
    Column("condition", "str", "the load shape", required=True),
    Column("mode", "str", "fixed, natural, stream or open; of a depth: prefill or decode", required=True),
    Column("role", "str", "cell or control", required=True),
    Column("visit", "i64", "which visit of that role, from 1", required=True),
    Column("position", "f64", "its place in the order of the machine's visits; null: alone"),
    Column("attempt", "i64", "the try of the cell that measured it last"),
    Column("machine", "str", "host and card"),
    Column("complete", "bool", "false: cut short, and measured again on another machine", required=True),
    Column("repeats", "i64", "repeats measured"),
    Column("tok_s", "f64", "of this visit: tokens over seconds, all repeats together", "tokens/s"),
    Column("repeat_sd", "f64", "standard deviation of a repeat's rate, over the rate"),
    Column("ttft_ms", "f64", "of this visit's streams, as in `results_consolidated`", "ms"),
    Column("tpot_ms", "f64", "likewise", "ms"),
    Column("energy_j_per_token", "f64", "of this visit, as in `results_consolidated`", "J/token"),
    Column("power_w", "f64", "likewise", "W"),
    Column("gpu_s", "f64", "seconds of the node that it took; a part of the row's of `results_consolidated`", "s"),
    Column("cost_usd", "f64", "gpu_s at the machine's price, charged or not", "USD"),
    Column("verdict", "str", "ok, suspect or rejected; only ok ones say how much starts differ. Of one that was cut "
           "short: suspect", required=True),
    Column("reasons", "list[str]", "reason codes", required=True),
    Column("measured_at", "str", "when it was committed, ISO 8601, UTC", required=True),
))  # fmt: skip

PAIRS = Table("pairs", "one comparison of a cell with AR of the same run, engine and kind of machine, of the model "
              "and precision that `compared_as` and `baseline_precision` name: its own, unless held against others", (
    Column("run_id", "str", "the run", required=True),
    Column("kind", "str", "speed: by visits; accuracy: by items; precision: by items, with AR of another precision; "
           "placebo: AR against AR by visits", required=True),
    Column("cell_key", "str", "the cell", required=True),
    Column("baseline_cell_key", "str", "the AR cell it is compared with; of a control it is what was served: `visits` "
           "has its rows under the cell's own cell_key, role control, with this as served_cell_key", required=True),
    Column("model", "str", "the target's short name", required=True),
    Column("precision", "str", "number format of the weights", required=True),
    Column("technique", "str", "how the cell decodes", required=True),
    Column("k", "i64", "tokens drafted per step, where the technique has a K", "tokens"),
    MADE_UP,
    Column("compared_as", "str", "the model whose AR it is compared with"),
    Column("baseline_precision", "str", "number format of the weights of that AR; null in snapshots before schema 15"),
    Column("engine", "str", "what served both", required=True),
    Column("gpu", "str", "kind of machine of both", required=True),
    Column("step", "str", "the measurement", required=True),
    Column("condition", "str", "speed: the load shape"),
    Column("mode", "str", "speed: fixed or natural; of a depth: prefill or decode"),
    Column("metric", "str", "tok_s or accuracy", required=True),
    Column("extractor", "str", "accuracy: how the answer was read"),
    Column("n", "i64", "accuracy: items that both answered; speed: repeats of the cell", required=True),
    Column("baseline_value", "f64", "tok_s or score of the AR cell, over the same items"),
    Column("value", "f64", "tok_s or score of the cell, over the same items"),
    Column("ratio", "f64", "speed: value over baseline_value, less the drift between their middles where they differ; "
           "placebo: AR's second start over its first, less the drift between them"),
    Column("ratio_lo", "f64", "lower end of its 95 % interval over starts and repeats; null within one start, of one "
           "repeat, and where the two lie about other middles and no drift is known"),
    Column("ratio_hi", "f64", "upper end"),
    Column("ratio_p", "f64", "two-sided p of no difference; stricter than the interval: with no more degrees of "
           "freedom than the starts"),
    Column("ratio_p_holm", "f64", "the same, corrected (Holm): of a speed for the ok cells of the run under this "
           "condition, of a placebo for all placebos of the run; null: the row isn't ok, so that it claims nothing"),
    Column("ratio_detectable", "f64", "placebo: the smallest ratio above 1 (below 1: its inverse) that could have read "
           "as a difference, corrected as ratio_p_holm is; 1e6: that, or more"),
    Column("machine", "str", "speed: the machine on which both were measured"),
    Column("visits", "i64", "speed: engine starts of the cell"),
    Column("baseline_visits", "i64", "speed: engine starts of AR"),
    Column("drift", "f64", "speed and placebo: change of a rate from one visit of a machine to the next, share, as "
           "fitted over all machines of the run; it moves the ratio only where the two have other middles. Null: none "
           "could be fitted"),
    Column("verdict", "str", "of the cell's row; a speed that isn't ok, or a cell that fails parity, claims nothing"),
    Column("reasons", "list[str]", "its reason codes, and why a claim is withheld"),
    Column("delta", "f64", "accuracy: value minus baseline_value"),
    Column("delta_lo", "f64", "lower end of its 95 % interval, alone: Tango 1998; Student's t where an item's "
           "difference is a fraction (several answers)"),
    Column("delta_hi", "f64", "upper end"),
    Column("gained", "i64", "items that only the cell got right"),
    Column("lost", "i64", "items that only the AR cell got right"),
    Column("mcnemar_p", "f64", "two-sided p that the two differ, alone: exact McNemar test; Student's t where an "
           "item's difference is a fraction (several answers)"),
    Column("margin", "f64", "loss that still counts as none"),
    Column("bound_lo", "f64", "one-sided 95 % lower bound of delta, made like delta_lo; above -margin it says "
           "non-inferior of this comparison alone: the conclusion follows ni_p_holm"),
    Column("mde", "f64", "smallest difference that n items show with 80 % power, alone"),
    Column("samples", "i64", "accuracy: answers per item of both"),
    Column("boot_lo", "f64", "lower end of the 95 % bootstrap interval of delta, items resampled"),
    Column("boot_hi", "f64", "upper end"),
    Column("mcnemar_p_holm", "f64", "mcnemar_p, corrected for the cells of the run (Holm)"),
    Column("ni_p", "f64", "one-sided p that the loss reaches the margin"),
    Column("ni_p_holm", "f64", "the same, corrected for the cells of the run (Holm)"),
    Column("look", "i64", "null: an evaluation is looked at once, at its end"),
    Column("n_needed", "i64", "items that would carry the margin at the discordance seen, as one of so many "
           "comparisons; null: there is a conclusion, or it isn't items that are missing"),
    Column("truncated_delta", "f64", "share cut off minus the AR cell's"),
    Column("served_differently", "list[str]", "serving arguments in which the two cells differ, e.g. max_model_len"),
    Column("wording", "str", "the comparison in words, made from the figures"),
    Column("conclusion", "str", "non-inferior: ni_p_holm below 0.05; worse: not so, and mcnemar_p_holm below 0.05 with "
           "delta below 0; faster or slower: the ratio's interval doesn't contain 1, ratio_p_holm is below 0.05, the "
           "row is ok, all placebos of the run are inconclusive and one was made under this condition; differs: a "
           "placebo that read as a difference; else inconclusive"),
))  # fmt: skip

PERCENTILES = (50, 90, 95, 99)  # of latencies under load

LATENCIES = {
    "ttft": "request sent to first token",
    "tpot": "(last token - first token) / tokens after the first chunk: per token, also where chunks hold several",
    "itl": "inter-token latency, of tokens: the gap before a chunk over its tokens, so its mean is TPOT (within 1 %)",
    "chunk": "(last token - first token) / (chunks - 1): what a reader waits between two pieces of text",
    "e2e": "request sent to last byte",
}
"""Latencies under load, in ms, of requests, but for ITL, which is of tokens; each has a column per percentile. On a
schedule those of a request run from the moment at which it was due: one that is sent late is waited for, too."""

LOAD = Table("load", "a prompt suite, or one category of it, at one concurrency or rate: latencies and goodput of a "
             "cell, of all its visits on the machine of its row of `results_consolidated` (same run, cell, step and "
             "condition), which has rate and speedup", (
    Column("run_id", "str", "the run", required=True),
    Column("cell_key", "str", "the cell", required=True),
    Column("model", "str", "the target's short name", required=True),
    Column("precision", "str", "number format of the weights", required=True),
    Column("technique", "str", "how the cell decodes", required=True),
    Column("k", "i64", "tokens drafted per step, where the technique has a K", "tokens"),
    Column("engine", "str", "what served", required=True),
    Column("gpu", "str", "kind of machine, as the sweep names it", required=True),
    Column("machine", "str", "host and card"),
    Column("step", "str", "the measurement", required=True),
    Column("condition", "str", 'as in `results_consolidated`, e.g. "load c=4, coding"', required=True),
    Column("concurrency", "i64", "requests in flight; null: sent on a schedule"),
    Column("offered_s", "f64", "requests per second that the schedule asked for; null: a closed loop", "1/s"),
    Column("arrived_s", "f64", "requests per second that were due on it, the middle 90 % over their time: what "
           "`requests_s` and `goodput_s` are part of; null: a closed loop", "1/s"),
    Column("arrival", "str", "of the schedule: poisson or constant"),
    Column("category", "str", "of the prompts; null: the whole suite"),
    Column("requests", "i64", "requests behind the latencies: those sent together at the start are left out"),
    Column("prompts", "i64", "different prompts among them: what certifies a percentile"),
    Column("answer_tokens", "f64", "tokens of an answer, mean", "tokens"),
    Column("cut_off", "i64", "of `requests`, those that the cap ended; of all: `truncated`"),
    FIRST_CHUNK,
    *(Column(f"{name}_p{percent}_ms", "f64",
             f"{percent}th percentile: {meaning}; null: so few prompts can't bound it (95 %)", "ms")
      for name, meaning in LATENCIES.items() for percent in PERCENTILES),
    Column("ttft_limit_ms", "f64", "what a request must keep to count for goodput; null: no such limit", "ms"),
    Column("tpot_limit_ms", "f64", "likewise", "ms"),
    Column("e2e_limit_s", "f64", "likewise, to the last byte", "s"),
    Column("requests_s", "f64", "requests finished per second: concurrency over their mean time in a slot; on a "
           "schedule the middle 90 % of all ends over their time, null where answers took longer than the engine had "
           "to fill", "1/s"),
    Column("in_flight", "f64", "on a schedule: mean requests in flight, from its first quarter on"),
    Column("overloaded", "bool", "on a schedule: more and more requests were in flight, in some visit; null: an answer "
           "took longer than its first quarter, so it is too short to tell"),
    Column("sent_late_ms", "f64", "on a schedule: 95th percentile of how late requests were sent", "ms"),
    Column("goodput_s", "f64", "those of them that kept every limit; null: none was stated, or `requests_s` is", "1/s"),
    Column("goodput_share", "f64", "the same, as a share of all, 0 to 1"),
    Column("verdict", "str", "of its row of `results_consolidated`: ok, suspect or rejected"),
    Column("reasons", "list[str]", "of that row, likewise; empty when ok"),
))  # fmt: skip

_CURVE = (
    Column("run_id", "str", "the run", required=True),
    Column("model", "str", "the target's short name", required=True),
    Column("precision", "str", "number format of the weights", required=True),
    Column("technique", "str", "how the cells decode that differ in K; AR's point stands in the curve of each",
           required=True),
    Column("draft", "str", "its second checkpoint; null: it has none"),
    MADE_UP,
    Column("engine", "str", "what served", required=True),
    Column("gpu", "str", "kind of machine, as the sweep names it", required=True),
    Column("step", "str", "the measurement", required=True),
    Column("condition", "str", 'as in `results_consolidated`, e.g. "load c=4, coding"', required=True),
    Column("mode", "str", "fixed, natural or decode", required=True),
    Column("concurrency", "i64", "requests in flight"),
)  # fmt: skip
"""What names a curve over K: cells that differ in K alone, under one condition; of several runs the latest one."""

CURVE = tuple(column.name for column in _CURVE)  # its columns

_OF_BEST = (
    Column("of_best", "f64", "its rate over that of the fastest K, by starts of one machine or by gains over AR's"),
    Column("of_best_lo", "f64", "lower end of its 95 % interval"),
    Column("of_best_hi", "f64", "upper end; 1 or above: within noise of the fastest"),
)  # fmt: skip

K_CURVES = Table("k_curves", "one K of a technique under one condition, of two or more that differ in nothing else: "
                 "speed, and what theory expects of the acceptance that was measured (Leviathan et al., arXiv "
                 "2211.17192)", (
    *_CURVE,
    Column("k", "i64", "tokens drafted per step; 0: AR", "tokens", required=True),
    Column("cell_key", "str", "the cell", required=True),
    Column("measured_in", "str", "run of its row in `results_consolidated`: `run_id`, unless the curve is of several"),
    Column("visits", "i64", "engine starts behind the rate"),
    Column("tok_s", "f64", "as in `results_consolidated`, and so its interval", "tokens/s"),
    Column("tok_s_lo", "f64", "lower end of its 95 % interval", "tokens/s"),
    Column("tok_s_hi", "f64", "upper end", "tokens/s"),
    Column("speedup", "f64", "over AR on the same machine, as in `results_consolidated`"),
    *_OF_BEST,
    Column("tokens_per_step", "f64", "tokens over decoding steps, as measured", "tokens"),
    Column("tokens_expected", "f64", "1 + sum of acceptance by position; null, as all theory: not K tokens were "
           "drafted at every step", "tokens"),
    Column("acceptance_rate", "f64", "one rate for all positions: accepted over judged drafts, 0 to 1"),
    Column("tokens_geometric", "f64", "tokens per step at that one rate a: (1 - a^(K+1)) / (1 - a)", "tokens"),
    Column("step_ms", "f64", "time of a decoding step of a request, prefill taken out where TTFT of AR and every K is "
           "known; null: requests weren't kept in flight at a fixed number", "ms"),
    Column("step_ms_fitted", "f64", "the same by the line through all K of the curve", "ms"),
    Column("tok_s_expected", "f64", "rate with tokens_expected per step of step_ms_fitted, and the prefill",
           "tokens/s"),
    Column("speedup_expected", "f64", "tok_s_expected over AR's rate on its machine"),
    Column("residual", "f64", "tok_s over tok_s_expected, less 1: what theory misses"),
    Column("theory_share", "f64", "speedup over tokens_expected: what is left of it where drafting isn't free"),
    Column("verdict", "str", "of its row; only ok ones are fitted, compared and recommended", required=True),
    Column("reasons", "list[str]", "reason codes", required=True),
))  # fmt: skip

RECOMMENDATIONS = Table("recommendations", "which K of a technique under one condition: the smallest within noise of "
                        "the fastest, AR among them, or why none", (
    *_CURVE,
    Column("k_candidates", "list[i64]", "K that were planned, and 0 for AR", required=True),
    Column("k", "i64", "tokens to draft per step; 0: none, AR is as fast; null: no recommendation", "tokens"),
    Column("fastest_k", "i64", "the fastest as measured; null: it can't be told", "tokens"),
    *_OF_BEST,
    Column("excluded", "list[str]", "K that are no candidates: their outputs are in doubt (parity), or they were "
           "dropped", required=True),
    Column("refusal", "str", "why there is no recommendation: what is missing, or too noisy; null: there is one"),
    Column("wording", "str", "the recommendation in words, made from the figures", required=True),
    Column("target_step_ms", "f64", "time of a step at K = 0, by the line through all K", "ms"),
    Column("draft_token_ms", "f64", "what each drafted token adds to a step, by the same line", "ms"),
    Column("draft_cost", "f64", "draft_token_ms over target_step_ms: c of theory, estimated"),
    Column("draft_cost_lo", "f64", "lower end of its 95 % interval, by the error of the slope"),
    Column("draft_cost_hi", "f64", "upper end"),
    Column("points", "i64", "values of K, 0 among them, behind the line"),
))  # fmt: skip

PRODUCT_TABLES = {
    table.name: table for table in (RESULTS_CONSOLIDATED, PAIRS, VISITS, LOAD, K_CURVES, RECOMMENDATIONS, ATTEMPTS)
}
"""The tables of a snapshot, by name."""
