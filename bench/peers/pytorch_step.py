#!/usr/bin/env python3
"""Times one training step of the same GPT-2 in PyTorch and in gpt_bench, in alternation, and prints the ratio.

Needs Debian's python3-torch with libopenblas0-openmp (the pthread OpenBLAS is slower and no fair peer), or any newer
PyTorch: run this file with the Python that has it (--compile adds torch.compile).
Usage: bench/peers/pytorch_step.py --all                 the four sizes of docs/performance.md
       bench/peers/pytorch_step.py [--batch 4] [--seq 256] [--layers 12] [--hidden 768] [--heads 12] [--vocab 50257]
Common: [--rounds 3] [--steps 1] [--threads 2] [--compile] [--gpt-bench PATH]
Both sides: f32, whole optimizer step (forward, backward, clipping at 1.0, AdamW), random tokens, no dropout.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

# These are set on some machines for old OpenBLAS builds and slow a current one.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    if name in os.environ:
        os.execve(sys.executable, [sys.executable] + sys.argv, {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")})

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402


class Block(nn.Module):
    def __init__(self, hidden, heads, seq):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("hidden_part", torch.triu(torch.ones(seq, seq, dtype=torch.bool), 1))

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = (t.view(batch, seq, self.heads, hidden // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(hidden, -1))
        if hasattr(F, "scaled_dot_product_attention"):
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (1.0 / (hidden // self.heads) ** 0.5)
            a = torch.softmax(scores.masked_fill(self.hidden_part[:seq, :seq], float("-inf")), -1) @ v
        x = x + self.projection(a.transpose(1, 2).reshape(batch, seq, hidden))
        u = self.fc1(self.norm2(x))
        return x + self.fc2(F.gelu(u, approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.word, self.position = nn.Embedding(o.vocab, o.hidden), nn.Embedding(o.seq, o.hidden)
        self.blocks = nn.ModuleList(Block(o.hidden, o.heads, o.seq) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.hidden)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.word(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.word.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def torch_step(run, model, optimizer, o):
    tokens = torch.randint(0, o.vocab, (o.batch, o.seq))
    targets = torch.randint(0, o.vocab, (o.batch, o.seq))
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    run(tokens, targets).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return o.batch * o.seq / (time.perf_counter() - begin)


def our_step(o, steps, config):
    out = subprocess.run(
        [o.gpt_bench, "step", config, "--csv", "--steps", str(steps), "--warmup", "1", f"--model.seq_length={o.seq}",
         f"--model.num_layers={o.layers}", f"--model.hidden_size={o.hidden}", f"--model.num_attention_heads={o.heads}",
         f"--model.vocab_size={o.vocab}", f"--batch.global_batch_size={o.batch}", f"--batch.micro_batch_size={o.batch}",
         f"--device.threads={o.threads}"],
        check=True, capture_output=True, text=True).stdout
    return float(out.splitlines()[-1].split(",")[0])


SIZES = {
    "GPT-2 124M, 4 x 256": dict(batch=4, seq=256, layers=12, hidden=768, heads=12, vocab=50257),
    "GPT-2 124M, 1 x 1024": dict(batch=1, seq=1024, layers=12, hidden=768, heads=12, vocab=50257),
    "GPT-2 124M, 4 x 64": dict(batch=4, seq=64, layers=12, hidden=768, heads=12, vocab=50257),
    "4 layers of 128, 12 x 64": dict(batch=12, seq=64, layers=4, hidden=128, heads=4, vocab=65),
}


def compare(name, o, root):
    """Alternates the two programs o.rounds times and prints the ratio of the medians."""
    torch.manual_seed(1)
    model = Gpt2(o)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95))
    run = torch.compile(model) if o.compile else model
    for _ in range(2):
        torch_step(run, model, optimizer, o)
    # A small model's step is short: as many as fill a second.
    steps = max(o.steps, round(1 / (o.batch * o.seq / torch_step(run, model, optimizer, o))))
    ours, theirs = [], []
    for number in range(o.rounds):
        ours.append(our_step(o, steps, os.path.join(root, "configs/gpt2_124m.toml")))
        theirs.append(statistics.median(torch_step(run, model, optimizer, o) for _ in range(steps)))
        print(f"{name}: round {number + 1}: tessera {ours[-1]:.1f} tokens/s, PyTorch {torch.__version__} {theirs[-1]:.1f} tokens/s",
              flush=True)
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{name}: medians: tessera {a:.1f}, PyTorch {b:.1f} tokens/s; ratio {a / b:.2f}", flush=True)


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt-bench", default=os.path.join(root, "build/release/apps/gpt_bench"))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--compile", action="store_true")
    for name, default in dict(batch=4, seq=256, rounds=3, steps=1, layers=12, hidden=768, heads=12, vocab=50257, threads=2).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    sizes = SIZES if o.all else {"model": {}}
    for name, size in sizes.items():
        compare(name, argparse.Namespace(**{**vars(o), **size}), root)


main()
