"""Compares every point that TensorBoard sees in a run with metrics.jsonl. Usage: compare_events.py RUN [FOLDER]"""
import json
import logging
import math
import sys

import numpy
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

logging.disable(logging.WARNING)
run = sys.argv[1]
folder = sys.argv[2] if len(sys.argv) > 2 else run + "/tensorboard"

STEP_TAGS = {
    "lm loss": lambda r: r["loss"],
    "learning-rate": lambda r: r["learning_rate"],
    "grad-norm": lambda r: r["grad_norm"],
    "loss-scale": lambda r: r["loss_scale"],
    "batch-size": lambda r: r["global_batch_size"],
    "throughput": lambda r: r["tflops"],
    "iteration-time": lambda r: r["elapsed_ms"] / 1e3,
    "tokens-per-second": lambda r: r["tokens_per_s"],
}
EVALUATION_TAGS = {
    "lm loss validation": lambda r: r["validation_loss"],
    "lm loss validation ppl": lambda r: r["perplexity"],
    "lm loss validation bits per byte": lambda r: r["bits_per_byte"],
}

with open(run + "/metrics.jsonl") as lines:
    records = [json.loads(line) for line in lines]
expected = {}
for record in records:
    for tag, value_of in (EVALUATION_TAGS if "validation_loss" in record else STEP_TAGS).items():
        expected.setdefault(tag, []).append((record["step"], value_of(record)))

accumulator = EventAccumulator(folder, size_guidance={SCALARS: 0})
accumulator.Reload()
tags = accumulator.Tags()["scalars"]
assert sorted(tags) == sorted(expected), (sorted(tags), sorted(expected))
points = 0
for tag, values in expected.items():
    seen = accumulator.Scalars(tag)
    assert [event.step for event in seen] == [step for step, _ in values], (tag, [event.step for event in seen])
    for event, (step, value) in zip(seen, values):
        wanted = math.nan if value is None else float(numpy.float32(value))
        same = event.value == wanted or (value is None and not math.isfinite(event.value))
        assert same, (tag, step, event.value, value)
        points += 1
    walls = [event.wall_time for event in seen]
    assert walls == sorted(walls), tag
print(points, "points")
