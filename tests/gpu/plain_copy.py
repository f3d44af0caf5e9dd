"""GB/s of a plain copy to the device, from pinned memory where it is a card: DEVICE BYTES. A process of its own."""

import statistics
import sys
import time

import torch

_TIMES = 5


def main() -> None:
    device, size_bytes = sys.argv[1], int(sys.argv[2])
    on_card = device != "cpu"
    here = torch.ones(size_bytes, dtype=torch.uint8, pin_memory=on_card)
    there = torch.empty(size_bytes, dtype=torch.uint8, device=device)
    rates = []
    for _ in range(_TIMES):
        began_s = time.perf_counter()
        there.copy_(here, non_blocking=True)
        if on_card:
            torch.cuda.synchronize(device)
        rates.append(size_bytes / (time.perf_counter() - began_s) / 1e9)
    sys.stdout.write(f"{statistics.median(rates):.3f}\n")


if __name__ == "__main__":
    main()
