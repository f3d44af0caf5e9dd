"""A process that has nothing to do with the server and takes memory of its device: DEVICE BYTES CHUNK_BYTES.

Says "took N" when it has all or can get no more, frees it when a line comes, says "freed", and ends with its input.
"""

import sys

import torch


def main() -> None:
    device, wanted_bytes, chunk_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    taken: list[torch.Tensor] = []
    while sum(map(torch.numel, taken)) < wanted_bytes:
        try:
            taken.append(torch.zeros(chunk_bytes, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            break
    _say(f"took {sum(map(torch.numel, taken))}")
    sys.stdin.readline()
    taken.clear()
    if device != "cpu":
        torch.cuda.empty_cache()
    _say("freed")
    sys.stdin.read()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
