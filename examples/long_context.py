"""Train on a context that one process cannot hold: its time is split over processes, and each may use so much memory.

    python examples/long_context.py                                          # one process: it does not fit
    torchrun --nproc-per-node 4 examples/long_context.py                     # four: it does
    torchrun --nproc-per-node 4 examples/long_context.py --length 1048576 --limit 8

Latching(4): the first token has to be named at every later step, here 2^19 of them in one sequence. Every process holds
a piece of the sequence; layers hand on a few numbers a unit, and the last input (docs/howto/cluster.md). The limit is
that of `ulimit -v`, on addresses, of which PyTorch takes some GiB before it does anything.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from latchwork import CascadeConfig, CascadeLM
from latchwork.tasks import get


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1 << 19, help="steps of the sequence, over all processes")
    parser.add_argument("--limit", type=float, default=5.0, help="GiB of addresses that a process may use; 0: no limit")
    parser.add_argument("--updates", type=int, default=5, help="updates of the weights")
    options = parser.parse_args()
    if options.limit:
        resource.setrlimit(resource.RLIMIT_AS, (int(options.limit * 2**30),) * 2)
    torch.set_num_threads(1)
    group = None
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        group = dist.group.WORLD
    rank, size = (dist.get_rank(), dist.get_world_size()) if group else (0, 1)
    if options.length % size:
        parser.error(f"--length must be a multiple of the {size} processes, got {options.length}")
    piece = options.length // size

    torch.manual_seed(0)  # every process starts from the same weights
    task = get("latching", size=4)
    model: torch.nn.Module = CascadeLM(CascadeConfig.small(dropout=0.0), task.vocab_size, task.n_outputs)
    if group:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for update in range(1, options.updates + 1):
        batch, _ = next(task.endless("train", update, range(1), options.length))
        mine = slice(rank * piece, (rank + 1) * piece)
        tokens, targets = torch.from_numpy(batch.tokens)[:, mine], torch.from_numpy(batch.targets)[:, mine]
        began = time.perf_counter()
        try:
            logits, _ = model(tokens, process_group=group)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / options.length
            optimizer.zero_grad()
            (size * loss).backward()  # data parallelism takes the mean over processes, and the sum is wanted
        except (MemoryError, RuntimeError) as error:
            if "alloc" not in str(error):
                raise
            print(f"{piece:,} steps a process do not fit in {options.limit} GiB", file=sys.stderr)
            return 1
        optimizer.step()
        total = loss.detach().clone()
        if group:
            dist.all_reduce(total)
        if rank == 0:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"update {update}: loss {total.item():.4f}, {options.length:,} steps over {size} processes in "
                f"{time.perf_counter() - began:.1f} s, {most:.1f} GiB resident in the first one",
                flush=True,
            )
    if group:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
